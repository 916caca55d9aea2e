"""What the topics read: the state of tasks, queues, nodes and alerts as messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import msgspec

from peerd.domain.lifecycle import Status
from peerd.operate.client import AioClient
from peerd.operate.tasks import MAX_RECENT
from peerd.web.events.messages import KINDS_READ_IN_PART, EventKind, EventMessage
from peerd.web.views import Nodes, view

TASKS_OF_EACH_KIND: Final = 200
"""Working tasks, the latest of each status that ended, and the newest ones that are read at once."""

FOLLOWED: Final = 300
"""Tasks that have changed last, which are followed beside those that work."""

ALERTS_OF_EACH_KIND: Final = 200
"""Alerts that are on, and the newest ones."""


class TopicReader(Protocol):
    """Reads the present state of a topic."""

    async def read(self, watched: Collection[str]) -> list[EventMessage]:
        """The state of all that the topic shows; `watched` are ids of tasks that viewers have named."""


class TaskReader:
    """Tasks that work, have ended, are new, have changed lately, or are watched."""

    def __init__(self, client: AioClient) -> None:
        self._client = client
        self._followed: set[int] = set()
        """Of the last reading, the tasks of which the next one tells the state wherever they are then."""

    async def read(self, watched: Collection[str]) -> list[EventMessage]:
        """Their states; of one whose row is gone, that."""
        followed = [*{int(key) for key in watched}, *self._followed][:MAX_RECENT]
        tasks = await self._client.tasks.recent(followed, limit=TASKS_OF_EACH_KIND)
        nodes = {node.id: node for node in await self._client.nodes.list()}
        gone = set(followed) - {task.id for task in tasks}
        working = {task.id for task in tasks if task.status is Status.WORKING}
        changed = sorted(tasks, key=lambda task: task.updated_at)[-FOLLOWED:]
        self._followed = working | {task.id for task in changed}
        messages = [gone_message(EventKind.TASK, str(task_id)) for task_id in sorted(gone)]
        for task in tasks:
            data = _json(task, nodes)
            messages.append(EventMessage(EventKind.TASK, str(task.id), data, task.queue, task.status))
        return messages


class QueueReader:
    """All queues."""

    def __init__(self, client: AioClient) -> None:
        self._client = client

    async def read(self, _: Collection[str]) -> list[EventMessage]:
        """Their states."""
        queues = await self._client.queues.list()
        return [EventMessage(EventKind.QUEUE, queue.name, _json(queue)) for queue in queues]


class NodeReader:
    """All nodes."""

    def __init__(self, client: AioClient) -> None:
        self._client = client

    async def read(self, _: Collection[str]) -> list[EventMessage]:
        """Their states."""
        nodes = await self._client.nodes.list()
        return [EventMessage(EventKind.NODE, node.name, _json(node)) for node in nodes]


class AlertReader:
    """The alerts that are on, and the newest ones."""

    def __init__(self, client: AioClient) -> None:
        self._client = client
        self._on: dict[int, str | None] = {}
        """Of the last reading, those that were on, with the queues that they are about."""

    async def read(self, _: Collection[str]) -> list[EventMessage]:
        """Their states, the oldest first; one that is not on any more and none of the newest is gone."""
        on = await self._client.alerts.list(on=True, limit=ALERTS_OF_EACH_KIND)
        newest = await self._client.alerts.list(limit=ALERTS_OF_EACH_KIND)
        found = {alert.id: alert for alert in (*on.items, *newest.items)}
        over = {alert_id: queue for alert_id, queue in self._on.items() if alert_id not in found}
        self._on = {alert.id: alert.queue for alert in on.items}
        gone = [gone_message(EventKind.ALERT, str(alert_id))._replace(queue=queue) for alert_id, queue in over.items()]
        return gone + [
            EventMessage(EventKind.ALERT, str(alert.id), _json(alert), alert.queue)
            for _, alert in sorted(found.items())
        ]


READERS: Final[Mapping[EventKind, Callable[[AioClient], TopicReader]]] = {
    EventKind.TASK: TaskReader,
    EventKind.QUEUE: QueueReader,
    EventKind.NODE: NodeReader,
    EventKind.ALERT: AlertReader,
}


def gone_message(kind: EventKind, key: str) -> EventMessage:
    """That a task, a queue or a node does not exist any more.

    >>> gone_message(EventKind.TASK, "7").data
    '{"id": "7", "gone": true}'
    """
    field = "id" if kind in KINDS_READ_IN_PART else "name"
    return EventMessage(kind, key, json.dumps({field: key, "gone": True}), is_gone=True)


def _json(value: msgspec.Struct, nodes: Nodes = {}) -> str:  # noqa: B006 - it is only read
    return msgspec.json.encode(view(value, nodes)).decode()
