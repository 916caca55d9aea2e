"""Conditions on rows of `tasks`, in the form that each database's indexes need.

PostgreSQL and SQLite have partial indexes, which they use for statements that repeat the index's condition. On MySQL an
index holds all rows; there generated columns stand for the conditions, null in rows that the index is not for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression
from sqlalchemy.sql.visitors import InternalTraversal

from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import ASIDE, ASIDE_ORDER, DUE, tasks
from peerd.store.schema.types import MYSQL


def status_is(*statuses: Status) -> sa.ColumnElement[bool]:
    """The status is one of these.

    As literals: with a bound parameter PostgreSQL's generic plans and SQLite cannot use a partial index.
    """
    literals = [sa.literal_column(f"'{status}'", sa.Text()) for status in statuses]
    return tasks.c.status == literals[0] if len(literals) == 1 else tasks.c.status.in_(literals)


class _by_database(expression.ColumnElement[Any]):  # noqa: N801 - it reads as an expression
    """One expression on MySQL, another one elsewhere."""

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


class PendingKind:
    """One of the two kinds of pending tasks, and the index by which they are found.

    Args:
        index: its name.
        on_mysql: the column that holds the queue in rows of this kind, and nothing in others.
        elsewhere: the condition of this kind.
    """

    def __init__(self, index: str, on_mysql: sa.Column[Any], elsewhere: sa.ColumnElement[bool]) -> None:
        self.index = index
        self._on_mysql = on_mysql
        self._elsewhere = sa.and_(status_is(Status.PENDING), elsewhere)
        self.queue = _by_database(on_mysql=on_mysql, elsewhere=tasks.c.queue)
        """The queue of such a task."""

    def where(self, test: Callable[[sa.ColumnElement[str]], sa.ColumnElement[bool]]) -> sa.ColumnElement[bool]:
        """That a task is of this kind, and its queue meets a test."""
        elsewhere = sa.and_(self._elsewhere, test(tasks.c.queue))
        return _by_database(on_mysql=test(self._on_mysql), elsewhere=elsewhere)

    def of(self, queue: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
        """That a task is of this kind, in this queue."""
        return self.where(lambda column: column == queue)


PENDING_WITHOUT_KEY: Final = PendingKind("tasks_claim", tasks.c.claim_queue, tasks.c.limit_key.is_(None))
PENDING_WITH_KEY: Final = PendingKind("tasks_turns", tasks.c.turn_queue, tasks.c.limit_key.is_not(None))


def is_working() -> sa.ColumnElement[bool]:
    """It is working: by `tasks_claim` on MySQL, by `tasks_working` elsewhere."""
    return _by_database(on_mysql=tasks.c.claim_queue == sa.literal_column("''"), elsewhere=status_is(Status.WORKING))


def is_waiting_as(status: Status) -> sa.ColumnElement[bool]:
    """It is scheduled or a failure, and waits for its time: by `tasks_due`."""
    elsewhere = sa.and_(sa.text(DUE), status_is(status))
    return _by_database(on_mysql=tasks.c.waiting_as == sa.literal_column(f"'{status}'"), elsewhere=elsewhere)


def is_aside(status: Status, queue: sa.ColumnElement[str] | None = None) -> sa.ColumnElement[bool]:
    """It is scheduled, a failure, waiting or buried, in a queue or in any: by `tasks_aside`."""
    prefix: sa.ColumnElement[str] = sa.literal_column(f"'{status} '", sa.Text())
    elsewhere = sa.and_(status_is(status), sa.text(ASIDE))  # in this order: by the second alone, SQLite would sort
    if queue is None:
        after: sa.ColumnElement[str] = sa.literal_column(f"'{status}!'", sa.Text())
        on_mysql = sa.and_(tasks.c.aside_queue > prefix, tasks.c.aside_queue < after)
        return _by_database(on_mysql=on_mysql, elsewhere=elsewhere)
    on_mysql = tasks.c.aside_queue == sa.func.concat(prefix, queue)
    return _by_database(on_mysql=on_mysql, elsewhere=sa.and_(elsewhere, tasks.c.queue == queue))


def aside_order() -> tuple[sa.ColumnElement[Any], ...]:
    """The order of `tasks_aside` within one status of one queue."""
    return (_nulls_first(tasks.c.buried_order), *ASIDE_ORDER[1:])


class _nulls_first(expression.ColumnElement[Any]):  # noqa: N801 - it reads as an expression
    """A column to order by, nulls first on every database."""

    inherit_cache = True
    _traverse_internals = [("column", InternalTraversal.dp_clauseelement)]  # noqa: RUF012 - SQLAlchemy's own shape

    def __init__(self, column: sa.ColumnElement[Any]) -> None:
        self.column = column
        self.type = column.type


@compiles(_nulls_first)
def _compile_nulls_first(element: _nulls_first, compiler: Any, **options: Any) -> str:
    text = str(compiler.process(element.column, **options))
    return f"{text} NULLS FIRST" if compiler.dialect.name == "postgresql" else text


def is_pending_too_early(moment: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """It is pending although its start_at is after a moment: by `tasks_due` on MySQL, by `tasks_ahead` elsewhere."""
    pending: sa.ColumnElement[str] = sa.literal_column(f"'{Status.PENDING}'")
    elsewhere = sa.and_(status_is(Status.PENDING), tasks.c.start_at.is_not(None), tasks.c.start_at > moment)
    return _by_database(on_mysql=sa.and_(tasks.c.waiting_as == pending, tasks.c.due_at > moment), elsewhere=elsewhere)


def is_closing_as(status: Status) -> sa.ColumnElement[bool]:
    """It has this status, and a time at which its row may be deleted: by `tasks_closing`."""
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
