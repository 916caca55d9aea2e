"""SQLite's one writer's lock, taken in turn as far as chance is fair.

SQLite itself looks for it at once, and then less and less often, down to each 100 ms: a writer that has waited is
overtaken by all who come later. Measured with 14 writers of tiny transactions: 2.0 s at the worst, 0.16 s this way.

The writers of one process need not look: they wait for one another at a lock of their own, and only one of them looks
for SQLite's. A process that claims and completes at once spent half of its time in these looks.
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

BUSY_TIMEOUT: Final = 30
"""Seconds that a writer waits for another one."""
LOCK_RETRY_PAUSE: Final = (0.0005, 0.006)
"""Seconds between two looks for the lock, at random."""
YIELD_WITHIN: Final = 1.0
"""Seconds for which a process that has met a writer of another one makes way for it."""


class SqliteWriterLock:
    """The writers of this process on one file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contended_at = -math.inf
        self._released_at = -math.inf

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the one of this process who writes, or looks for SQLite's lock.

        Between two turns without a pause nobody else could find that lock free. So there is one as soon as a writer of
        another process was met.
        """
        acquired = self._lock.acquire(timeout=BUSY_TIMEOUT)  # if not, SQLite's lock decides, and what is said then
        try:
            self._yield_to_other_processes()
            yield
        finally:
            self._released_at = time.monotonic()
            if acquired:
                self._lock.release()

    def retry_while_locked(self, driver: Any, attempt: Callable[[], object]) -> None:
        """Do what needs SQLite's lock, and is undone where another writer has it; wait for that one.

        Args:
            driver: sqlite3's connection, in no transaction.
            attempt: one statement.

        Raises:
            sqlite3.Error: it failed; with SQLITE_BUSY, when the other one had the lock for `BUSY_TIMEOUT`.
        """
        deadline = time.monotonic() + BUSY_TIMEOUT
        driver.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    attempt()
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                        raise
                else:
                    return
                self._contended_at = time.monotonic()
                time.sleep(random.uniform(*LOCK_RETRY_PAUSE))
        finally:
            driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000:.0f}")

    def _yield_to_other_processes(self) -> None:
        now = time.monotonic()
        if now < self._contended_at + YIELD_WITHIN and now < self._released_at + LOCK_RETRY_PAUSE[1]:
            time.sleep(random.uniform(*LOCK_RETRY_PAUSE))


_writer_locks: Final[dict[str, SqliteWriterLock]] = {}


def writer_lock_of(file: str) -> SqliteWriterLock:
    """The writers of this process on a file, however many engines it has for it."""
    return _writer_locks.setdefault(file, SqliteWriterLock())


os.register_at_fork(after_in_child=_writer_locks.clear)
