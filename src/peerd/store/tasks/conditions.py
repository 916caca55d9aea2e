"""Conditions on rows of `tasks`, in the form that each database's indexes need.

PostgreSQL and SQLite have partial indexes, which they use for statements that repeat the index's condition. On MySQL an
index holds all rows; there generated columns stand for the conditions, null in rows that the index is not for.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression
from sqlalchemy.sql.visitors import InternalTraversal

from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import ASIDE, ASIDE_ORDER, CLAIM_ORDER, DUE, KEYED_CLAIM_ORDER, tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements import ByDatabase

NO_NAME: Final[sa.ColumnElement[str]] = sa.literal_column("''", sa.Text())
"""Before the name of any queue."""
ONE: Final[sa.ColumnElement[int]] = sa.literal_column("1", sa.Integer())


def status_is(*statuses: Status) -> sa.ColumnElement[bool]:
    """The status is one of these.

    As literals: with a bound parameter PostgreSQL's generic plans and SQLite cannot use a partial index.
    """
    literals = [sa.literal_column(f"'{status}'", sa.Text()) for status in statuses]
    return tasks.c.status == literals[0] if len(literals) == 1 else tasks.c.status.in_(literals)


class _by_database(expression.ColumnElement[Any]):  # noqa: N801 - it reads as an expression
    """An expression on MySQL, another one elsewhere."""

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012 - SQLAlchemy's own shape
        ("on_mysql", InternalTraversal.dp_clauseelement),
        ("elsewhere", InternalTraversal.dp_clauseelement),
    ]

    def __init__(self, *, on_mysql: sa.ColumnElement[Any], elsewhere: sa.ColumnElement[Any]) -> None:
        self.on_mysql = on_mysql
        self.elsewhere = elsewhere
        self.type = on_mysql.type

    @property
    def _from_objects(self) -> list[sa.FromClause]:
        return self.elsewhere._from_objects  # noqa: SLF001 - part of SQLAlchemy's protocol of expressions

    def self_group(self, against: Any = None) -> Any:
        return self


@compiles(_by_database)
def _compile(element: _by_database, compiler: Any, **options: Any) -> str:
    chosen = element.on_mysql if compiler.dialect.name in MYSQL else element.elsewhere
    text = compiler.process(chosen, **options)
    return f"({text})" if isinstance(chosen, sa.BooleanClauseList) else str(text)


class _nulls_first(ByDatabase[Any]):  # noqa: N801 - it reads as an expression
    """A column to order by, nulls first on every database."""

    postgresql = "{0} NULLS FIRST"
    sqlite = "{0}"
    mysql = "{0}"


class TaskKind:
    """A kind of unfinished tasks that an index holds by their queue: pending ones, or those set aside in a status.

    Args:
        status: of such a task.
        index: its name.
        order: the columns behind the queue by which it is ordered.
        key: the column of MySQL that holds the queue in rows of this kind, behind a prefix.
        condition: of this kind, elsewhere, beside the status.
        prefix: '' where the column holds the queue alone.
    """

    def __init__(
        self,
        status: Status,
        index: str,
        order: tuple[sa.ColumnElement[Any], ...],
        key: sa.Column[Any],
        condition: sa.ColumnElement[bool] | sa.TextClause,
        prefix: str = "",
    ) -> None:
        self.status = status
        self.index = index
        self.order = order
        self._key = key
        self._elsewhere = sa.and_(status_is(status), condition)  # by the second alone, SQLite would sort tasks aside
        self._prefix = prefix
        name = sa.func.substr(key, len(prefix) + 1, type_=sa.Text()) if prefix else key
        self.queue = _by_database(on_mysql=name, elsewhere=tasks.c.queue)
        """The queue of such a task."""

    def of(self, queue: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
        """A task is of this kind, in this queue."""
        elsewhere = sa.and_(self._elsewhere, tasks.c.queue == queue)
        return _by_database(on_mysql=self._key == self._prefixed(queue), elsewhere=elsewhere)

    def behind(self, queue: sa.ColumnElement[str] = NO_NAME) -> sa.ColumnElement[bool]:
        """A task is of this kind, in a queue whose name is behind this one; by default, in any queue."""
        on_mysql: sa.ColumnElement[bool] = self._key > self._prefixed(queue)
        if self._prefix:
            on_mysql = sa.and_(on_mysql, self._key < sa.literal_column(f"'{self._prefix[:-1]}!'", sa.Text()))
        return _by_database(on_mysql=on_mysql, elsewhere=sa.and_(self._elsewhere, tasks.c.queue > queue))

    def first(self, queue: str | sa.ColumnElement[str], *columns: Any, limit: Any = ONE) -> sa.Select[Any]:
        """Columns of the first such tasks of a queue.

        In the order of the index: without an order, PostgreSQL may scan the table for the first rows.
        """
        found = sa.select(*columns).where(self.of(queue)).order_by(*self.order).limit(limit)
        return by_index(found, self.index)

    def first_queue(self, after: sa.ColumnElement[str] = NO_NAME) -> sa.Select[Any]:
        """The first queue behind a name that has such tasks: a step in the index, however many tasks there are."""
        in_index = _by_database(on_mysql=self._key, elsewhere=tasks.c.queue)
        return by_index(sa.select(self.queue).where(self.behind(after)).order_by(in_index), self.index).limit(ONE)

    def _prefixed(self, queue: Any) -> Any:
        return sa.func.concat(sa.literal_column(f"'{self._prefix}'", sa.Text()), queue) if self._prefix else queue


PENDING_WITHOUT_KEY: Final = TaskKind(
    Status.PENDING, "tasks_claim", (tasks.c.lane, *CLAIM_ORDER), tasks.c.claim_queue, tasks.c.limit_key.is_(None)
)
PENDING_WITH_KEY: Final = TaskKind(
    Status.PENDING, "tasks_turns", KEYED_CLAIM_ORDER, tasks.c.turn_queue, tasks.c.limit_key.is_not(None)
)
PENDING_KINDS: Final = (PENDING_WITHOUT_KEY, PENDING_WITH_KEY)
_ORDER_ASIDE: Final = (_nulls_first(tasks.c.buried_order), *ASIDE_ORDER[1:])
ASIDE_KINDS: Final = {
    status: TaskKind(status, "tasks_aside", _ORDER_ASIDE, tasks.c.aside_queue, sa.text(ASIDE), prefix=f"{status} ")
    for status in (Status.SCHEDULED, Status.FAILURE, Status.WAITING, Status.BURIED)
}
UNFINISHED_KINDS: Final = (*PENDING_KINDS, *ASIDE_KINDS.values())
"""All but the working tasks."""


def is_working() -> sa.ColumnElement[bool]:
    """A task is working: by `tasks_claim` on MySQL, by `tasks_working` elsewhere."""
    return _by_database(on_mysql=tasks.c.claim_queue == sa.literal_column("''"), elsewhere=status_is(Status.WORKING))


def is_waiting_as(status: Status) -> sa.ColumnElement[bool]:
    """A task is scheduled or a failure, and waits for its time: by `tasks_due`."""
    elsewhere = sa.and_(sa.text(DUE), status_is(status))
    return _by_database(on_mysql=tasks.c.waiting_as == sa.literal_column(f"'{status}'"), elsewhere=elsewhere)


def is_pending_too_early(moment: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """A task is pending, and starts after a moment: by `tasks_due` on MySQL, by `tasks_ahead` elsewhere."""
    pending: sa.ColumnElement[str] = sa.literal_column(f"'{Status.PENDING}'")
    elsewhere = sa.and_(status_is(Status.PENDING), tasks.c.start_at.is_not(None), tasks.c.start_at > moment)
    return _by_database(on_mysql=sa.and_(tasks.c.waiting_as == pending, tasks.c.due_at > moment), elsewhere=elsewhere)


def is_closing_as(status: Status) -> sa.ColumnElement[bool]:
    """A task has this status, and a time at which its row may be deleted: by `tasks_closing`."""
    elsewhere = sa.and_(status_is(status), tasks.c.closing_at.is_not(None))
    return _by_database(on_mysql=tasks.c.closing_as == sa.literal_column(f"'{status}'"), elsewhere=elsewhere)


def by_index(statement: sa.Select[Any], index: str, table: sa.Table = tasks) -> sa.Select[Any]:
    """Read by an index of a table on MySQL, where the optimiser's choice depends on the table's other rows."""
    for dialect in MYSQL:
        statement = statement.with_hint(table, f"FORCE INDEX ({index})", dialect)
    return statement


def select_by_id(statement: sa.Select[Any]) -> sa.Select[Any]:
    """Read by primary key: MySQL's optimiser may otherwise walk, and lock, an index with a changing column."""
    return by_index(statement, "PRIMARY")


def update_by_id(statement: sa.Update) -> sa.Update:
    """Write by primary key, as `select_by_id` reads."""
    for dialect in MYSQL:
        statement = statement.with_hint("FORCE INDEX (PRIMARY)", dialect_name=dialect)
    return statement
