"""Statements that run a thousand times in a second: compiled once, then given to the driver as they are.

SQLAlchemy finds a statement's text again at each execution by walking through all its parts, and looks at each value on
its way in and out. That takes longer than the database needs for a small statement. Here it is the compiler alone: the
text is made once for each kind of database, values go to the driver as they are, and rows come back as it made them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import sqlalchemy as sa
from sqlalchemy.engine import Connection, CursorResult, Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression

from peerd.store.statements.autocommit import AutocommitConnection, AutocommitResult


class _list_parameter(expression.ColumnElement[Any]):  # noqa: N801 - it reads as an operand
    """The list that is given as the parameter ``ids``."""

    inherit_cache = True

    def __init__(self) -> None:
        self.ids: sa.BindParameter[Any] = sa.bindparam("ids", type_=sa.types.NullType())


@compiles(_list_parameter)
def _on_mysql(element: _list_parameter, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.ids, **options))


@compiles(_list_parameter, "postgresql")
def _on_postgresql(element: _list_parameter, compiler: Any, **options: Any) -> str:
    return f"(SELECT unnest(CAST({compiler.process(element.ids, **options)} AS bigint[])))"


@compiles(_list_parameter, "sqlite")
def _on_sqlite(element: _list_parameter, compiler: Any, **options: Any) -> str:
    return f"(SELECT value FROM json_each({compiler.process(element.ids, **options)}))"  # noqa: S608 - a parameter's place


def id_in_list(column: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """That a column of numbers is among those that are given as the parameter ``ids``.

    One text for lists of any length: the drivers of MySQL write the list into the statement themselves, the others are
    given one value.
    """
    return column.op("IN", is_comparison=True)(_list_parameter())


def list_parameter(connection: Connection, ids: Sequence[int]) -> Any:
    """A list as it is given to `id_in_list`."""
    return str(list(ids)) if connection.dialect.name == "sqlite" else list(ids)


class CompiledStatement:
    """A statement whose values all have names.

    Args:
        statement: of SQLAlchemy; values that it holds itself stay as they are.

    >>> from sqlalchemy import bindparam, create_engine, select
    >>> double = CompiledStatement(select(bindparam("number", type_=sa.Integer()) * 2))
    >>> with create_engine("sqlite://").connect() as connection:
    ...     double.run(connection, number=21).scalar_one()
    42
    """

    def __init__(self, statement: sa.sql.ClauseElement) -> None:
        self._statement = statement
        self._texts: dict[str, _CompiledText] = {}

    @overload
    def run(self, connection: Connection, **values: Any) -> CursorResult[Any]: ...
    @overload
    def run(self, connection: AutocommitConnection, **values: Any) -> AutocommitResult: ...

    def run(self, connection: Connection | AutocommitConnection, **values: Any) -> CursorResult[Any] | AutocommitResult:
        """Execute it once."""
        text = self._text(connection.dialect)
        return connection.exec_driver_sql(text.sql, text.arguments(values))

    def rows(self, connection: Connection, **values: Any) -> Sequence[Sequence[Any]]:
        """Execute it once; all rows, as the driver makes them."""
        result = self.run(connection, **values)
        assert result.cursor is not None
        try:
            return result.cursor.fetchall()
        finally:
            result.close()

    def _text(self, dialect: Dialect) -> _CompiledText:
        kind = dialect_key(dialect)
        found = self._texts.get(kind)
        if found is None:
            found = self._texts[kind] = _CompiledText(self._statement, dialect)
        return found


def dialect_key(dialect: Dialect) -> str:
    """What a statement's text depends on: the driver, and how it wants its places (Django's connections differ)."""
    return f"{dialect.driver} {dialect.paramstyle}"


class _CompiledText:
    """A statement as one driver takes it."""

    def __init__(self, statement: sa.sql.ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        assert not compiled.post_compile_params, "a list of no fixed length is `id_in_list`"
        self.sql = str(compiled)
        self._order = compiled.positiontup
        self._own = {name: value.effective_value for name, value in compiled.binds.items() if not value.required}

    def arguments(self, values: Mapping[str, Any]) -> Any:
        if self._order is None:
            return {**self._own, **values}
        own = self._own
        return tuple([values[name] if name in values else own[name] for name in self._order])
