"""Reading buckets: sums of their columns, grouped by what is asked for. No task is read for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, Final, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.errors import InvalidFilter
from peerd.store.schema.tables import statistics
from peerd.store.statistics.buckets import COUNTERS, totals_of
from peerd.store.statistics.steps import Tile, bucket_start

Dimension = Literal["at", "queue", "name", "node_id", "process_id"]
"""A column by which attempts are grouped."""
MOST_GROUPS: Final = 5_000
"""Groups that are read at the most, so that a question cannot fill the memory of a process."""


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
) -> Iterator[tuple[tuple[Any, ...], AttemptTotals]]:
    """The attempts of each group that has any: the values of its columns, and their totals, in the order of the values.

    Args:
        connection: of any transaction.
        tile: the time, and the step of the rows.
        by: the columns by which they are grouped; none: all are one group.
        wanted: which buckets.
        most: groups at the most; the first ones.
    """
    given = {name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not None}
    statement = _sum_statement(tuple(by), tuple(given))
    parameters = {"step": tile.step, "since": tile.since, "until": tile.until, "most": most, **given}
    for row in connection.execute(statement, parameters):
        if row[len(by)] is not None:  # the sum over no rows at all
            yield tuple(row[: len(by)]), totals_of(row[len(by) :])


def sum_tiles(
    connection: Connection,
    parts: Sequence[Tile],
    by: Sequence[Dimension],
    filters: Iterable[BucketFilter] = (EVERYTHING,),
) -> dict[tuple[Any, ...], AttemptTotals]:
    """The same over several parts of a span. A group's ``at`` is in the step of the first part.

    Args:
        connection: of any transaction.
        parts: of the span.
        by: the columns by which they are grouped.
        filters: the buckets that are read meet one of these; none of them meets two.

    Raises:
        InvalidFilter: there are more groups than `MOST_GROUPS`.
    """
    found: dict[tuple[Any, ...], AttemptTotals] = {}
    for tile, wanted in product(parts, filters):
        for read, totals in sum_buckets(connection, tile, by, wanted, MOST_GROUPS + 1):
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


@lru_cache(maxsize=64)
def _sum_statement(by: tuple[Dimension, ...], filters: tuple[str, ...]) -> sa.Select[Any]:
    """Sums as numbers of the database's own: MySQL would send decimals, which take long to read."""
    columns = statistics.c
    keys = [columns[name] for name in by]
    sums = [
        sa.func.sum(column)
        if isinstance(column.type, sa.Double)
        else sa.cast(sa.func.sum(column), sa.BigInteger).label(column.name)
        for column in (columns[name] for name in COUNTERS)
    ]
    is_within = (
        columns.step == sa.bindparam("step", type_=sa.Integer()),
        columns.at >= sa.bindparam("since", type_=columns.at.type),
        columns.at < sa.bindparam("until", type_=columns.at.type),
    )
    wanted = (columns[name] == sa.bindparam(name, type_=columns[name].type) for name in filters)
    statement = sa.select(*keys, *sums).where(*is_within, *wanted)
    if keys:
        statement = statement.group_by(*keys).order_by(*keys)
    return statement.limit(sa.bindparam("most", type_=sa.Integer()))
