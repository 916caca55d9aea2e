"""The parts that tables are made of: columns, constraints and indexes, as each database wants them."""

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
"""The databases that have partial indexes."""

Conditional = TypeVar("Conditional", bound=HasConditionalDDL)


class default_now(expression.FunctionElement[Any]):  # noqa: N801 - it reads as a function in DDL
    """A column's default: the moment of the insert."""

    inherit_cache = True
    name = "default_now"


@compiles(default_now, "mysql")
@compiles(default_now, "mariadb")
def _default_on_mysql(element: default_now, compiler: Any, **options: Any) -> str:
    return "current_timestamp(6)"


@compiles(default_now, "postgresql")
def _default_on_postgresql(element: default_now, compiler: Any, **options: Any) -> str:
    return "clock_timestamp()"


@compiles(default_now, "sqlite")
def _default_on_sqlite(element: default_now, compiler: Any, **options: Any) -> str:
    return f"(strftime('{SQLITE_TIME_FORMAT}', 'now'))"


class updated_now(default_now):  # noqa: N801 - as above
    """The same, and on MySQL the moment of every later update too."""

    inherit_cache = True
    name = "updated_now"


@compiles(updated_now, "mysql")
@compiles(updated_now, "mariadb")
def _updated_on_mysql(element: updated_now, compiler: Any, **options: Any) -> str:
    return "current_timestamp(6) ON UPDATE current_timestamp(6)"


def sql_literals(values: Iterable[str]) -> str:
    """SQL literals of words of ours.

    >>> sql_literals(["done", "dead"])
    "'done', 'dead'"
    """
    return ", ".join(f"'{value}'" for value in values)


def only_on(dialects: Iterable[str], item: Conditional) -> Conditional:
    """An index or a constraint that only these databases have."""
    names = frozenset(dialects)

    def applies(*_: Any, dialect: Dialect, **__: Any) -> bool:
        return dialect.name in names

    return item.ddl_if(callable_=applies)


def time_column(name: str) -> sa.Column[Any]:
    """A moment, or null."""
    return sa.Column(name, Instant(), nullable=True)


def time_column_with_default(name: str, default: type[default_now] = default_now) -> sa.Column[Any]:
    """A moment that begins as the one of the insert."""
    return sa.Column(name, Instant(), nullable=False, server_default=default())


def time_format_checks(*columns: str) -> list[sa.CheckConstraint]:
    """Times are text on SQLite, and compare as times only in one form."""
    return [only_on(["sqlite"], sa.CheckConstraint(time_format(column), name=f"{column}_form")) for column in columns]


def time_format(column: str) -> str:
    """That a column is null, or a time in the one form."""
    return f"{column} IS NULL OR {column} IS strftime('{SQLITE_TIME_FORMAT}', {column})"


def enum_check(column: str, values: Iterable[str]) -> sa.CheckConstraint:
    """A text column holds one of these words; on MySQL an ENUM does that."""
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
    """What only these databases know about a table or an index, for its ``info``.

    Given to SQLAlchemy itself, as ``sqlite_where``, it would make each process load these databases' dialects.
    """
    return dict.fromkeys(dialects, options)


def mysql_generated_column(name: str, kind: sa.types.TypeEngine[Any], value: str) -> sa.Column[Any]:
    """A generated column that only MySQL has: what stands for a condition in its indexes, which cannot be partial.

    It is null where the index has no use for a row: such an entry never moves, whatever becomes of the row.
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
    """Leave a column out of the tables of databases that do not have it."""
    dialects = element.element.info.get("only_on")
    if dialects is not None and compiler.dialect.name not in dialects:
        return None
    return str(compiler.visit_create_column(element, **options))
