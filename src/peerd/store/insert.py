"""Inserting rows of tasks that are alike: one statement for many, in the fastest way of each database.

A value that all rows have in common is given once, and a column in which all have its default is not named at all. So a
thousand tasks of one handler are little more than their bodies.

- PostgreSQL: one value for each column, and a list for each column in which the rows differ.
- SQLite: the same statement again for each row, in one transaction; nothing is sent anywhere between them.
- MariaDB and MySQL: one INSERT of many rows, the text of one row repeated. SQLAlchemy would compile each of the rows
  (half a second for a thousand), PyMySQL would send them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from peerd.domain.lifecycle import Status
from peerd.domain.task import DEFAULT_PRIORITY, NewTask
from peerd.store.connection.mysql import IS_MEMBER
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import Instant, moment, now, seconds_from_now
from peerd.store.statements import NAMED_PLACEHOLDER, CompiledStatement, DriverConnection, new_token
from peerd.store.tasks.conditions import select_by_id
from peerd.store.tasks.rows import status_literal

INSTANT: Final = Instant()
DEFAULTS: Final[Mapping[str, Any]] = {"name": "", "priority": DEFAULT_PRIORITY}
"""Defaults of columns that an insert does not name; those of the others are null."""
TIME_PARAMETERS: Final = {
    "starts_in": sa.Double(),
    "starts_at": INSTANT,
    "finishes_in": sa.Double(),
    "finishes_at": INSTANT,
}
"""Values that columns are made of, and their types."""
TASK_ATTRIBUTES: Final = {
    "node_id": "node",
    "starts_in": "start_in",
    "starts_at": "start_at",
    "finishes_in": "finish_in",
    "finishes_at": "finish_at",
}
"""Attributes of a task whose values have another name here."""
TEXTS: Final = ("queue", "name", "body", "body_bytes", "unique_key", "limit_key", "trace_context")
NUMBERS: Final = ("priority", "max_attempts", "timeout", "ttr", "delay")
GETTERS: Final = {name: attrgetter(TASK_ATTRIBUTES.get(name, name)) for name in (*TEXTS, *NUMBERS, *TASK_ATTRIBUTES)}

Names = tuple[str, ...]


class InsertValues(NamedTuple):
    """The values of many rows, by their names: common to all, or differing. Defaults of all rows are in neither."""

    number: int
    common: dict[str, Any]
    differing: dict[str, Sequence[Any]]

    @property
    def names(self) -> Names:
        """The names of all columns, in an order that is always the same."""
        return tuple(name for name in GETTERS if name in self.common or name in self.differing)


def insert_many(connection: Connection, new: Sequence[NewTask], node_ids: Mapping[str, int]) -> Sequence[int]:
    """Insert one task or more that have the same kinds of times; their ids in the same order."""
    if len(new) == 1:
        return [insert_one(connection, new[0], node_ids)]
    values = _values_of_many(new, node_ids, connection.dialect)
    match connection.dialect.name:
        case "postgresql":
            return _on_postgresql(connection, values)
        case "sqlite":
            return _on_sqlite(connection, values)
        case _:
            return _on_mysql(connection, values)


def insert_one(connection: Connection | DriverConnection, new: NewTask, node_ids: Mapping[str, int]) -> int:
    """Insert a task; its id."""
    given = {name: value for name, of in GETTERS.items() if (value := of(new)) != DEFAULTS.get(name)}
    values = {name: _for_driver(name, value, node_ids, connection.dialect) for name, value in given.items()}
    returning = connection.dialect.name == "postgresql"
    inserted = _insert_one(tuple(values), returning=returning).run(connection, **values)
    task_id: int = inserted.scalar_one() if returning else inserted.lastrowid
    return task_id


def _values_of_many(new: Sequence[NewTask], node_ids: Mapping[str, int], dialect: Dialect) -> InsertValues:
    common: dict[str, Any] = {}
    differing: dict[str, Sequence[Any]] = {}
    for name, of in GETTERS.items():
        column = [of(task) for task in new]
        first = column[0]
        if column.count(first) != len(column):
            differing[name] = [_for_driver(name, value, node_ids, dialect) for value in column]
        elif first != DEFAULTS.get(name):
            common[name] = _for_driver(name, first, node_ids, dialect)
    return InsertValues(len(new), common, differing)


def _for_driver(name: str, value: Any, node_ids: Mapping[str, int], dialect: Dialect) -> Any:
    if name == "node_id" and value is not None:
        return node_ids[value]
    return INSTANT.process_bind_param(value, dialect) if isinstance(value, datetime) else value


def _on_mysql(connection: Connection, values: InsertValues) -> Sequence[int]:
    """The driver returns the first id; the others are found by a token, which only these rows carry.

    Ids of one statement follow each other without gaps on one server in one mode only, so that is verified by counting.
    """
    token, number = new_token(), values.number
    common = values.common | {"claim_token": token}
    template = _insert_template(connection.dialect, (*values.names, "claim_token"))
    literal = _literals(connection)
    known = {name: text for name, value in common.items() if (text := literal(value)) is not None}
    row = template.row(known)
    columns = [values.differing.get(name) or [common[name]] * number for name in template.names if name not in known]
    given = tuple(columns[0]) if len(columns) == 1 else tuple(chain.from_iterable(zip(*columns, strict=True)))
    first: int = connection.exec_driver_sql(template.head + ", ".join([row] * number), given).lastrowid
    last = first + number - 1
    if _COUNT_BY_TOKEN.run(connection, first=first, last=last, token=token).scalar_one() == number:
        return range(first, last + 1)
    return _IDS_BY_TOKEN.run(connection, first=first, token=token, number=number).scalars().all()


def _on_postgresql(connection: Connection, values: InsertValues) -> Sequence[int]:
    given, differing = values.common | values.differing, tuple(values.differing)
    if not differing:
        differing = ("queue",)
        given["queue"] = [given["queue"]] * values.number
    if _is_json(differing):
        given[differing[0]] = msgspec.json.encode(given[differing[0]], enc_hook=str.__str__).decode()
    ids: list[int] = _insert_from_arrays(values.names, differing).run(connection, **given).scalar_one()
    return sorted(ids)


def _on_sqlite(connection: Connection, values: InsertValues) -> Sequence[int]:
    """There is one writer at a time, and ids only grow: those of one transaction's rows follow each other."""
    number = values.number
    template = _insert_template(connection.dialect, values.names)
    columns = [values.differing.get(name) or [values.common[name]] * number for name in template.names]
    connection.exec_driver_sql(template.head + template.row({}), list(zip(*columns, strict=True)))
    last: int = connection.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
    return range(last - number + 1, last + 1)


def _literals(connection: Connection) -> Callable[[Any], str | None]:
    """How MySQL's driver writes a value into a text with placeholders; None for a value that keeps its placeholder.

    Only of peerd's own connections it is known which driver they have, and that it speaks UTF-8.
    """
    if IS_MEMBER not in connection.info:
        return lambda _: None
    cursor: Any = connection.connection.cursor()

    def literal(value: Any) -> str | None:
        return cursor.mogrify("%s", (value,)).replace("%", "%%") if isinstance(value, str | int | float) else None

    return literal


def _columns(names: Names, place: Callable[[str], sa.ColumnElement[Any]]) -> dict[str, Any]:
    """The columns of an INSERT, with a placeholder for each value.

    A start time ahead makes a scheduled task; whether it is ahead is decided by the database's clock.
    """
    values: dict[str, Any] = {name: place(name) for name in names if name not in TIME_PARAMETERS}
    if "starts_in" in names:
        values["start_at"] = seconds_from_now(place("starts_in"))
        values["status"] = _scheduled_if(place("starts_in") > sa.literal_column("0"))
    if "starts_at" in names:
        values["start_at"] = place("starts_at")
        values["status"] = _scheduled_if(moment(place("starts_at")) > now())
    if "finishes_in" in names:
        values["finish_at"] = seconds_from_now(place("finishes_in"))
    if "finishes_at" in names:
        values["finish_at"] = place("finishes_at")
    return values


def _scheduled_if(is_ahead: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.case((is_ahead, status_literal(Status.SCHEDULED)), else_=status_literal(Status.PENDING))


def _type_of(name: str) -> sa.types.TypeEngine[Any]:
    return TIME_PARAMETERS[name] if name in TIME_PARAMETERS else tasks.c[name].type


def _parameter(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=_type_of(name))


@lru_cache(maxsize=256)
def _insert_one(names: Names, *, returning: bool) -> CompiledStatement:
    """A row, and its id where it is returned; else the driver knows it."""
    insert = sa.insert(tasks).values(_columns(names, _parameter))
    return CompiledStatement(insert.returning(tasks.c.id) if returning else insert.inline())


@lru_cache(maxsize=256)
def _insert_from_arrays(names: Names, differing: Names) -> CompiledStatement:
    """Many rows, and an array of their ids: of some values a list, see `_is_json`, of the others one for all."""
    if _is_json(differing):
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - where it is used, it is loaded anyway

        listed = sa.func.json_array_elements_text(sa.cast(sa.bindparam(differing[0]), postgresql.JSON))
    else:
        arrays = [sa.cast(sa.bindparam(name), sa.ARRAY(_type_of(name))) for name in differing]
        listed = sa.func.unnest(*arrays)
    given = listed.table_valued(*differing, with_ordinality="place", name="given").render_derived()
    columns = _columns(
        names, lambda name: given.c[name] if name in differing else sa.cast(_parameter(name), _type_of(name))
    )
    chosen = sa.select(*columns.values()).order_by(given.c.place)
    insert = sa.insert(tasks).from_select(list(columns), chosen, include_defaults=False)
    inserted = insert.returning(tasks.c.id).cte("inserted")
    return CompiledStatement(sa.select(sa.func.array_agg(inserted.c.id)))


def _is_json(differing: Names) -> bool:
    """Whether the list is given as one JSON text: where only one text differs, as in a thousand tasks of one handler.

    psycopg makes an array in Python, which takes as long as the server needs for the whole of the insert.
    """
    return len(differing) == 1 and isinstance(_type_of(differing[0]), sa.Text)


class InsertTemplate(NamedTuple):
    """An INSERT of one row: the text before the row, the row's text between its placeholders, and their names."""

    head: str
    pieces: tuple[str, ...]
    names: Sequence[str]
    placeholder: str

    def row(self, known: Mapping[str, str]) -> str:
        """The row's text, in which these values are known already, as SQL."""
        pieces = zip(self.names, self.pieces[1:], strict=True)
        return self.pieces[0] + "".join([known.get(name, self.placeholder) + piece for name, piece in pieces])


def _insert_template(dialect: Dialect, names: Names) -> InsertTemplate:
    text = _insert_one(names, returning=False).text(dialect)
    head, values, row = text.sql.partition(" VALUES ")
    order, placeholder = text.order, "?" if dialect.paramstyle == "qmark" else "%s"
    if order is None:  # a driver that names its placeholders
        order = NAMED_PLACEHOLDER.findall(row)
        row = NAMED_PLACEHOLDER.sub(placeholder, row)
    return InsertTemplate(head + values, tuple(row.split(placeholder)), order, placeholder)


_FIRST: Final[sa.BindParameter[int]] = sa.bindparam("first")
_HAS_TOKEN: Final = tasks.c.claim_token == sa.bindparam("token")
_RANGE: Final = tasks.c.id.between(_FIRST, sa.bindparam("last"))
_COUNT_BY_TOKEN: Final = CompiledStatement(
    select_by_id(sa.select(sa.func.count()).select_from(tasks).where(_RANGE, _HAS_TOKEN))
)
_IDS_BY_TOKEN: Final = CompiledStatement(
    select_by_id(sa.select(tasks.c.id).where(tasks.c.id >= _FIRST, _HAS_TOKEN))
    .order_by(tasks.c.id)  # which is the order of their insert
    .limit(sa.bindparam("number", type_=sa.Integer()))
)
