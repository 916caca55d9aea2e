"""Inserting rows of tasks that are alike: one statement for many, in the way that each database takes soonest.

What all of them have in common is given once, and a column in which all have its default is not named at all. So a
thousand tasks of one handler are little more than their bodies.

- PostgreSQL: arrays, one for each column that differs; the driver need not write a place for each value.
- SQLite: the same statement again for each row, in one transaction; nothing is sent anywhere between them.
- MariaDB and MySQL: one INSERT of many rows, the text of one row repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Dialect

from peerd.domain.lifecycle import Status
from peerd.domain.task import DEFAULT_PRIORITY, NewTask
from peerd.store.clock import now, seconds_from_now
from peerd.store.prepared import Prepared, kind_of
from peerd.store.rows import becomes
from peerd.store.search import select_by_id
from peerd.store.tables import tasks
from peerd.store.types import MYSQL, Instant

INSTANT: Final = Instant()
NAMED_PLACE: Final = re.compile(r"%\((\w+)\)s")
DEFAULTS: Final[Mapping[str, Any]] = {
    "name": "",
    "body": None,
    "body_bytes": None,
    "priority": DEFAULT_PRIORITY,
    "max_attempts": None,
    "node_id": None,
    "timeout": None,
    "unique_key": None,
    "limit_key": None,
    "trace_context": None,
}
"""What stands in a column that an insert does not name."""
TIMES: Final = {"starts_in": sa.Double(), "starts_at": INSTANT, "finishes_in": sa.Double(), "finishes_at": INSTANT}
"""Values of which columns are made, and their types."""

Row = Mapping[str, Any]
Names = tuple[str, ...]


def insert_alike(connection: Connection, rows: Sequence[Row], token: int) -> Sequence[int]:
    """Insert rows that give the same times, each in the same way; their ids in the same order.

    Args:
        connection: in a transaction.
        rows: from `row_of`.
        token: a number that no other row of the table has as its claim_token.
    """
    if connection.dialect.name in MYSQL:
        return _on_mysql(connection, rows, token)
    return _on_postgresql(connection, rows) if connection.dialect.name == "postgresql" else _on_sqlite(connection, rows)


def row_of(task: NewTask, node_ids: Mapping[str, int], token: int) -> Row:
    """The values of a task: columns as they are given, and what `TIMES` are made of."""
    columns = {
        "queue": task.queue,
        "name": task.name,
        "body": task.body,
        "body_bytes": task.body_bytes,
        "priority": task.priority,
        "max_attempts": task.max_attempts,
        "node_id": None if task.node is None else node_ids[task.node],
        "timeout": task.timeout,
        "unique_key": task.unique_key,
        "limit_key": task.limit_key,
        "trace_context": task.trace_context,
        "claim_token": token,
    }
    moments = zip(TIMES, (task.start_in, task.start_at, task.finish_in, task.finish_at), strict=True)
    return columns | {name: value for name, value in moments if value is not None}


def _on_mysql(connection: Connection, rows: Sequence[Row], token: int) -> Sequence[int]:
    """The first id is told; the others are found by the token, which only these rows carry.

    That ids of one statement follow each other without gaps is true of one server in one mode; nothing here needs it.
    """
    names = _named(rows)
    head, row, places = _parts(connection.dialect, names)
    given = tuple([_for_driver(one[name], connection.dialect) for one in rows for name in places])
    first: int = connection.exec_driver_sql(head + ", ".join([row] * len(rows)), given).lastrowid
    if len(rows) == 1:
        return [first]
    mine = _of_token().run(connection, first=first, token=token, number=len(rows))
    return mine.scalars().all()


def _on_postgresql(connection: Connection, rows: Sequence[Row]) -> Sequence[int]:
    names = _named(rows)
    differing = tuple(name for name in names if any(one[name] != rows[0][name] for one in rows))
    if not differing:
        differing = ("queue",)
    given = {name: [one[name] for one in rows] if name in differing else rows[0][name] for name in names}
    return sorted(_from_arrays(names, differing).run(connection, **given).scalars())


def _on_sqlite(connection: Connection, rows: Sequence[Row]) -> Sequence[int]:
    """There is one writer at a time, and ids only grow: those of one transaction's rows follow each other."""
    names = _named(rows)
    given = [{name: _for_driver(one[name], connection.dialect) for name in names} for one in rows]
    insert = _one(names)
    if len(given) == 1:
        return [insert.run(connection, **given[0]).lastrowid]
    insert.run_for_each(connection, given)
    last: int = connection.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
    return range(last - len(given) + 1, last + 1)


def _named(rows: Sequence[Row]) -> Names:
    """The values that the rows do not have in common with every row that says nothing."""
    return tuple(name for name in rows[0] if name not in DEFAULTS or any(one[name] != DEFAULTS[name] for one in rows))


def _for_driver(value: Any, dialect: Dialect) -> Any:
    return INSTANT.process_bind_param(value, dialect) if isinstance(value, datetime) else value


def _columns(names: Names, place: Callable[[str], sa.ColumnElement[Any]]) -> dict[str, Any]:
    """What an INSERT says of each column, with a place for each value.

    Start times ahead make a scheduled task. Whether a moment is ahead is for the database's clock to say.
    """
    values: dict[str, Any] = {name: place(name) for name in names if name not in TIMES}
    if "starts_in" in names:
        values["start_at"] = seconds_from_now(place("starts_in"))
        values["status"] = _pending_unless(place("starts_in") > sa.literal_column("0"))
    if "starts_at" in names:
        values["start_at"] = place("starts_at")
        values["status"] = _pending_unless(sa.cast(place("starts_at"), INSTANT) > now())
    if "finishes_in" in names:
        values["finish_at"] = seconds_from_now(place("finishes_in"))
    if "finishes_at" in names:
        values["finish_at"] = place("finishes_at")
    return values


def _pending_unless(is_ahead: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.case((is_ahead, becomes(Status.SCHEDULED)), else_=becomes(Status.PENDING))


def _type_of(name: str) -> sa.types.TypeEngine[Any]:
    return TIMES[name] if name in TIMES else tasks.c[name].type


def _place(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=_type_of(name))


@lru_cache(maxsize=256)
def _one(names: Names) -> Prepared:
    return Prepared(sa.insert(tasks).inline().values(_columns(names, _place)))


@lru_cache(maxsize=256)
def _from_arrays(names: Names, differing: Names) -> Prepared:
    arrays = [sa.cast(sa.bindparam(name), postgresql.ARRAY(_type_of(name))) for name in differing]
    given = sa.func.unnest(*arrays).table_valued(*differing, with_ordinality="place", name="given").render_derived()
    columns = _columns(
        names, lambda name: given.c[name] if name in differing else sa.cast(_place(name), _type_of(name))
    )
    chosen = sa.select(*columns.values()).order_by(given.c.place)
    insert = sa.insert(tasks).from_select(list(columns), chosen, include_defaults=False)
    return Prepared(insert.returning(tasks.c.id))


@lru_cache(maxsize=1)
def _of_token() -> Prepared:
    """In the order of their ids, which is that of their insert."""
    carry = (tasks.c.id >= sa.bindparam("first"), tasks.c.claim_token == sa.bindparam("token"))
    mine = sa.select(tasks.c.id).where(*carry).order_by(tasks.c.id).limit(sa.bindparam("number", type_=sa.Integer()))
    return Prepared(select_by_id(mine))


@lru_cache(maxsize=1)
def _parts_made() -> dict[tuple[str, Names], tuple[str, str, Names]]:
    return {}


def _parts(dialect: Dialect, names: Names) -> tuple[str, str, Names]:
    """`_in_parts`, made once for each kind of dialect."""
    made, key = _parts_made(), (kind_of(dialect), names)
    if key not in made:
        made[key] = _in_parts(dialect, names)
    return made[key]


def _in_parts(dialect: Dialect, names: Names) -> tuple[str, str, Names]:
    """An INSERT of one row in two: what comes before the row, and the row; and the names of its places in order.

    SQLAlchemy would compile each of the rows (half a second for a thousand), PyMySQL would send them one by one.
    """
    insert = sa.insert(tasks).inline().values(_columns(names, _place))
    compiled = insert.compile(dialect=dialect)
    head, values, row = str(compiled).partition(" VALUES ")
    places = compiled.positiontup
    if places is None:  # a driver that names its places
        places = NAMED_PLACE.findall(row)
        row = NAMED_PLACE.sub("%s", row)
    return head + values, row, tuple(places)
