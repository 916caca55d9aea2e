"""What the screen shows, read in one go by a thread."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from peerd.domain.errors import NotPermitted
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.operate.figures import AttemptFigures, Overview
from peerd.store.alerts import AlertRecord
from peerd.store.nodes import Node, NodeLoad
from peerd.store.queue_states import QueueState

MOST_TASKS: Final = 200
MOST_ALERTS: Final = 100
SEARCHED_FOR: Final = 0.5
"""Seconds that a page of tasks which are rare is searched for: a page by itself ends sooner."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment.

    Attributes:
        now: the database's time.
        overview: None for an actor that may not see all queues, and in the first reading.
        queues: by name.
        figures: of each queue, of the last ten minutes.
        nodes: by name.
        loads: of each node.
        status: of the tasks; None: the newest of whatever status.
        tasks: at the most `MOST_TASKS`.
        has_more_tasks: whether there are others of the status.
        alerts: the latest.
        is_first: the rows alone, which are there sooner than the figures.
    """

    now: datetime
    overview: Overview | None
    queues: list[QueueState]
    figures: dict[str, AttemptFigures]
    nodes: list[Node]
    loads: dict[str, NodeLoad]
    status: Status | None
    tasks: list[Task]
    has_more_tasks: bool
    alerts: list[AlertRecord]
    is_first: bool


def read_cluster(client: Client, status: Status | None, *, is_first: bool = False) -> Reading:
    """Read everything, or the rows alone.

    Args:
        client: of a database or a server.
        status: of the tasks; None: the newest of whatever status.
        is_first: see `Reading`.

    Raises:
        PeerdError: the database or the server does not answer, or the actor may see nothing.
    """
    read_page = partial(client.tasks.page, status=status, bodies=False)
    page, until = read_page(limit=MOST_TASKS), time.monotonic() + SEARCHED_FOR
    while page.next is not None and len(page.items) < MOST_TASKS and time.monotonic() < until:
        more = read_page(after=page.next, limit=MOST_TASKS - len(page.items))
        page = msgspec.structs.replace(more, items=[*page.items, *more.items])
    overview = None if is_first else _read_overview(client)
    return Reading(
        now=client.now() if overview is None else overview.now,
        overview=overview,
        queues=client.queues.list(),
        figures={} if is_first else _queue_figures(client, overview),
        nodes=client.nodes.list(),
        loads={load.name: load for load in client.nodes.loads()},
        status=status,
        tasks=page.items,
        has_more_tasks=page.next is not None,
        alerts=client.alerts.list(limit=MOST_ALERTS).items,
        is_first=is_first,
    )


def _read_overview(client: Client) -> Overview | None:
    try:
        return client.statistics.overview()
    except NotPermitted:
        return None


def _queue_figures(client: Client, overview: Overview | None) -> dict[str, AttemptFigures]:
    if overview is not None:
        return {queue.name: queue.figures for queue in overview.queues if queue.figures is not None}
    return {row.queue or "": row.figures for row in client.statistics.summary("10m", by="queue")}
