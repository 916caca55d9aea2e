"""Time series of ended attempts: buckets that are written, read as sums, made coarser, and deleted.

A row counts the attempts of one handler that ended within one bucket of time in one process, so no two processes write
the same row. Its numbers are absolute and only grow, and a write keeps the greater ones: written twice, late, or in
another order, it counts once. Attempts whose process has died are added to a row of their own. No task is read for
sums.

The statement's text holds the numbers: a row has more than a hundred, and to bind each of them would take SQLAlchemy
and the drivers longer than the database needs for the statement.

A coarse row is the sum over the fine rows of its span, with all processes of a node as one. It may be computed by
several nodes at once, and again at any time: its numbers only grow, too. A fine row may come late, after an outage of
its process, so the last spans are computed again and again, and all that the fine rows still cover now and then.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import product
from typing import Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import BIN_COUNT, OUTCOMES, AttemptTotals, Histogram
from peerd.domain.errors import InvalidFilter
from peerd.store.schema.tables import statistics
from peerd.store.schema.types import Instant, now
from peerd.store.statements import insert_if_absent
from peerd.store.tasks.rows import BATCH, batches, to_whole_number
from peerd.store.time_series import (
    MINUTE,
    RollupStep,
    Tile,
    bucket_start,
    find_complete_span,
    placeholder_of,
    purge_step,
    upsert_of_greater,
)

ROWS_OF_A_STATEMENT: Final = 250
KEY: Final = tuple(column.name for column in statistics.primary_key)
COUNTERS: Final = tuple(column.name for column in statistics.c if column.name not in KEY)
_INSTANT: Final = Instant()
_WAIT_BINS: Final = len(OUTCOMES) + 2
_RUN_SUM: Final = _WAIT_BINS + BIN_COUNT


class BucketRow(NamedTuple):
    """A row of the table: its key, and the attempts of it.

    ``process_id`` 0 is all processes of a node; in a row of a minute, those that have died.
    """

    step: int
    at: datetime
    queue: str
    name: str
    node_id: int
    process_id: int
    totals: AttemptTotals


class LostAttempt(NamedTuple):
    """An attempt whose process has died; the outcome is ``failed``, or ``dead`` as the last one."""

    queue: str
    name: str
    node_id: int
    outcome: str


def write_buckets(connection: Connection, rows: Iterable[BucketRow]) -> int:
    """Write rows; of one that is there already the greater numbers are kept. Returns how many."""
    written = 0
    for piece in batches(rows, rows=ROWS_OF_A_STATEMENT):
        placeholder = placeholder_of(connection)
        values = ", ".join([_values_of(row, placeholder) for row in piece])
        head, tail = upsert_of_greater("statistics", KEY, COUNTERS, connection.dialect.name)
        parameters: list[Any] = []
        for row in piece:
            parameters += (_INSTANT.process_bind_param(row.at, connection.dialect), row.queue, row.name)
        connection.exec_driver_sql(f"{head} {values} {tail}", tuple(parameters))
        written += len(piece)
    return written


def count_lost_attempts(connection: Connection, lost: Mapping[LostAttempt, int]) -> None:
    """Add attempts whose process has died, in the transaction that takes their tasks back, so that each counts once.

    They are in rows of no process, which nothing else writes, since the process may have written its own.
    """
    at = bucket_start(connection.execute(sa.select(now())).scalar_one(), MINUTE)
    keys = sorted({one[:3] for one in lost})  # in one order, so that two sessions do not wait for each other
    for piece in batches(keys, rows=ROWS_OF_A_STATEMENT):
        rows = [dict(zip(KEY, (MINUTE, at, *key, 0), strict=True)) | dict.fromkeys(COUNTERS, 0) for key in piece]
        insert_if_absent(connection, statistics, rows, key=KEY)
    for attempt, count in sorted(lost.items()):
        key = zip(KEY, (MINUTE, at, *attempt[:3], 0), strict=True)
        column = statistics.c[attempt.outcome]
        row = sa.update(statistics).where(*(statistics.c[name] == value for name, value in key))
        connection.execute(row.values({column: column + count}))


def counters_of(totals: AttemptTotals) -> list[int | float]:
    """The numbers of a row, in the order of `COUNTERS`."""
    outcomes = [totals.outcomes.get(name, 0) for name in OUTCOMES]
    wait, run = totals.wait, totals.run
    return [*outcomes, totals.busy, wait.sum, *wait.counts, run.sum, *run.counts]


def totals_of(counters: Sequence[Any]) -> AttemptTotals:
    """Totals of the numbers of a row, or of sums of such numbers."""
    outcomes = dict(zip(OUTCOMES, map(int, counters), strict=False))
    wait = Histogram(list(map(int, counters[_WAIT_BINS:_RUN_SUM])), _seconds(counters[_WAIT_BINS - 1]))
    run = Histogram(list(map(int, counters[_RUN_SUM + 1 :])), _seconds(counters[_RUN_SUM]))
    return AttemptTotals(outcomes, _seconds(counters[len(OUTCOMES)]), wait, run)


def _seconds(value: Any) -> float:
    """A sum of durations; one that SQL by hand has made infinite can be written again."""
    return min(float(value), sys.float_info.max)


def _values_of(row: BucketRow, placeholder: str) -> str:
    numbers = ",".join(map(repr, counters_of(row.totals)))
    texts = f"{placeholder},{placeholder},{placeholder}"
    return f"({row.step:d},{texts},{to_whole_number(row.node_id)},{row.process_id:d},{numbers})"


# ---------------------------------------------------------------- reading


Dimension = Literal["at", "queue", "name", "node_id", "process_id"]
"""A column by which attempts are grouped."""
MOST_GROUPS: Final = 5_000
"""Groups that are read at the most, so that a question cannot fill the memory of a process."""


Group = tuple[Any, ...]
"""Values of the columns by which attempts are grouped."""


class BucketFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which buckets are read: those of one queue, handler or node, or all."""

    queue: str | None = None
    name: str | None = None
    node_id: int | None = None


EVERYTHING: Final = BucketFilter()


def sum_buckets(
    connection: Connection,
    tile: Tile,
    by: Sequence[Dimension],
    wanted: BucketFilter = EVERYTHING,
    most: int = MOST_GROUPS,
    groups: Sequence[Group] = (),
) -> Iterator[tuple[Group, AttemptTotals]]:
    """The attempts of each group that has any: the values of its columns, and their totals, in the order of the values.

    Args:
        connection: of any transaction.
        tile: the time, and the step of the rows.
        by: the columns by which they are grouped; none: all are one group.
        wanted: which buckets.
        most: groups at the most; the first ones.
        groups: of the columns beside the time; without any, all.
    """
    statement = _sum_statement(tuple(by), _given_names(wanted), len(groups))
    parameters = _parameters(tile, wanted, most) | _group_parameters(by, groups)
    for row in connection.execute(statement, parameters):
        if row[len(by)] is not None:  # the sum over no rows at all
            yield tuple(row[: len(by)]), totals_of(row[len(by) :])


def sum_tiles(
    connection: Connection,
    parts: Sequence[Tile],
    by: Sequence[Dimension],
    filters: Iterable[BucketFilter] = (EVERYTHING,),
    groups: Sequence[Group] = (),
) -> dict[Group, AttemptTotals]:
    """The totals of several parts of a span. A group's ``at`` is in the step of the first part.

    Args:
        connection: of any transaction.
        parts: of the span.
        by: the columns by which they are grouped.
        filters: the buckets that are read meet one of these; none of them meets two.
        groups: as for `sum_buckets`.

    Raises:
        InvalidFilter: there are more groups than `MOST_GROUPS`.
    """
    found: dict[Group, AttemptTotals] = {}
    for tile, wanted in product(parts, filters):
        for read, totals in sum_buckets(connection, tile, by, wanted, MOST_GROUPS + 1, groups):
            key = tuple(
                bucket_start(value, parts[0].step) if column == "at" else value
                for column, value in zip(by, read, strict=True)
            )
            if key in found:
                found[key].merge(totals)
            else:
                found[key] = totals
    if len(found) > MOST_GROUPS:
        problem = f"it would give more than {MOST_GROUPS:,} rows: ask for less time, a coarser step, or one queue"
        raise InvalidFilter("by", problem)
    return dict(sorted(found.items()))


def greatest_groups(
    connection: Connection,
    parts: Sequence[Tile],
    by: Sequence[Dimension],
    filters: Iterable[BucketFilter],
    most: int,
) -> list[Group]:
    """The groups with the most attempts, those first.

    It sums one number of each bucket, where `sum_tiles` sums a hundred.

    Args:
        connection: of any transaction.
        parts: of the span.
        by: the columns by which they are grouped; at least one.
        filters: as for `sum_tiles`.
        most: groups at the most.
    """
    attempts: Counter[Group] = Counter()
    for tile, wanted in product(parts, filters):
        statement = _count_statement(tuple(by), _given_names(wanted))
        for *key, count in connection.execute(statement, _parameters(tile, wanted, MOST_GROUPS)):
            attempts[tuple(key)] += int(count)
    return sorted(attempts, key=lambda group: (-attempts[group], group))[:most]


def _given_names(wanted: BucketFilter) -> tuple[str, ...]:
    return tuple(name for name in wanted.__struct_fields__ if getattr(wanted, name) is not None)


def _parameters(tile: Tile, wanted: BucketFilter, most: int) -> dict[str, Any]:
    given = {name: getattr(wanted, name) for name in _given_names(wanted)}
    return {"step": tile.step, "since": tile.since, "until": tile.until, "most": most, **given}


def _group_parameters(by: Sequence[Dimension], groups: Sequence[Group]) -> dict[str, Any]:
    return {
        f"{name}_{number}": value
        for number, group in enumerate(groups)
        for name, value in zip(_grouped(by), group, strict=True)
    }


def _is_of_group(by: Sequence[Dimension], number: int) -> sa.ColumnElement[bool]:
    columns = statistics.c
    same = (columns[name] == sa.bindparam(f"{name}_{number}", type_=columns[name].type) for name in _grouped(by))
    return sa.and_(*same)


def _grouped(by: Sequence[Dimension]) -> list[Dimension]:
    """The columns of a group: those beside the time."""
    return [name for name in by if name != "at"]


@lru_cache(maxsize=64)
def _count_statement(by: tuple[Dimension, ...], filters: tuple[str, ...]) -> sa.Select[Any]:
    keys = [statistics.c[name] for name in by]
    total = sum((statistics.c[name] for name in OUTCOMES[1:]), start=statistics.c[OUTCOMES[0]])
    attempts = sa.cast(sa.func.sum(total), sa.BigInteger).label("attempts")
    statement = sa.select(*keys, attempts).where(*_conditions(filters)).group_by(*keys)
    return statement.order_by(attempts.desc()).limit(sa.bindparam("most", type_=sa.Integer()))


def _conditions(filters: tuple[str, ...]) -> Iterator[sa.ColumnElement[bool]]:
    columns = statistics.c
    yield columns.step == sa.bindparam("step", type_=sa.Integer())
    yield columns.at >= sa.bindparam("since", type_=columns.at.type)
    yield columns.at < sa.bindparam("until", type_=columns.at.type)
    for name in filters:
        yield columns[name] == sa.bindparam(name, type_=columns[name].type)


@lru_cache(maxsize=64)
def _sum_statement(by: tuple[Dimension, ...], filters: tuple[str, ...], groups: int) -> sa.Select[Any]:
    """Sums as numbers of the database's own: MySQL would send decimals, which take long to read."""
    columns = statistics.c
    keys = [columns[name] for name in by]
    sums = [
        sa.func.sum(column)
        if isinstance(column.type, sa.Double)
        else sa.cast(sa.func.sum(column), sa.BigInteger).label(column.name)
        for column in (columns[name] for name in COUNTERS)
    ]
    statement = sa.select(*keys, *sums).where(*_conditions(filters))
    if groups:
        statement = statement.where(sa.or_(*(_is_of_group(by, number) for number in range(groups))))
    if keys:
        statement = statement.group_by(*keys).order_by(*keys)
    return statement.limit(sa.bindparam("most", type_=sa.Integer()))


# ---------------------------------------------------------------- coarser buckets


FINER: Final = {600: 60, 3_600: 600}
"""The step of `statistics` that a step is made from."""
MOST_ROWS: Final = 100_000
"""Rows of a coarse span: 500 handlers of each of 200 nodes."""


def roll_up(connection: Connection, step: int, since: datetime, kept: float) -> RollupStep:
    """Compute the first complete coarse bucket that has fine rows, of those that begin at a moment or later.

    Args:
        connection: in a transaction.
        step: seconds of the coarse buckets.
        since: where to begin.
        kept: seconds for which the fine rows are kept. Of a bucket some of whose rows may be deleted, nothing is
            computed.
    """
    span = find_complete_span(connection, statistics, step, FINER[step], since, kept)
    if isinstance(span, RollupStep):
        return span
    start, end = span
    sums = sum_buckets(connection, Tile(FINER[step], start, end), ("queue", "name", "node_id"), most=MOST_ROWS)
    rows = [BucketRow(step, start, queue, name, node_id, 0, totals) for (queue, name, node_id), totals in sums]
    return RollupStep(write_buckets(connection, rows), end, end)


def purge_statistics(connection: Connection, step: int, age: float, limit: int = BATCH) -> int:
    """Delete rows of a step that are older than so many seconds."""
    return purge_step(connection, statistics, step, age, limit)


def latest_bucket(step: int) -> sa.ScalarSelect[datetime]:
    """When the newest bucket of a step begins: one entry of the primary key."""
    at = statistics.c.at
    return sa.select(at).where(statistics.c.step == step).order_by(at.desc()).limit(1).scalar_subquery()
