"""The columns, constraints and indexes of tables, as each database needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable
from sqlalchemy.sql import expression
from sqlalchemy.sql.schema import HasConditionalDDL

from peerd.store.schema.types import MYSQL, SQLITE_TIME_FORMAT, Instant

WITH_PARTIAL_INDEXES: Final = ("postgresql", "sqlite")

Conditional = TypeVar("Conditional", bound=HasConditionalDDL)


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


def sql_literals(values: Iterable[str]) -> str:
    """SQL literals of constants.

    >>> sql_literals(["done", "dead"])
    "'done', 'dead'"
    """
    return ", ".join(f"'{value}'" for value in values)


def only_on(dialects: Iterable[str], item: Conditional) -> Conditional:
    """An index or a constraint of these databases only."""
    names = frozenset(dialects)

    def applies(*_: Any, dialect: Dialect, **__: Any) -> bool:
        return dialect.name in names

    return item.ddl_if(callable_=applies)


def time_column(name: str) -> sa.Column[Any]:
    """A nullable timestamp."""
    return sa.Column(name, Instant(), nullable=True)


def time_column_with_default(name: str, default: type[default_now] = default_now) -> sa.Column[Any]:
    """A timestamp that defaults to the time of the insert."""
    return sa.Column(name, Instant(), nullable=False, server_default=default())


def time_format_checks(columns: Iterable[object]) -> list[sa.CheckConstraint]:
    """For SQLite: each of the time columns is null, or a text in `SQLITE_TIME_FORMAT`, in which times compare."""
    names = [
        column.name
        for column in columns
        if isinstance(column, sa.Column) and isinstance(column.type, Instant) and column.computed is None
    ]
    return [only_on(["sqlite"], sa.CheckConstraint(_time_format(name), name=f"{name}_form")) for name in names]


def _time_format(column: str) -> str:
    return f"{column} IS NULL OR {column} IS strftime('{SQLITE_TIME_FORMAT}', {column})"


def enum_check(column: str, values: Iterable[str]) -> sa.CheckConstraint:
    """The CHECK of a text column with these values; on MySQL the type ENUM has the same effect."""
    return only_on(
        WITH_PARTIAL_INDEXES, sa.CheckConstraint(f"{column} IN ({sql_literals(values)})", name=f"{column}_known")
    )


def enum_type(values: Iterable[str]) -> sa.types.TypeEngine[str]:
    """ENUM on MySQL (a byte in each index entry), text with `enum_check` elsewhere."""
    on_mysql = mysql.ENUM(*(str(value) for value in values), charset="ascii", collation="ascii_bin")
    return sa.Text().with_variant(on_mysql, *MYSQL)


def partial_index(name: str, *columns: sa.ColumnElement[Any], where: str) -> sa.Index:
    """A partial index, on the databases that have them."""
    return only_on(
        WITH_PARTIAL_INDEXES,
        sa.Index(name, *columns, info=dialect_only_options(WITH_PARTIAL_INDEXES, where=sa.text(where))),
    )


def dialect_only_options(dialects: Iterable[str], **options: Any) -> dict[str, Any]:
    """Options of a table or an index on these databases only, for its ``info``.

    An option such as ``sqlite_where`` of SQLAlchemy would make each process load that dialect.
    """
    return dict.fromkeys(dialects, options)


def mysql_generated_column(name: str, kind: sa.types.TypeEngine[Any], value: str) -> sa.Column[Any]:
    """A generated column of MySQL, the condition of an index, because MySQL has no partial indexes.

    It is null for rows that the index does not need: such an entry never moves.
    """
    return sa.Column(name, kind, sa.Computed(value, persisted=True), info={"only_on": MYSQL})


@compiles(CreateTable)
def _create_table(element: CreateTable, compiler: Any, **options: Any) -> str:
    _apply_dialect_options(element.element, compiler.dialect.name)
    return str(compiler.visit_create_table(element, **options))


@compiles(CreateIndex)
def _create_index(element: CreateIndex, compiler: Any, **options: Any) -> str:
    _apply_dialect_options(element.element, compiler.dialect.name)
    return str(compiler.visit_create_index(element, **options))


def _apply_dialect_options(item: sa.Table | sa.Index, dialect: str) -> None:
    for name, value in item.info.get(dialect, {}).items():
        item.dialect_options[dialect][name] = value


@compiles(CreateColumn)
def _create_column(element: CreateColumn, compiler: Any, **options: Any) -> str | None:
    # None omits the column.
    dialects = element.element.info.get("only_on")
    if dialects is not None and compiler.dialect.name not in dialects:
        return None
    return str(compiler.visit_create_column(element, **options))
