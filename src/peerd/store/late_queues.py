"""Queues whose pending tasks wait for too long, and those of them that no process serves."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy.engine import Connection

from peerd.store.queues import has_jobs_of_clients
from peerd.store.statistics.depths import QueueDepth


class LateQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is open and whose oldest pending task has been due for a while.

    Attributes:
        name: its name.
        age: seconds for which the task has been due.
        is_served: a worker process has ever served it, or queue clients use it.
    """

    name: str
    age: float
    is_served: bool


def find_late_queues(
    connection: Connection, sample: Iterable[QueueDepth], longer_than: float, unserved_after: float
) -> list[LateQueue]:
    """The queues of a sample whose oldest pending task has been due for ``longer_than`` seconds.

    Those that no process has ever served are found after ``unserved_after`` seconds already, paused ones never.
    """
    found = []
    for depth in sample:
        age = 0.0 if depth.oldest is None or depth.paused else depth.oldest
        if age >= min(longer_than, unserved_after):
            is_served = depth.known or has_jobs_of_clients(connection, depth.queue)
            if age >= (longer_than if is_served else unserved_after):
                found.append(LateQueue(name=depth.queue, age=age, is_served=is_served))
    return found
