"""What the screen shows, read in one go by a thread: the screen never waits for a database or a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from threading import Thread
from typing import Final, TypeVar

import msgspec
from textual.app import App
from textual.screen import Screen

from peerd.cli.errors import CommandError, to_command_error
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
        node_names: the names of the nodes, by their ids.
        loads: of each node.
        utilisation: of each node, as far as it is known: the share of its slots that are busy.
        status: of the tasks; None: the newest of all.
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
    node_names: dict[int, str]
    loads: dict[str, NodeLoad]
    utilisation: dict[str, float | None]
    status: Status | None
    tasks: list[Task]
    has_more_tasks: bool
    alerts: list[AlertRecord]
    is_first: bool


def read_cluster(client: Client, status: Status | None, *, is_first: bool = False) -> Reading:
    """Read everything, or the rows alone.

    Args:
        client: of a database or a server.
        status: of the tasks; None: the newest of all.
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
    nodes = client.nodes.list()
    return Reading(
        now=client.now() if overview is None else overview.now,
        overview=overview,
        queues=client.queues.list(),
        figures={} if is_first else _queue_figures(client, overview),
        nodes=nodes,
        node_names={node.id: node.name for node in nodes},
        loads={load.name: load for load in client.nodes.loads()},
        utilisation={} if overview is None else {node.name: node.utilisation for node in overview.nodes},
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


# ---------------------------------------------------------------- in the background


T = TypeVar("T")
U = TypeVar("U")


def run_in_background(
    call: Callable[[], T],
    then: Callable[[T], None],
    failed: Callable[[CommandError], None],
    receiver: App[None] | Screen[None],
) -> None:
    """Call a function in a thread, and give its result to the receiver's event loop; a closed receiver gets nothing.

    The thread is a daemon. Textual's own threads are joined at the end, so that an application that waits for a
    database which does not answer could not be quit.

    Args:
        call: what is done; it may wait.
        then: gets the result.
        failed: gets an expected error. Any other error ends the application, with its traceback.
        receiver: the application or screen that calls ``then`` and ``failed``.
    """

    def deliver(function: Callable[[U], None], value: U) -> None:
        if receiver.app.is_running:  # its widgets are removed, one by one, before it stops to receive
            function(value)

    def run() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - the receiver raises what is not expected
            failure = to_command_error(error)
            if failure is None:
                receiver.call_later(_reraise, error)
            else:
                receiver.call_later(deliver, failed, failure)
        else:
            receiver.call_later(deliver, then, result)

    Thread(target=run, name="peerd-top", daemon=True).start()


def _reraise(error: Exception) -> None:
    raise error
