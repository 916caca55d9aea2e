"""Pauses that queue clients give a tube; they hold for workers, too."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import delay_until_start
from peerd.store.jobs.statistics import whole_seconds_left
from peerd.store.jobs.types import TubePause
from peerd.store.queues import pause, resume
from peerd.store.schema.tables import queues
from peerd.store.schema.types import now


def pause_tube(connection: Connection, queue: str, seconds: int) -> None:
    """Let no client reserve from a tube, and no worker claim from it, for some seconds; 0 ends a pause.

    Raises:
        InvalidTask: the name is not valid for a queue.
    """
    pause(connection, queue, delay_until_start(seconds))
    if not seconds:
        resume(connection, queue)
    connection.execute(sa.update(queues).where(queues.c.name == queue).values(pause=seconds, updated_at=now()))


def pause_state(connection: Connection, queue: str) -> TubePause:
    """The pause of a tube, zeros once it has ended; one without an end, which a user has given, has a second left."""
    columns = (queues.c.pause, queues.c.paused, queues.c.paused_until, now().label("now"))
    row = connection.execute(sa.select(*columns).where(queues.c.name == queue)).first()
    if row is None or not row.paused or (row.paused_until is not None and row.paused_until <= row.now):
        return TubePause(0, 0)
    left = 1 if row.paused_until is None else whole_seconds_left(row.now, row.paused_until)
    return TubePause(int(row.pause or 0), left)
