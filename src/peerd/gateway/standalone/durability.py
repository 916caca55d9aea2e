"""When SQLite's changes are written to the disk: each before its answer, several times in a second, or by the system.

beanstalkd's flags -f and -F say which. Between two writes a power failure loses the latest changes, and no others; the
end of the process alone loses nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine

from peerd.gateway.standalone.flags import Flags
from peerd.store.connection.database import Database

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LOG_SUFFIX: Final = "-wal"
PAGE_SIZE: Final = 4096
"""SQLite's pages, in bytes; its log has one and a short header for each changed page."""
POOL_SIZE: Final = 4
JOIN_TIMEOUT: Final = 5.0
REPEAT_AFTER: Final = 1.0
"""Seconds after which a write that has failed is repeated, if the interval is shorter."""


def synchronous_mode(flags: Flags) -> str:
    """SQLite's ``synchronous`` for these flags.

    >>> from peerd.gateway.standalone.flags import parse_flags
    >>> [synchronous_mode(parse_flags(["-b", "jobs", flag], "")) for flag in ("-f0", "-f50", "-F")]
    ['FULL', 'NORMAL', 'OFF']
    """
    if flags.folder is None or flags.sync_interval is None:
        return "OFF"
    return "NORMAL" if flags.sync_interval else "FULL"


class StandaloneDatabase(Database):
    """A SQLite file whose changes are written to the disk as the flags say.

    Args:
        file: it is created if it does not exist.
        flags: of the command line.
        on_error: called with an error of the disk, on a thread.
    """

    def __init__(self, file: Path, flags: Flags, on_error: Callable[[OSError], None]) -> None:
        super().__init__(URL.create("sqlite", database=str(file)), pool_size=POOL_SIZE)
        mode = synchronous_mode(flags)
        self._on_sqlite.sets_durability = mode == "FULL"
        for engine in self.engines.distinct():
            _configure_log(engine, mode, flags.log_size)
        self._synchronizer: LogSynchronizer | None = None
        if mode == "NORMAL" and flags.sync_interval:
            self._synchronizer = LogSynchronizer(file, flags.sync_interval, on_error)
            self._synchronizer.start()

    def run_group(
        self, operation: Callable[[Connection, *Ts], T], /, *args: *Ts, durable: bool = True, waits: bool = True
    ) -> T:
        """`Database.run_group`; after its commit, the disk has to follow."""
        result = super().run_group(operation, *args, durable=durable, waits=waits)
        if self._synchronizer is not None:
            self._synchronizer.note_commit()
        return result

    def close(self) -> None:
        """Write what was committed to the disk, and close all connections."""
        if self._synchronizer is not None:
            self._synchronizer.close()
        super().close()


def _configure_log(engine: Engine, mode: str, log_size: int) -> None:
    """Let the connections that an engine opens write as ``mode`` says, with a log of about so many bytes."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"PRAGMA synchronous = {mode}")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {max(1, log_size // PAGE_SIZE)}")
            cursor.execute(f"PRAGMA journal_size_limit = {log_size}")


class LogSynchronizer:
    """Writes SQLite's log to the disk after commits, at most once in each interval, on a thread of its own.

    A write that has failed is repeated, also without another commit.
    Only the commits of queue clients are followed: a heartbeat that a power failure undoes is none that is missed.

    Args:
        file: the SQLite file.
        interval: seconds.
        on_error: called with an error of the disk, on the thread.
    """

    def __init__(self, file: Path, interval: float, on_error: Callable[[OSError], None]) -> None:
        self._log = f"{file}{LOG_SUFFIX}"
        self._interval = interval
        self._on_error = on_error
        self._is_dirty = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peerd-log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def note_commit(self) -> None:
        """Have what was committed so far written within the interval."""
        self._is_dirty.set()

    def close(self) -> None:
        """Write what was committed so far, and end."""
        self._is_closed.set()
        self._is_dirty.set()
        self._thread.join(JOIN_TIMEOUT)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._is_dirty.wait()
            self._is_dirty.clear()
            if self._synchronize():
                self._is_closed.wait(self._interval)
            else:
                self._is_dirty.set()
                self._is_closed.wait(max(self._interval, REPEAT_AFTER))
        self._synchronize()

    def _synchronize(self) -> bool:
        try:
            _write_to_disk(self._log)
        except FileNotFoundError:
            return True  # it is empty
        except OSError as error:
            self._on_error(error)
            return False
        return True


def _write_to_disk(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
