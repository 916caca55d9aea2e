"""How each database says 'now' and 'in some seconds': the only clock that decides anything."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression

from peerd.domain.task import LATEST
from peerd.store.schema.types import SQLITE_TIME_FORMAT, Instant


class now(expression.FunctionElement[datetime]):  # noqa: N801 - it reads as a function in statements
    """The database's clock, at the statement."""

    type = Instant()
    inherit_cache = True
    name = "now"


class seconds_from_now(expression.FunctionElement[datetime]):  # noqa: N801 - as above
    """The database's clock and a number of seconds, which may be negative.

    On MySQL at most `LATEST`, because a TIMESTAMP ends soon after it.
    """

    type = Instant()
    inherit_cache = True
    name = "seconds_from_now"

    def __init__(self, seconds: float | sa.ColumnElement[Any]) -> None:
        given = sa.bindparam(None, float(seconds), sa.Double()) if isinstance(seconds, int | float) else seconds
        super().__init__(given)


# A volatile function in a WHERE is called for each row and cannot be searched for in an index; a scalar subquery of
# it is called once. now() would be the beginning of the transaction, too early inside a caller's long one.
PG_NOW = "(SELECT clock_timestamp())"


@compiles(now, "mysql")
@compiles(now, "mariadb")
def _now_on_mysql(element: now, compiler: Any, **options: Any) -> str:
    return "now(6)"


@compiles(now, "postgresql")
def _now_on_postgresql(element: now, compiler: Any, **options: Any) -> str:
    return PG_NOW


@compiles(now, "sqlite")
def _now_on_sqlite(element: now, compiler: Any, **options: Any) -> str:
    return compiler.escape_literal_column(f"strftime('{SQLITE_TIME_FORMAT}', 'now')")  # type: ignore[no-any-return]


@compiles(seconds_from_now, "mysql")
@compiles(seconds_from_now, "mariadb")
def _later_on_mysql(element: seconds_from_now, compiler: Any, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    later = f"timestampadd(MICROSECOND, round(({seconds}) * 1000000), now(6))"
    return f"least({later}, TIMESTAMP'{LATEST:%Y-%m-%d %H:%M:%S}')"


@compiles(seconds_from_now, "postgresql")
def _later_on_postgresql(element: seconds_from_now, compiler: Any, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    return f"(SELECT clock_timestamp() + make_interval(secs => {seconds}))"


@compiles(seconds_from_now, "sqlite")
def _later_on_sqlite(element: seconds_from_now, compiler: Any, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    form = compiler.escape_literal_column(SQLITE_TIME_FORMAT)
    return f"strftime('{form}', 'now', ({seconds}) || ' seconds')"
