"""Column types that mean the same on every database."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

MYSQL = ("mysql", "mariadb")
"""The two names under which SQLAlchemy knows one family."""

SQLITE_TIME_FORMAT = "%Y-%m-%d %H:%M:%f"
"""The one text form of a time on SQLite, in the words of its strftime (milliseconds)."""


class NotNullTimestamp(sa.types.UserDefinedType[datetime]):
    """MySQL's TIMESTAMP(6) without the NULL that SQLAlchemy adds, which MariaDB refuses after a generated column."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "TIMESTAMP(6)"


class Instant(TypeDecorator[datetime]):
    """A moment in UTC, aware in Python.

    MySQL: TIMESTAMP(6), read and written by sessions at +00:00. PostgreSQL: timestamptz. SQLite: text in
        `SQLITE_TIME_FORMAT`.

    Args:
        generated: it is the type of a generated column.
    """

    impl = sa.DateTime
    cache_ok = True

    def __init__(self, *, generated: bool = False) -> None:
        super().__init__()
        self.generated = generated

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        match dialect.name:
            case "mysql" | "mariadb":
                return dialect.type_descriptor(NotNullTimestamp() if self.generated else mysql.TIMESTAMP(fsp=6))
            case "postgresql":
                return dialect.type_descriptor(sa.TIMESTAMP(timezone=True))
            case _:
                return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        moment = value.astimezone(UTC)
        match dialect.name:
            case "postgresql":
                return moment
            case "mysql" | "mariadb":
                return moment.replace(tzinfo=None)
            case _:
                return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"

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


MIN_TIMESTAMP: Final = datetime.min.replace(tzinfo=UTC)
"""What stands for a moment that a database holds and Python has not, before all others; its opposite below."""
MAX_TIMESTAMP: Final = datetime.max.replace(tzinfo=UTC)


@lru_cache(maxsize=1024)  # rows that were written together, or are read together, have the same moments
def parse_timestamp(text: str) -> datetime:
    """A moment in UTC that came as text. There is no year 0, nor MySQL's day 0: they are before all others.

    >>> parse_timestamp("2026-01-01 12:00:00.5").isoformat(), parse_timestamp("0000-00-00 00:00:00") == MIN_TIMESTAMP
    ('2026-01-01T12:00:00.500000+00:00', True)
    """
    try:
        return datetime.fromisoformat(text + "+00:00")
    except ValueError:
        if text.startswith("0000-"):
            return MIN_TIMESTAMP
        raise


def name_type(length: int, *, ascii_only: bool = False) -> sa.types.TypeEngine[str]:
    """A short text that is compared byte by byte."""
    charset, collation = ("ascii", "ascii_bin") if ascii_only else ("utf8mb4", "utf8mb4_bin")
    on_mysql = mysql.VARCHAR(length, charset=charset, collation=collation)
    return sa.Text().with_variant(on_mysql, *MYSQL).with_variant(sa.Text(collation="C"), "postgresql")


def long_text() -> sa.types.TypeEngine[str]:
    """A text of any length."""
    on_mysql = mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(on_mysql, *MYSQL)


def short_text(length: int) -> sa.types.TypeEngine[str]:
    """A text for people, of at most ``length`` characters."""
    on_mysql = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(on_mysql, *MYSQL)


def binary() -> sa.types.TypeEngine[bytes]:
    """Bytes of any length."""
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)


def big_key() -> sa.types.TypeEngine[int]:
    """A primary key that the database gives; SQLite counts only in an INTEGER."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
