"""A message of a stream, which messages a viewer wants, and how they are written (Server-Sent Events)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from peerd.domain.lifecycle import Status


class EventKind(StrEnum):
    """Of what an event is."""

    TASK = "task"
    QUEUE = "queue"
    NODE = "node"
    ALERT = "alert"


KINDS_READ_IN_PART: Final = frozenset({EventKind.TASK, EventKind.ALERT})
"""Kinds of which only the latest are read: one that is not read any more may still exist."""


class EventMessage(NamedTuple):
    """The state of a task, a queue, a node or an alert, or that it is gone.

    `key` is the id of a task or an alert, or the name; `data` is JSON without line ends; `queue` is that of a task, or
    which an alert is about; `status` is a task's.
    """

    kind: EventKind
    key: str
    data: str
    queue: str | None = None
    status: Status | None = None
    is_gone: bool = False
    number: int = 0
    """Increases with each message of a process."""


class EventFilter(NamedTuple):
    """Which messages a viewer wants: of these kinds, tasks and queues; empty sets are all."""

    kinds: frozenset[EventKind] = frozenset(EventKind)
    tasks: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    statuses: frozenset[Status] = frozenset()

    def accepts(self, message: EventMessage) -> bool:
        """Whether a message is wanted.

        >>> wanted = EventFilter(queues=frozenset({"mail"}))
        >>> wanted.accepts(EventMessage(EventKind.QUEUE, "mail", "{}"))
        True
        >>> wanted.accepts(EventMessage(EventKind.TASK, "7", "{}", "video", Status.DONE))
        False
        """
        if message.kind is EventKind.QUEUE:
            return not self.queues or message.key in self.queues
        if message.kind is EventKind.NODE:
            return True
        is_of_queue = not self.queues or message.queue in self.queues
        if message.kind is EventKind.ALERT:
            return is_of_queue
        is_wanted_task = not self.tasks or message.key in self.tasks
        return is_wanted_task and is_of_queue and (not self.statuses or message.status in self.statuses)


def encode_message(message: EventMessage, boot: str) -> bytes:
    r"""A message in the stream of a process.

    >>> encode_message(EventMessage(EventKind.QUEUE, "mail", '{"name":"mail"}', number=7), "a1")
    b'event: queue\nid: a1-7\ndata: {"name":"mail"}\n\n'
    """
    return f"event: {message.kind}\nid: {boot}-{message.number}\ndata: {message.data}\n\n".encode()


def encode_reset(kind: EventKind) -> bytes:
    r"""That what the viewer has of a kind is outdated, and the present state of all of it follows.

    >>> encode_reset(EventKind.NODE)
    b'event: reset\ndata: {"type":"node"}\n\n'
    """
    return f'event: reset\ndata: {{"type":"{kind}"}}\n\n'.encode()


def last_number(last_event_id: str | None, boot: str) -> int:
    """The number of the last message that a viewer has had; 0 if it was of another process, or is none.

    >>> last_number("a1-7", "a1"), last_number("b2-7", "a1"), last_number("a1-x", "a1"), last_number(None, "a1")
    (7, 0, 0, 0)
    """
    of_boot, _, number = (last_event_id or "").rpartition("-")
    return int(number) if of_boot == boot and number.isascii() and number.isdecimal() and len(number) < 19 else 0
