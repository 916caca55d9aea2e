"""Standing in the line of claimers, as a test does it; and who waits there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.engine import Connection

from peerd.store.claim.mutex import MUTEX_FROM_LIMIT, ClaimMutex
from peerd.store.connection.database import Database
from tests.support.manual_clock import ManualClock

WAITERS: Final = {
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()",
    "postgresql": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
}
MANY: Final = MUTEX_FROM_LIMIT
"""Tasks in a claim that lines up."""


def contended_mutex() -> ClaimMutex:
    mutex = ClaimMutex(ManualClock())
    mutex.record_contention()
    return mutex


def waiting(store: Database) -> int:
    return store.read(lambda connection: int(connection.exec_driver_sql(WAITERS[store.name]).scalar_one()))


@contextmanager
def standing(store: Database, *queues: str) -> Iterator[None]:
    """Somebody has its turn, and takes its time."""

    def acquire(connection: Connection) -> Iterator[None]:
        with contended_mutex().acquire(connection, queues, MANY) as is_acquired:
            assert is_acquired
            yield

    with store.engines[-1].connect() as connection:
        turn = acquire(connection)
        next(turn)
        try:
            yield
        finally:
            next(turn, None)
