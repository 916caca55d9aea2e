"""Reading buckets: sums of their columns, grouped by what is asked for. No task is read for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Final, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import OUTCOMES, AttemptTotals
from peerd.domain.errors import InvalidFilter
from peerd.store.schema.tables import statistics
from peerd.store.statistics.buckets import COUNTERS, totals_of
from peerd.store.statistics.steps import Tile, bucket_start

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
    """The same over several parts of a span. A group's ``at`` is in the step of the first part.

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
