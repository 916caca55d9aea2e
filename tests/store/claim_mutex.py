"""Standing in the line of claimers, as a test does it; and who waits there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.engine import Connection

from peerd.store.claim.mutex import WORTH_WAITING, Line
from peerd.store.connection.database import Database
from tests.support.manual_clock import Clock

WAITERS: Final = {
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock' AND db = DATABASE()",
    "postgresql": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
}
MANY: Final = WORTH_WAITING
"""Tasks in a claim that lines up."""


def who_has_met() -> Line:
    line = Line(Clock())
    line.met_others()
    return line


def waiting(store: Database) -> int:
    return store.read(lambda connection: int(connection.exec_driver_sql(WAITERS[store.name]).scalar_one()))


@contextmanager
def standing(store: Database, *queues: str) -> Iterator[None]:
    """Somebody has its turn, and takes its time."""

    def stand(connection: Connection) -> Iterator[None]:
        with who_has_met().stand(connection, queues, MANY) as has_turn:
            assert has_turn
            yield

    with store.engines[-1].connect() as connection:
        turn = stand(connection)
        next(turn)
        try:
            yield
        finally:
            next(turn, None)
