"""What the screen shows, read in one go by a thread."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from peerd.domain.errors import NotPermitted
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import Client
from peerd.operate.figures import AttemptFigures, Overview
from peerd.store.alerts.reading import AlertRecord
from peerd.store.nodes.loads import NodeLoad
from peerd.store.nodes.nodes import Node
from peerd.store.queue_states import QueueState

MOST_TASKS: Final = 200
MOST_ALERTS: Final = 100


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment.

    Attributes:
        now: the database's time.
        overview: None for an actor that may not see all queues.
        queues: by name.
        figures: of each queue, of the last ten minutes.
        nodes: by name.
        loads: of each node.
        status: of the tasks; None: the newest of whatever status.
        tasks: at the most `MOST_TASKS`.
        has_more_tasks: whether there are others of the status.
        alerts: the latest.
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


def read_cluster(client: Client, status: Status | None) -> Reading:
    """Read everything.

    Args:
        client: of a database or a server.
        status: of the tasks; None: the newest of whatever status.

    Raises:
        PeerdError: the database or the server does not answer, or the actor may see nothing.
    """
    page = client.tasks.page(status=status, limit=MOST_TASKS, bodies=False)
    overview = _read_overview(client)
    return Reading(
        now=client.now() if overview is None else overview.now,
        overview=overview,
        queues=client.queues.list(),
        figures=_queue_figures(client, overview),
        nodes=client.nodes.list(),
        loads={load.name: load for load in client.nodes.loads()},
        status=status,
        tasks=page.items,
        has_more_tasks=page.next is not None,
        alerts=client.alerts.list(limit=MOST_ALERTS).items,
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
