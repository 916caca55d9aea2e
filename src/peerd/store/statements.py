"""Statements that run a thousand times in a second: compiled once, then given to the driver as they are.

At each execution SQLAlchemy finds a statement's text again by walking through all its parts, and processes each value
on its way in and out; that takes longer than the database needs for a small statement. Here only its compiler is used:
the text is made once for each kind of database, values go to the driver as they are, and rows come back as it made
them. The hot statements (claim, completion, insert) stay on this path because of that.

A process whose reply was lost finds the rows that it has written by a token.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar, overload
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.engine import Connection, CursorResult, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression

Value = TypeVar("Value")
NAMED_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")


class DriverResult:
    """The result of an executed cursor, with the names of SQLAlchemy's CursorResult."""

    __slots__ = ("_rows", "lastrowid", "rowcount")

    def __init__(self, cursor: Any) -> None:
        self._rows: Sequence[Sequence[Any]] = cursor.fetchall() if cursor.description is not None else ()
        self.lastrowid: int = getattr(cursor, "lastrowid", 0)  # psycopg has none
        self.rowcount: int = cursor.rowcount

    def all(self) -> Sequence[Sequence[Any]]:
        """All rows, as the driver makes them."""
        return self._rows

    def scalar_one(self) -> Any:
        """The one value."""
        [[value]] = self._rows
        return value


class DriverConnection:
    """A connection whose statements go to the driver without SQLAlchemy between.

    SQLAlchemy's connections, pool, errors and lost connections are used as they are; only its work around one execution
    is left out: the context and the result, which take longer than the database needs for one small statement.

    Args:
        connection: SQLAlchemy's; its caller has begun a transaction, or it commits each statement.
    """

    def __init__(self, connection: Connection) -> None:
        self.dialect = connection.dialect
        self._connection = connection

    def exec_driver_sql(self, sql: str, arguments: Any) -> DriverResult:
        """Execute a statement.

        Raises:
            DBAPIError: as from SQLAlchemy; a connection that was lost is given up.
        """
        driver: Any = self._connection.connection.dbapi_connection
        try:
            cursor = driver.cursor()
            cursor.execute(sql, arguments)
            result = DriverResult(cursor)
            cursor.close()
        except BaseException as error:  # noqa: BLE001 - SQLAlchemy raises it again, as its own error
            statement = sql if isinstance(error, self.dialect.loaded_dbapi.Error) else None
            # Only this private method applies an error to the connection, its pool and our listeners.
            self._connection._handle_dbapi_exception(error, statement, arguments, None, None)  # noqa: SLF001
        return result


class CompiledStatement:
    """A statement whose values all have names.

    Args:
        statement: of SQLAlchemy; values that it contains itself stay as they are.

    >>> from sqlalchemy import bindparam, create_engine, select
    >>> double = CompiledStatement(select(bindparam("number", type_=sa.Integer()) * 2))
    >>> with create_engine("sqlite://").connect() as connection:
    ...     double.run(connection, number=21).scalar_one()
    42
    """

    def __init__(self, statement: sa.sql.ClauseElement) -> None:
        self._statement = statement
        self._texts: WeakKeyDictionary[Dialect, CompiledText] = WeakKeyDictionary()

    @overload
    def run(self, connection: Connection, **values: Any) -> CursorResult[Any]: ...
    @overload
    def run(self, connection: DriverConnection, **values: Any) -> DriverResult: ...

    def run(self, connection: Connection | DriverConnection, **values: Any) -> CursorResult[Any] | DriverResult:
        """Execute it once."""
        text = self.text(connection.dialect)
        return connection.exec_driver_sql(text.sql, text.arguments(values))

    def text(self, dialect: Dialect) -> CompiledText:
        """The text of the statement, which depends on server, driver and placeholders (Django's connections differ)."""
        found = self._texts.get(dialect)
        if found is None:
            found = self._texts[dialect] = CompiledText(self._statement, dialect)
        return found


class CompiledText:
    """A statement as one driver takes it.

    Attributes:
        sql: its text.
        order: the names of its placeholders; None where the text names them.
    """

    def __init__(self, statement: sa.sql.ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        assert not compiled.post_compile_params, "a list of no fixed length is `id_in_list`"
        self.sql = str(compiled)
        self.order = compiled.positiontup
        self._own = {name: value.effective_value for name, value in compiled.binds.items() if not value.required}

    def arguments(self, values: Mapping[str, Any]) -> Any:
        """The values, and those that the statement contains itself, as the driver takes them."""
        given = {**self._own, **values}
        return given if self.order is None else tuple([given[name] for name in self.order])


def run_union(
    connection: DriverConnection, parts: Sequence[tuple[CompiledStatement, Mapping[str, Any]]]
) -> Sequence[Sequence[Any]]:
    """Run a union of statements that are compiled each by itself: together, hundreds would take a tenth of a second.

    Args:
        connection: to MariaDB or MySQL.
        parts: each with the values of its placeholders; it has no values of its own.
    """
    texts = [(_positional(statement, connection.dialect), values) for statement, values in parts]
    arguments = [values[name] for (_, names), values in texts for name in names]
    return connection.exec_driver_sql(" UNION ALL ".join([sql for (sql, _), _ in texts]), tuple(arguments)).all()


@lru_cache(maxsize=64)
def _positional(statement: CompiledStatement, dialect: Dialect) -> tuple[str, Sequence[str]]:
    """The text of a statement in brackets, its placeholders without names, and the names in order."""
    text = statement.text(dialect)
    order, sql = text.order, text.sql
    if order is None:
        order, sql = NAMED_PLACEHOLDER.findall(sql), NAMED_PLACEHOLDER.sub("%s", sql)
    return f"({sql})", order


# ---------------------------------------------------------------- parts of statements


class ByDatabase(expression.FunctionElement[Value]):
    """An expression that each database has in words of its own, with ``{0}`` for the first argument, and so on."""

    postgresql: ClassVar[str]
    sqlite: ClassVar[str]
    mysql: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.inherit_cache = True


@compiles(ByDatabase)
def _by_database(element: ByDatabase[Any], compiler: Any, **options: Any) -> str:
    arguments, words = list(element.clauses), getattr(element, compiler.dialect.name, element.mysql)
    # Only what the words name is processed: each parameter that is processed must be given.
    return re.sub(
        r"\{(\d)\}",
        lambda place: str(compiler.process(arguments[int(place[1])], **options)),
        compiler.escape_literal_column(words),
    )


class _ids(ByDatabase[Any]):  # noqa: N801 - it reads as an operand
    """The list of numbers that is given as a parameter."""

    postgresql = "(SELECT unnest(CAST({0} AS bigint[])))"
    sqlite = "(SELECT value FROM json_each({0}))"
    mysql = "{0}"


class _names(_ids):  # noqa: N801 - as above
    """The list of texts that is given as a parameter."""

    postgresql = "(SELECT unnest(CAST({0} AS text[])))"


def id_in_list(column: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """A column of numbers is among those that are given as the parameter ``ids``.

    One text for lists of any length: the drivers of MySQL write the list into the statement themselves, the others are
    given one value.
    """
    return column.op("IN", is_comparison=True)(_ids(list_bind("ids")))


def queue_in_list(column: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """A column is among the names that are given as the parameter ``queues``."""
    return column.op("IN", is_comparison=True)(_names(list_bind("queues")))


def list_bind(name: str) -> sa.BindParameter[Any]:
    """A parameter whose value is from `list_parameter`."""
    return sa.bindparam(name, type_=sa.types.NullType())


def list_parameter(dialect: Dialect, values: Sequence[int] | Sequence[str]) -> Any:
    """The value of the parameter of `id_in_list` or `queue_in_list`."""
    return json.dumps(values) if dialect.name == "sqlite" else list(values)


MIN_TIMESTAMP: Final = datetime.min.replace(tzinfo=UTC)
"""Stands for a database's timestamp before the range of datetime; the next one for those after it."""
MAX_TIMESTAMP: Final = datetime.max.replace(tzinfo=UTC)


@lru_cache(maxsize=1024)  # rows that are written together share their timestamps
def parse_timestamp(text: str) -> datetime:
    """A timestamp in UTC from text. Year 0 and MySQL's day 0, which datetime has not, are `MIN_TIMESTAMP`.

    >>> parse_timestamp("2026-01-01 12:00:00.5").isoformat(), parse_timestamp("0000-00-00 00:00:00") == MIN_TIMESTAMP
    ('2026-01-01T12:00:00.500000+00:00', True)
    """
    try:
        return datetime.fromisoformat(text + "+00:00")
    except ValueError:
        if text.startswith("0000-"):
            return MIN_TIMESTAMP
        raise


def new_token() -> int:
    """A token unlike any other in flight."""
    return random.SystemRandom().getrandbits(62) + 1


# ---------------------------------------------------------------- rows whose keys may be there
# One statement that does not fail for the key: an INSERT that fails and an UPDATE after it would raise a shared lock to
# an exclusive one, at which three competitors deadlock on InnoDB.


def insert_if_absent(
    connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], key: tuple[str, ...]
) -> None:
    """Insert rows, except those whose key is there already; such a row is locked and stays as it is."""
    insert = _insert(table, connection.dialect.name).values([dict(row) for row in rows])
    unchanged = {key[0]: table.c[key[0]]}
    if hasattr(insert, "on_duplicate_key_update"):
        connection.execute(insert.on_duplicate_key_update(unchanged))
    else:
        connection.execute(insert.on_conflict_do_update(index_elements=key, set_=unchanged))


def insert_new(table: sa.Table, dialect: str) -> Any:
    """An insert that leaves out rows whose key is there already; the ``rowcount`` of its result counts the others."""
    insert = _insert(table, dialect)
    new = insert.on_conflict_do_nothing() if hasattr(insert, "on_conflict_do_nothing") else insert.prefix_with("IGNORE")
    return new.inline().execution_options(preserve_rowcount=True)


def delete_oldest(
    connection: Connection, table: sa.Table, time: sa.ColumnElement[Any], until: sa.ColumnElement[Any], limit: int
) -> int:
    """Delete the rows whose time has come, the longest ago first; how many, ``limit`` at the most.

    Rows that another session has locked are left for the next time.
    """
    is_over = sa.and_(time.is_not(None), time <= until)
    *prefix, last = table.primary_key
    found = sa.select(*prefix, last).where(is_over).order_by(time).limit(limit).with_for_update(skip_locked=True)
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for *of_prefix, value in connection.execute(found).all():
        alike[tuple(of_prefix)].append(value)
    deleted = 0
    for values, lasts in sorted(alike.items()):
        is_one = (column == value for column, value in zip(prefix, values, strict=True))
        statement = sa.delete(table).where(*is_one, last.in_(sorted(lasts)), is_over)
        deleted += connection.execute(statement).rowcount
    return deleted


def _insert(table: sa.Table, dialect: str) -> Any:
    insert: Any
    match dialect:  # each process loads its own dialect only
        case "postgresql":
            from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415
        case "sqlite":
            from sqlalchemy.dialects.sqlite import insert  # noqa: PLC0415
        case _:
            from sqlalchemy.dialects.mysql import insert  # noqa: PLC0415
    return insert(table)
