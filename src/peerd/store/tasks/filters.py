"""Filters of tasks, as conditions of SQL."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self

import msgspec
import sqlalchemy as sa
from msgspec import structs
from sqlalchemy.engine import Connection

from peerd.domain.column_condition import ColumnCondition, TimeFromNow, parse_conditions, parse_status
from peerd.domain.lifecycle import Status
from peerd.domain.task import EARLIEST, LATEST
from peerd.store.nodes import get_node_id
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.conditions import status_is

COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class TaskConditions(msgspec.Struct, frozen=True):
    """A filter of tasks; None does not filter.

    Args:
        queue: of this queue.
        name: of this handler.
        status: of this status.
        node_id: pinned to this node, or held by it, now or last.
        search: a part of the body or of the error, in any case.
        where: comparisons of columns; all of them hold.
        queues: of one of these queues.
    """

    queue: str | None = None
    name: str | None = None
    status: Status | None = None
    node_id: int | None = None
    search: str | None = None
    where: tuple[ColumnCondition, ...] = ()
    queues: tuple[str, ...] | None = None

    def restricted_to(self, queues: Collection[str] | None) -> Self:
        """The filter of tasks of these queues only; None: of all.

        >>> TaskConditions().restricted_to({"mail"}).queue, TaskConditions("mail").restricted_to({"video"}).queues
        ('mail', ('video',))
        """
        if queues is None:
            return self
        if self.queue is None and len(queues) == 1:  # the index of its pending tasks can be used
            [queue] = queues
            return structs.replace(self, queue=queue)
        return structs.replace(self, queues=tuple(sorted(queues)))

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """The conditions that such a task meets."""
        conditions = [] if self.status is None else [status_is(Status(self.status))]
        return [*conditions, *self.conditions_beside_status()]

    def conditions_beside_status(self) -> list[sa.ColumnElement[bool]]:
        """All conditions except the status, for rows of an index that holds one status only."""
        texts = ((tasks.c.queue, self.queue), (tasks.c.name, self.name))
        conditions: list[sa.ColumnElement[bool]] = [column == text for column, text in texts if text is not None]
        if self.queues is not None:
            conditions.append(tasks.c.queue.in_(self.queues))
        if self.node_id is not None:
            conditions.append(sa.or_(tasks.c.node_id == self.node_id, tasks.c.worker_node_id == self.node_id))
        conditions += map(_compare, self.where)
        if self.search is not None:  # the last one: it reads large columns
            columns = (tasks.c.error, tasks.c.body)
            conditions.append(sa.or_(*(column.icontains(self.search, autoescape=True) for column in columns)))
        return conditions


def resolve_filter(
    connection: Connection,
    *,
    queue: str | None = None,
    name: str | None = None,
    status: Status | str | None = None,
    node: str | None = None,
    search: str | None = None,
    where: Sequence[str] = (),
    queues: Collection[str] | None = None,
) -> TaskConditions:
    """The filter of these texts, with the id of its node, restricted to queues.

    Raises:
        InvalidFilter: no status, or no condition.
        NodeNotFound: no node has this name.
    """
    return TaskConditions(
        queue=queue,
        name=name,
        status=None if status is None else parse_status(status),
        node_id=None if node is None else get_node_id(connection, node),
        search=search,
        where=parse_conditions(where),
    ).restricted_to(queues)


def as_of(wanted: TaskConditions, moment: datetime) -> TaskConditions:
    """The filter with its times, which are relative to now, as those of a moment."""
    conditions = [
        structs.replace(condition, value=_clipped(moment, condition.value.seconds))
        if isinstance(condition.value, TimeFromNow)
        else condition
        for condition in wanted.where
    ]
    return structs.replace(wanted, where=tuple(conditions))


def _clipped(moment: datetime, seconds: float) -> datetime:
    return min(max(moment + timedelta(seconds=seconds), EARLIEST), LATEST - timedelta(seconds=1))


def _compare(condition: ColumnCondition) -> sa.ColumnElement[bool]:
    column = tasks.c[condition.column]
    match condition.value:
        case None:
            return column.is_(None) if condition.operator == "=" else column.is_not(None)
        case TimeFromNow(seconds):
            value: Any = seconds_from_now(seconds)
        case value:
            pass
    if condition.operator == "~":
        return column.icontains(value, autoescape=True)
    compared: sa.ColumnElement[bool] = COMPARISONS[condition.operator](column, value)
    return sa.or_(compared, column.is_(None)) if condition.operator == "!=" else compared
