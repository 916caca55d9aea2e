"""Column types with the same meaning on every database, and the columns, constraints and indexes made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable
from sqlalchemy.sql import expression
from sqlalchemy.types import TypeDecorator

from peerd.store.statements import parse_timestamp

MYSQL = ("mysql", "mariadb")
"""SQLAlchemy's two names for one family."""

SQLITE_TIME_FORMAT = "%Y-%m-%d %H:%M:%f"
"""The text form of a time on SQLite, for its strftime; %f has milliseconds."""
WITH_PARTIAL_INDEXES: Final = ("postgresql", "sqlite")

Item = TypeVar("Item", bound=sa.Index | sa.Column[Any])


class NotNullTimestamp(sa.types.UserDefinedType[datetime]):
    """A TIMESTAMP(6) without the NULL that SQLAlchemy adds, which MariaDB refuses after a generated column."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "TIMESTAMP(6)"


class Instant(TypeDecorator[datetime]):
    """A timestamp in UTC, an aware datetime in Python.

    MySQL: TIMESTAMP(6), in sessions at +00:00. PostgreSQL: timestamptz. SQLite: text in `SQLITE_TIME_FORMAT`.

    Args:
        generated: whether the column is a generated one.
    """

    impl = sa.DateTime
    cache_ok = True

    def __init__(self, *, generated: bool = False) -> None:
        super().__init__()
        self.generated = generated

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        match dialect.name:
            case "mysql" | "mariadb":
                is_bare = self.generated and is_mariadb(dialect)
                return dialect.type_descriptor(NotNullTimestamp() if is_bare else mysql.TIMESTAMP(fsp=6))
            case "postgresql":
                return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))
            case _:
                return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        if dialect.name == "sqlite":
            return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        match value:
            case None:
                return None
            case datetime() if value.tzinfo is UTC:
                return value
            case str():
                return parse_timestamp(value)
            case datetime(tzinfo=None):
                return value.replace(tzinfo=UTC)
            case datetime():
                return value.astimezone(UTC)
            case other:
                raise TypeError(f"a time came as {other!r}")


def is_mariadb(dialect: Dialect) -> bool:
    """Whether a server that speaks MySQL's protocol is MariaDB."""
    return getattr(dialect, "is_mariadb", False)


def binary_collation(dialect: Dialect) -> str:
    """The collation of MariaDB or MySQL that compares utf8mb4 byte by byte, spaces at the end included."""
    return "utf8mb4_nopad_bin" if is_mariadb(dialect) else "utf8mb4_0900_bin"


class _Name(mysql.VARCHAR):
    """A VARCHAR with `binary_collation`."""


@compiles(_Name, *MYSQL)
def _compile_name(element: _Name, compiler: Any, **options: Any) -> str:
    return f"VARCHAR({element.length}) CHARACTER SET utf8mb4 COLLATE {binary_collation(compiler.dialect)}"


def name_type(length: int) -> sa.types.TypeEngine[str]:
    """A short text, compared byte by byte."""
    return sa.Text().with_variant(_Name(length), *MYSQL).with_variant(sa.Text(collation="C"), "postgresql")


class ByteText(TypeDecorator[str]):
    """A short text, compared byte by byte, that can be indexed although it is longer than MySQL indexes of utf8mb4.

    MySQL: VARBINARY, because 1,024 characters of utf8mb4 count as 4,096 bytes there. Elsewhere as `name_type`.

    Args:
        length: the most bytes of UTF-8.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        match dialect.name:
            case "mysql" | "mariadb":
                return dialect.type_descriptor(mysql.VARBINARY(self.length))
            case "postgresql":
                return dialect.type_descriptor(sa.Text(collation="C"))
            case _:
                return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode() if value is not None and dialect.name in MYSQL else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return value.decode(errors="replace") if isinstance(value, bytes) else value


LONG_TEXT: Final = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL)
"""A text of any length."""
BINARY: Final = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
BIG_KEY: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""A primary key generated by the database; SQLite generates only an INTEGER."""


def short_text(length: int) -> sa.types.TypeEngine[str]:
    """A text to display, of at most ``length`` characters."""
    on_mysql = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(on_mysql, *MYSQL)


class default_now(expression.FunctionElement[Any]):  # noqa: N801 - it reads as a function in DDL
    """A column's default: the moment of the insert."""

    inherit_cache = True
    name = "default_now"


class updated_now(default_now):  # noqa: N801 - as above
    """The same, and on MySQL the moment of each later update as well."""

    inherit_cache = True
    name = "updated_now"


@compiles(default_now)
def _default_now(element: default_now, compiler: Any, **options: Any) -> str:
    match compiler.dialect.name:
        case "postgresql":
            return "clock_timestamp()"
        case "sqlite":
            return f"(strftime('{SQLITE_TIME_FORMAT}', 'now'))"
        case _:
            on_update = " ON UPDATE current_timestamp(6)" if isinstance(element, updated_now) else ""
            return f"current_timestamp(6){on_update}"


class generated_from_times(expression.ColumnElement[Any]):  # noqa: N801 - it reads as a function in DDL
    """The value of a generated column that reads times, whose names end with ``_at``.

    On MySQL a zero date counts as long ago. MySQL computes the value before the defaults of these columns too, and
    refuses to store a zero date: a task with one, which another `sql_mode` lets in, would fail each claim.

    Args:
        text: the SQL.
    """

    inherit_cache = False

    def __init__(self, text: str) -> None:
        self.text = text


@compiles(generated_from_times)
def _generated_from_times(element: generated_from_times, compiler: Any, **options: Any) -> str:
    if compiler.dialect.name not in MYSQL or is_mariadb(compiler.dialect):
        return element.text
    return re.sub(r"\w+_at", r"GREATEST(\g<0>, TIMESTAMP'1970-01-02 00:00:00')", element.text)


def sql_literals(values: Iterable[str]) -> str:
    """SQL literals of constants.

    >>> sql_literals(["done", "dead"])
    "'done', 'dead'"
    """
    return ", ".join(f"'{value}'" for value in values)


def only_on(dialects: tuple[str, ...], item: Item) -> Item:
    """An index or a column of these databases only."""
    item.info["only_on"] = dialects
    return item


def is_on(dialect: Dialect, item: sa.Index | sa.Column[Any]) -> bool:
    """Whether a database has this index or column."""
    return dialect.name in item.info.get("only_on", (dialect.name,))


def time_column(name: str) -> sa.Column[Any]:
    """A nullable timestamp."""
    return sa.Column(name, Instant(), nullable=True)


def time_column_with_default(name: str, default: type[default_now] = default_now) -> sa.Column[Any]:
    """A timestamp that defaults to the time of the insert."""
    return sa.Column(name, Instant(), nullable=False, server_default=default())


def time_format_checks(columns: Iterable[object]) -> list[sa.CheckConstraint]:
    """For SQLite: each of the time columns is null, or a text in `SQLITE_TIME_FORMAT`, in which times compare."""
    checks = []
    for column in columns:
        if isinstance(column, sa.Column) and isinstance(column.type, Instant) and column.computed is None:
            name = column.name
            text = f"{name} IS NULL OR {name} IS strftime('{SQLITE_TIME_FORMAT}', {name})"
            checks.append(sa.CheckConstraint(text, name=f"{name}_form").ddl_if(dialect="sqlite"))
    return checks


def enum_check(column: str, values: Iterable[str]) -> sa.CheckConstraint:
    """The CHECK of a column with these values. MySQL needs it too: a lax sql_mode stores unknown ones as ''."""
    return sa.CheckConstraint(f"{column} IN ({sql_literals(values)})", name=f"{column}_known")


def enum_type(values: Iterable[str]) -> sa.types.TypeEngine[str]:
    """ENUM on MySQL (a byte in each index entry), text elsewhere; see `enum_check`."""
    on_mysql = mysql.ENUM(*(str(value) for value in values), charset="ascii", collation="ascii_bin")
    return sa.Text().with_variant(on_mysql, *MYSQL)


def partial_index(
    name: str, *columns: sa.ColumnElement[Any], where: str, dialects: tuple[str, ...] = WITH_PARTIAL_INDEXES
) -> sa.Index:
    """A partial index, on the databases that have them."""
    options = dialect_only_options(dialects, where=sa.text(where))
    return only_on(dialects, sa.Index(name, *columns, info=options))


def dialect_only_options(dialects: Iterable[str], **options: Any) -> dict[str, Any]:
    """Options of a table or an index on these databases only, for its ``info``.

    An option such as ``sqlite_where`` of SQLAlchemy would make each process load that dialect.
    """
    return dict.fromkeys(dialects, options)


def mysql_generated_column(name: str, kind: sa.types.TypeEngine[Any], value: str) -> sa.Column[Any]:
    """A generated column of MySQL, the condition of an index, because MySQL has no partial indexes.

    It is null for rows that the index does not need: such an entry never moves. It is stored, although only a virtual
    one can be added without a rewrite: a Galera server with an index of a virtual column can run out of memory at the
    next `ALTER TABLE` (docs/schema.md).
    """
    return only_on(MYSQL, sa.Column(name, kind, sa.Computed(value, persisted=True)))


@compiles(CreateTable)
@compiles(CreateIndex)
def _create_with_dialect_options(element: CreateTable | CreateIndex, compiler: Any, **options: Any) -> str:
    item, dialect = element.element, compiler.dialect.name
    for name, value in item.info.get(dialect, {}).items():
        item.dialect_options[dialect][name] = value
    return str(getattr(compiler, f"visit_{element.__visit_name__}")(element, **options))


@compiles(CreateColumn)
def _create_column(element: CreateColumn, compiler: Any, **options: Any) -> str | None:
    # None omits the column.
    return str(compiler.visit_create_column(element, **options)) if is_on(compiler.dialect, element.element) else None
