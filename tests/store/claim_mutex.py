"""Holding the claim mutex in a test, and counting the claimers that wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.engine import Connection

from peerd.store.connection.database import Database
from peerd.store.take.claimer import MUTEX_FROM_LIMIT, ClaimMutex
from tests.support.manual_clock import ManualClock

WAITERS: Final = {
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()",
    "postgresql": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
}
MANY: Final = MUTEX_FROM_LIMIT
"""Tasks in a claim that acquires the mutex."""


def contended_mutex() -> ClaimMutex:
    mutex = ClaimMutex(ManualClock())
    mutex.record_contention()
    return mutex


def waiting(store: Database) -> int:
    return store.read(lambda connection: int(connection.exec_driver_sql(WAITERS[store.name]).scalar_one()))


@contextmanager
def holding_mutex(store: Database, *queues: str) -> Iterator[None]:
    """Another claimer holds the mutex until the block ends."""

    def acquire(connection: Connection) -> Iterator[None]:
        with contended_mutex().acquire(connection, queues, MANY) as is_acquired:
            assert is_acquired
            yield

    with store.engines.short.connect() as connection:
        acquisition = acquire(connection)
        next(acquisition)
        try:
            yield
        finally:
            next(acquisition, None)
