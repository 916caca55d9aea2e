"""Walks through an index of `tasks`, some entries at a time, each step from the last entry of the one before.

The entries behind one are found span by span, because a comparison of whole rows is a range for PostgreSQL only. In the
order (a, b, id), behind (1, 2, 3) are first those with a = 1, b = 2, id > 3; then those with a = 1, b > 2; then those
with a > 1. Each span is one range of the index. A place may have the first columns of the order only: behind (1, 2) is
what follows the last entry with a = 1 and b = 2, so that a walk can jump from one prefix to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.tables import CLAIM_ORDER, KEYED_CLAIM_ORDER, tasks
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PendingKind, by_index

Values = tuple[Any, ...]
"""Of the columns of an order, or of the first ones of them."""


class IndexSection(msgspec.Struct, frozen=True):
    """Entries of an index that meet a condition, in the order of its columns, of which the last one is the id."""

    condition: sa.ColumnElement[bool] | None
    index: str
    order: tuple[sa.Column[Any], ...]
    descending: bool = False


def pending_section(kind: PendingKind, queue: str) -> IndexSection:
    """The pending tasks of a queue and a kind, as claims take them: those for one node behind those for any."""
    order = KEYED_CLAIM_ORDER if kind is PENDING_WITH_KEY else (tasks.c.lane, *CLAIM_ORDER)
    return IndexSection(kind.of(queue), kind.index, order)


def entries_behind(
    connection: Connection, section: IndexSection, values: Values, most: int, *columns: sa.ColumnElement[Any]
) -> list[Values]:
    """The next entries of a section.

    Args:
        connection: of any transaction.
        section: the entries.
        values: of the entry, or of the prefix, behind which they are; empty: from the beginning.
        most: entries at the most.
        columns: what is read; without them, the columns of the order.
    """
    direction = sa.desc if section.descending else sa.asc
    read = sa.select(*(columns or section.order)).order_by(*map(direction, section.order))
    found: list[Values] = []
    for span in _spans(section, values):
        conditions = span if section.condition is None else [section.condition, *span]
        statement = by_index(read.where(*conditions), section.index).limit(most - len(found))
        found += [tuple(row) for row in connection.execute(statement)]
        if len(found) >= most:
            break
    return found


def _spans(section: IndexSection, values: Values) -> Iterator[list[sa.ColumnElement[bool]]]:
    """The ranges of an index that are behind an entry, in its order; the whole section if there is no entry."""
    if not values:
        yield []
    for level in reversed(range(len(values))):
        column, value = section.order[level], values[level]
        behind = column < value if section.descending else column > value
        yield [*(column == value for column, value in zip(section.order[:level], values, strict=False)), behind]
