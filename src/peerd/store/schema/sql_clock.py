"""SQL for 'now', 'in some seconds' and a given moment. Only the database's clock decides when something is due."""

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


class moment(expression.FunctionElement[datetime]):  # noqa: N801 - as above
    """A parameter as a timestamp, to be compared; MySQL's cast to DATETIME alone rounds to whole seconds."""

    type = Instant()
    inherit_cache = True
    name = "moment"


class seconds_from_now(expression.FunctionElement[datetime]):  # noqa: N801 - as above
    """The database's clock plus a number of seconds, which may be negative.

    On MySQL at most `LATEST`, because the range of TIMESTAMP ends soon after it.
    """

    type = Instant()
    inherit_cache = True
    name = "seconds_from_now"

    def __init__(self, seconds: float | sa.ColumnElement[Any]) -> None:
        given = sa.bindparam(None, float(seconds), sa.Double()) if isinstance(seconds, int | float) else seconds
        super().__init__(given)


@compiles(now)
def _now(element: now, compiler: Any, **options: Any) -> str:
    match compiler.dialect.name:
        case "postgresql":
            # A volatile function in a WHERE is called for each row and cannot be searched for in an index; a scalar
            # subquery of it is called once. PostgreSQL's now() is the time at which the transaction began.
            return "(SELECT clock_timestamp())"
        case "sqlite":
            return f"strftime('{compiler.escape_literal_column(SQLITE_TIME_FORMAT)}', 'now')"
        case _:
            return "now(6)"


@compiles(moment)
def _moment(element: moment, compiler: Any, **options: Any) -> str:
    given = compiler.process(element.clauses, **options)
    match compiler.dialect.name:
        case "postgresql":
            return f"CAST({given} AS timestamptz)"
        case "sqlite":
            return str(given)
        case _:
            return f"CAST({given} AS DATETIME(6))"


@compiles(seconds_from_now)
def _seconds_from_now(element: seconds_from_now, compiler: Any, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    match compiler.dialect.name:
        case "postgresql":
            return f"(SELECT clock_timestamp() + make_interval(secs => {seconds}))"
        case "sqlite":
            time_format = compiler.escape_literal_column(SQLITE_TIME_FORMAT)
            return f"strftime('{time_format}', 'now', ({seconds}) || ' seconds')"
        case _:
            later = f"timestampadd(MICROSECOND, round(({seconds}) * 1000000), now(6))"
            return f"least({later}, TIMESTAMP'{LATEST:%Y-%m-%d %H:%M:%S}')"
