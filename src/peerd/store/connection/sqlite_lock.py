"""SQLite's single writer lock, acquired fairly.

SQLite retries for the lock at growing intervals of up to 100 ms, so a writer that has waited is overtaken by later
ones. Retries at short random intervals bring the longest wait of 14 writers of tiny transactions from 2.0 s to 0.16 s.
The writers of one process first acquire a lock of the process, and only its holder retries for SQLite's: a process that
claims and completes at the same time had spent half of its time on these retries.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy.exc import DBAPIError

BUSY_TIMEOUT: Final = 30
"""Seconds that a writer waits for another one."""
LOCK_RETRY_PAUSE: Final = (0.0005, 0.006)
"""Range of the random seconds between two attempts."""
YIELD_WITHIN: Final = 1.0
"""Seconds for which a process pauses between its transactions after it has met a writer of another process."""
TURN: Final = 0.03
"""Seconds for which the transactions of a group may follow one another before such a pause."""


class WriterBusy(Exception):
    """Another writer has the lock."""


class SqliteWriterLock:
    """The lock of this process's writers on one file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contended_at = -math.inf
        self._released_at = -math.inf
        self._paused_at = -math.inf

    @contextmanager
    def hold(self, *, turn: float = 0.0) -> Iterator[None]:
        """Hold the lock of this process. When it is not free within `BUSY_TIMEOUT`, SQLite's lock alone decides.

        If a writer of another process was met lately, there is a pause after the preceding transaction: without it the
        other process would never find SQLite's lock free.

        Args:
            turn: seconds since the last pause in which there is none.
        """
        acquired = self._lock.acquire(timeout=BUSY_TIMEOUT)
        try:
            if self._must_pause(turn):
                if time.monotonic() < self._released_at + LOCK_RETRY_PAUSE[1]:
                    time.sleep(random.uniform(*LOCK_RETRY_PAUSE))
                self._paused_at = time.monotonic()
            yield
        finally:
            self._released_at = time.monotonic()
            if acquired:
                self._lock.release()

    @contextmanager
    def hold_at_once(self) -> Iterator[None]:
        """Hold the lock of this process without waiting for anything.

        Raises:
            WriterBusy: it is not free, or a pause is due.
        """
        if self._must_pause(TURN) or not self._lock.acquire(blocking=False):
            raise WriterBusy
        try:
            yield
        finally:
            self._released_at = time.monotonic()
            self._lock.release()

    def _must_pause(self, turn: float) -> bool:
        now = time.monotonic()
        return now < self._contended_at + YIELD_WITHIN and now >= self._paused_at + turn

    def note_contention(self) -> None:
        """Another process has been met that writes to the file."""
        self._contended_at = time.monotonic()

    def retry_while_locked(self, driver: Any, attempt: Callable[[], object]) -> None:
        """Repeat one statement, on a sqlite3 connection without a transaction, while another writer has the lock.

        Raises:
            sqlite3.Error: it failed; with SQLITE_BUSY after `BUSY_TIMEOUT`.
        """
        driver.execute("PRAGMA busy_timeout = 0")
        try:
            self.retry(attempt)
        finally:
            driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000:.0f}")

    def retry(self, attempt: Callable[[], object]) -> None:
        """`retry_while_locked`, on a connection whose busy_timeout is 0."""
        deadline = time.monotonic() + BUSY_TIMEOUT
        while True:
            try:
                attempt()
            except (sqlite3.OperationalError, DBAPIError) as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            else:
                return
            self.note_contention()
            time.sleep(random.uniform(*LOCK_RETRY_PAUSE))


def is_busy(error: Exception) -> bool:
    """Whether SQLite reports that another writer has the lock."""
    reason = error.orig if isinstance(error, DBAPIError) else error
    return bool(getattr(reason, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY)


_writer_locks: Final[dict[str, SqliteWriterLock]] = {}


def writer_lock_of(file: str) -> SqliteWriterLock:
    """The lock of this process's writers on a file, shared by all engines of that file."""
    return _writer_locks.setdefault(file, SqliteWriterLock())


os.register_at_fork(after_in_child=_writer_locks.clear)
