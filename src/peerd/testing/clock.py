"""A clock that a test sets, and that the database reads for its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Connection

from peerd.domain.duration import parse_duration
from peerd.domain.errors import PeerdError
from peerd.domain.task import EARLIEST, LATEST
from peerd.store.connection.database import Database
from peerd.store.schema.types import MYSQL
from peerd.testing.sqlite_clock import ClockMoment, replace_functions

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When a clock begins that is not told, so that two runs of a test see the same times."""


class ClockNotGovernable(PeerdError):
    """The database reads its server's clock, and no session can have another one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}'s own clock cannot be set for one session. Test on SQLite or MariaDB what hangs on time; "
            "on this database let time pass by moving the rows' own times: start_at, finish_at, checked_at"
        )


class Clock:
    """A clock that stands still until it is told otherwise.

    Args:
        start: an aware datetime; the first of January 2026 otherwise.

    >>> clock = Clock()
    >>> clock.advance("1h30m")
    >>> str(clock.now)
    '2026-01-01 01:30:00+00:00'
    """

    def __init__(self, start: datetime | None = None) -> None:
        self.moment: ClockMoment
        self.set(START if start is None else start)

    def __repr__(self) -> str:
        return f"Clock({self.now})"

    @property
    def now(self) -> datetime:
        """What it shows, in UTC. A database that counts in milliseconds (SQLite) cuts the rest off."""
        return self.moment.at

    def set(self, moment: datetime) -> None:
        """Let it show this moment, earlier ones too.

        Raises:
            ValueError: it has no time zone, or is out of the range that every database holds.
        """
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no time zone; use an aware datetime")
        if not EARLIEST <= moment < LATEST:
            raise ValueError(f"{moment} is not between {EARLIEST:%Y-%m-%d} and {LATEST:%Y-%m-%d}")
        self.moment = ClockMoment(moment.astimezone(UTC))

    def advance(self, by: str | float | timedelta) -> None:
        """Let time pass.

        Args:
            by: ``"5m"``, seconds, or a timedelta; a negative timedelta steps back.

        Raises:
            ValueError: it is no duration, or leads out of the range that every database holds.
        """
        self.set(self.now + (by if isinstance(by, timedelta) else timedelta(seconds=parse_duration(by))))

    def govern(self, database: Database) -> None:
        """Let every connection of this `Database` read this clock for the database's own, from now on.

        On SQLite it answers wherever SQL says 'now', column defaults included. On MySQL and MariaDB it is the session's
        ``timestamp``, set as each transaction begins. Other processes, and other `Database` objects, are not governed.

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
        for engine in database.engines:
            engine.dispose()

    def _govern_sqlite(self, database: Database) -> None:
        def on_connect(connection: Any, record: Any) -> None:
            record.info["peerd_builtin"] = replace_functions(connection, self)

        def on_close(_: Any, record: Any) -> None:
            if builtin := record.info.pop("peerd_builtin", None):
                builtin.close()

        for engine in database.engines:
            event.listen(engine, "connect", on_connect)
            event.listen(engine, "close", on_close)

    def _govern_mysql(self, database: Database) -> None:
        def on_begin(connection: Connection) -> None:
            connection.exec_driver_sql(f"SET timestamp = {self.now.timestamp():.6f}")

        for engine in database.engines:
            event.listen(engine, "begin", on_begin)
