"""Time, alike on every database: nobody waits. It passes by moving every moment of every row into the past.

All spans that the machine uses are such that two moments which a rule compares lie at least two minutes apart, so how
long a run takes does not matter: hours pass in steps of 600 s, and whatever is compared with now is given in odd
multiples of 300 s (and the delay of a retry, which is compared with an end, in odd multiples of 150 s).
"""

from __future__ import annotations

import time
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.connection.database import Database
from peerd.store.schema.tables import metadata
from peerd.store.schema.types import MYSQL, SQLITE_TIME_FORMAT, Instant, now
from tests.model.reference.state import ModelState

STEP: Final = 600
AHEAD: Final = (300.0, 900.0, 3900.0)
"""Seconds from now to a start, an end, or the end of a period."""
SILENCE: Final = (300.0, 1500.0)
"""Seconds after which something is frozen, silent or old."""
DELAYS: Final = (0.0, 450.0, 1050.0)
LEAD: Final = timedelta(seconds=2)
EARLIER: Final = {
    "sqlite": f"strftime('{SQLITE_TIME_FORMAT}', {{column}}, '-{{seconds}} seconds')",
    "postgresql": "{column} - make_interval(secs => {seconds})",
    **dict.fromkeys(MYSQL, "timestampadd(SECOND, -{seconds}, {column})"),
}
"""A moment some seconds earlier. MySQL leaves alone the updated_at that is written."""


class DatabaseClock:
    """What time it is for the database, without asking it each time; a little ahead of it.

    What the database has just written as now is not ahead of now, however long its answer took.
    """

    def __init__(self, database: Database) -> None:
        self._began = time.monotonic()
        self._began_at = database.read(lambda connection: connection.execute(sa.select(now())).scalar_one())

    def now(self) -> datetime:
        moment: datetime = self._began_at + LEAD + timedelta(seconds=time.monotonic() - self._began)
        return moment


def advance_rows(connection: Connection, seconds: int) -> None:
    """Let time pass for all rows: one UPDATE of each table."""
    earlier = EARLIER[connection.dialect.name]
    for table in metadata.tables.values():
        moments = [column.name for column in table.columns if isinstance(column.type, Instant) and not column.computed]
        if moments:
            changes = ", ".join(f"{name} = {earlier.format(column=name, seconds=seconds)}" for name in moments)
            connection.exec_driver_sql(f"UPDATE {table.name} SET {changes}")


def advance_model(state: ModelState, seconds: int) -> None:
    for process_id in state.beats:
        state.beats[process_id] -= timedelta(seconds=seconds)
    for rows in (state.tasks, state.attempts, state.keys, state.nodes, state.queues):
        for row in rows.values():
            for field in fields(row):
                value = getattr(row, field.name)
                if isinstance(value, datetime):
                    setattr(row, field.name, value - timedelta(seconds=seconds))
