"""The states of tasks, queues, nodes and alerts as messages of a stream, and how they are read."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import AioClient
from peerd.operate.tasks import MAX_RECENT
from peerd.web.views import Nodes, view

TASKS_OF_EACH_KIND: Final = 200
"""Working tasks, the latest of each status that ended, and the newest ones that are read at once."""

FOLLOWED: Final = 300
"""Tasks that have changed last, which are followed beside those that work."""

ALERTS_OF_EACH_KIND: Final = 200
"""Alerts that are on, and the newest ones."""


class EventKind(StrEnum):
    """The kind of what an event is about."""

    TASK = "task"
    QUEUE = "queue"
    NODE = "node"
    ALERT = "alert"


KINDS_READ_IN_PART: Final = frozenset({EventKind.TASK, EventKind.ALERT})
"""Kinds with only their latest rows read: a row that is not read any more may still exist."""


class EventMessage(NamedTuple):
    """The state of a task, a queue, a node or an alert, or that it is gone.

    `key` is the id of a task or an alert, or the name; `data` is JSON without line ends; `queue` is a task's, or an
    alert's; `status` is a task's.
    """

    kind: EventKind
    key: str
    data: str
    queue: str | None = None
    status: Status | None = None
    is_gone: bool = False
    number: int = 0
    """Increases with each message of a process."""


def gone_message(kind: EventKind, key: str, queue: str | None = None) -> EventMessage:
    """The message that a task, a queue, a node or an alert does not exist any more.

    >>> gone_message(EventKind.TASK, "7").data
    '{"id": "7", "gone": true}'
    """
    field = "id" if kind in KINDS_READ_IN_PART else "name"
    return EventMessage(kind, key, json.dumps({field: key, "gone": True}), queue, is_gone=True)


class StateReader(ABC):
    """Reads the present state of all that a topic shows, with the client of its first viewer."""

    def __init__(self, client: AioClient) -> None:
        self._client = client

    @abstractmethod
    async def read(self, watched: Collection[str]) -> list[EventMessage]:
        """The state of everything; `watched` are ids of tasks that viewers have named."""


class TaskReader(StateReader):
    """Tasks that work, have ended, are new, have changed lately, or are watched."""

    _followed: Collection[int] = frozenset()
    """The tasks of the last reading whose state the next one tells, wherever they are then."""

    async def read(self, watched: Collection[str]) -> list[EventMessage]:
        """The states of these tasks; of one whose row is gone, that it is gone."""
        followed = sorted({*map(int, watched), *self._followed})
        found: dict[int, Task] = {}
        for begin in range(0, max(1, len(followed)), MAX_RECENT):
            limit = 1 if begin else TASKS_OF_EACH_KIND
            read = await self._client.tasks.recent(followed[begin : begin + MAX_RECENT], limit=limit)
            found |= {task.id: task for task in read}
        tasks = found.values()
        nodes = {node.id: node for node in await self._client.nodes.list()}
        gone = set(followed) - found.keys()
        working = {task.id for task in tasks if task.status is Status.WORKING}
        changed = sorted(tasks, key=lambda task: task.updated_at)[-FOLLOWED:]
        self._followed = working | {task.id for task in changed}
        return [gone_message(EventKind.TASK, str(task_id)) for task_id in sorted(gone)] + [
            EventMessage(EventKind.TASK, str(task.id), _json(task, nodes), task.queue, task.status) for task in tasks
        ]


class QueueReader(StateReader):
    """All queues."""

    async def read(self, _: Collection[str]) -> list[EventMessage]:
        """The states of all queues."""
        queues = await self._client.queues.list()
        return [EventMessage(EventKind.QUEUE, one.name, _json(one)) for one in queues]


class NodeReader(StateReader):
    """All nodes."""

    async def read(self, _: Collection[str]) -> list[EventMessage]:
        """The states of all nodes."""
        nodes = await self._client.nodes.list()
        return [EventMessage(EventKind.NODE, one.name, _json(one)) for one in nodes]


class AlertReader(StateReader):
    """The alerts that are on, and the newest ones."""

    _on: Mapping[int, str | None] = {}
    """The alerts that were on in the last reading, with the queues that they are about."""

    async def read(self, _: Collection[str]) -> list[EventMessage]:
        """The states of these alerts, the oldest first; one that is not on any more and none of the newest is gone."""
        on = await self._client.alerts.list(on=True, limit=ALERTS_OF_EACH_KIND)
        newest = await self._client.alerts.list(limit=ALERTS_OF_EACH_KIND)
        found = {alert.id: alert for alert in (*on.items, *newest.items)}
        over = {alert_id: queue for alert_id, queue in self._on.items() if alert_id not in found}
        self._on = {alert.id: alert.queue for alert in on.items}
        return [gone_message(EventKind.ALERT, str(alert_id), queue) for alert_id, queue in over.items()] + [
            EventMessage(EventKind.ALERT, str(alert.id), _json(alert), alert.queue)
            for _, alert in sorted(found.items())
        ]


READERS: Final[Mapping[EventKind, type[StateReader]]] = {
    EventKind.TASK: TaskReader,
    EventKind.QUEUE: QueueReader,
    EventKind.NODE: NodeReader,
    EventKind.ALERT: AlertReader,
}


def _json(value: msgspec.Struct, nodes: Nodes | None = None) -> str:
    return msgspec.json.encode(view(value, nodes or {})).decode()
