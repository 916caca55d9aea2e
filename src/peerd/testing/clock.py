"""A clock that a test sets, and that the database reads in place of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.task import EARLIEST, LATEST
from peerd.domain.units import parse_duration
from peerd.store.connection.database import Database
from peerd.store.schema.types import MYSQL

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The first time of a clock without another one, so that two runs of a test see the same times."""
NOW_VALUES: Final = ("now", "subsec", "subsecond")
"""Time values of SQLite that mean the present; the last two do from SQLite 3.42 on."""
DATE_FUNCTIONS: Final = ("strftime", "date", "time", "datetime", "julianday", "unixepoch")
CURRENT_FUNCTIONS: Final = {"current_timestamp": "datetime", "current_date": "date", "current_time": "time"}

SqliteValue = str | int | float | bytes | None


class ClockNotGovernable(PeerdError):
    """The database reads its server's clock, which cannot be set for one session."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}'s own clock cannot be set for one session. Test on SQLite or MariaDB what depends on time; "
            "on this database change the times of the rows instead: start_at, finish_at, checked_at"
        )


class Clock:
    """A clock that stands still until it is set or advanced.

    Args:
        start: an aware datetime; the first of January 2026 otherwise.

    >>> clock = Clock()
    >>> clock.advance("1h30m")
    >>> str(clock.now)
    '2026-01-01 01:30:00+00:00'
    """

    def __init__(self, start: datetime | None = None) -> None:
        self.set(START if start is None else start)

    def __repr__(self) -> str:
        return f"Clock({self.now})"

    @property
    def now(self) -> datetime:
        """The time that it shows, in UTC. A database that counts in milliseconds (SQLite) cuts the rest off."""
        return self._now

    def set(self, moment: datetime) -> None:
        """Set the time, which may be earlier than the present one.

        Raises:
            ValueError: it has no time zone, or is out of the range that every database holds.
        """
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no time zone; use an aware datetime")
        if not EARLIEST <= moment < LATEST:
            raise ValueError(f"{moment} is not between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}")
        self._now = moment.astimezone(UTC)
        self.sqlite_text = self._now.isoformat(" ", "milliseconds")[:23]

    def advance(self, by: str | float | timedelta) -> None:
        """Let time pass.

        Args:
            by: ``"5m"``, seconds, or a timedelta; a negative timedelta steps back.

        Raises:
            ValueError: it is no duration, or leads out of the range that every database holds.
        """
        self.set(self.now + (by if isinstance(by, timedelta) else timedelta(seconds=parse_duration(by))))

    def govern(self, database: Database) -> None:
        """Let every connection of this `Database` read this clock in place of the database's own, from now on.

        On SQLite it is read wherever SQL says 'now', column defaults included. On MySQL and MariaDB it is the session's
        ``timestamp``, set as each operation and each transaction begins. Other processes, and other `Database` objects,
        are not governed.

        Raises:
            ClockNotGovernable: it is PostgreSQL; the error says what to do there.
        """
        match database.name:
            case "sqlite":
                self._govern_sqlite(database)
            case name if name in MYSQL:
                self._govern_mysql(database)
            case name:
                raise ClockNotGovernable(name)
        database.close_idle_connections()

    def _govern_sqlite(self, database: Database) -> None:
        def on_connect(connection: Any, record: Any) -> None:
            record.info["peerd_clock"] = SqliteDateFunctions(connection, self)

        def on_close(_: Any, record: Any) -> None:
            if functions := record.info.pop("peerd_clock", None):
                functions.close()

        for engine in database.engines.distinct():
            event.listen(engine, "connect", on_connect)
            event.listen(engine, "close", on_close)

    def _govern_mysql(self, database: Database) -> None:
        def on_begin(connection: Connection) -> None:
            connection.exec_driver_sql(f"SET timestamp = {self.now.timestamp():.6f}")

        def on_checkout(connection: Any, *_: Any) -> None:
            with closing(connection.cursor()) as cursor:  # before statements that commit by themselves
                cursor.execute(f"SET timestamp = {self.now.timestamp():.6f}")

        for engine in database.engines.distinct():
            event.listen(engine, "begin", on_begin)
            event.listen(engine, "checkout", on_checkout)


class SqliteDateFunctions:
    """SQLite's date functions, with the present taken from a clock.

    Everything else is computed by a second connection, in memory, which still has the built-in functions.

    Args:
        connection: on which they are replaced.
        clock: gives the present.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._clock = clock
        self._builtin = sqlite3.connect(":memory:", check_same_thread=False)
        self._call = lru_cache(maxsize=4096, typed=True)(self._call_builtin)
        self._now_values = {value for value in NOW_VALUES if self._call("julianday", value) is not None}
        functions = {name: self._function(name, 1 if name == "strftime" else 0) for name in DATE_FUNCTIONS}
        functions |= {name: self._function(same_as, 0) for name, same_as in CURRENT_FUNCTIONS.items()}
        for name, function in functions.items():
            arguments = 0 if name in CURRENT_FUNCTIONS else -1
            connection.create_function(name, arguments, function, deterministic=True)  # else no CHECK could call it

    def close(self) -> None:
        """Close the second connection."""
        self._builtin.close()

    def _function(self, name: str, index: int) -> Callable[..., SqliteValue]:
        """A function whose argument at ``index`` is the time; without it, the present is meant."""

        def answer(*args: Any) -> SqliteValue:
            if len(args) == index:
                args = (*args, "now")
            if len(args) > index and isinstance(args[index], str) and args[index].lower() in self._now_values:
                args = (*args[:index], self._clock.sqlite_text, *args[index + 1 :])
            return self._call(name, *args)

        return answer

    def _call_builtin(self, function: str, *args: SqliteValue) -> SqliteValue:
        placeholders = ", ".join("?" for _ in args)
        answer: SqliteValue = self._builtin.execute(f"SELECT {function}({placeholders})", args).fetchone()[0]
        return answer
