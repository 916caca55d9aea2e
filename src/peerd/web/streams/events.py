"""Changes of tasks, queues, nodes and alerts as a stream: which of them a viewer wants, and the topic of a kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from peerd.domain.lifecycle import Status
from peerd.operate.client import AioClient
from peerd.web.streams.hub import ReadingPauses, StreamHub, Topic, Viewer, encode_event
from peerd.web.streams.states import KINDS_READ_IN_PART, READERS, EventKind, EventMessage, gone_message

MAX_PENDING: Final = 5_000
"""Messages that wait for a viewer; one that lets more of them wait is dropped. A state replaces an earlier one."""


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


class EventViewer(Viewer):
    """A viewer of events, which keeps a bounded number of messages that it has not taken yet.

    Args:
        wanted: which events it wants.
        boot: names the process in the ids of messages.
        after: the number of the last message that the viewer has had.
    """

    opening = comment = b": \n\n"
    send_within = 30.0

    def __init__(self, wanted: EventFilter, boot: str = "", after: int = 0) -> None:
        super().__init__()
        self.wanted = wanted
        self.after = after
        self._boot = boot
        self._resets: list[EventKind] = []
        """Kinds whose present state follows as a whole."""
        self._pending: dict[tuple[EventKind, str], EventMessage] = {}
        self._shown: set[str] = set()
        """Tasks that the filter has accepted; the change that leads out of the filter is sent, too."""

    def offer(self, message: EventMessage, *, is_new: bool = True) -> None:
        """Keep a message for the viewer, if it wants it and has not had it before."""
        if not self._wants(message) or not is_new:
            return
        place = (message.kind, message.key)
        self._pending.pop(place, None)
        self._pending[place] = message
        if len(self._pending) > MAX_PENDING:
            self.close("slow")
        self.news.set()

    def reset(self, kind: EventKind) -> None:
        """Tell that what the viewer has of a kind is outdated, and the present state of all of it follows."""
        self._resets.append(kind)
        self.news.set()

    def forget_tasks(self, keys: Iterable[str]) -> None:
        """Forget tasks that are not read any more."""
        self._shown.difference_update(keys)

    async def take(self) -> bytes:
        """The resets and messages that are pending."""
        resets, self._resets = self._resets, []
        parts = [encode_event("reset", msgspec.json.encode({"type": kind})) for kind in resets]
        parts += [
            encode_event(one.kind, one.data.encode(), f"{self._boot}-{one.number}") for one in self.take_messages()
        ]
        return b"".join(parts)

    def take_messages(self) -> list[EventMessage]:
        """The messages that are pending, in their order."""
        pending, self._pending = self._pending, {}
        return sorted(pending.values(), key=lambda message: message.number)

    @property
    def farewell(self) -> bytes:
        """The event that says why the stream ends."""
        return encode_event("bye", msgspec.json.encode({"reason": self.end}))

    def _wants(self, message: EventMessage) -> bool:
        is_accepted = self.wanted.accepts(message)
        if message.kind is not EventKind.TASK:
            return is_accepted
        if is_accepted:
            self._shown.add(message.key)
            return True
        was_shown = message.key in self._shown
        self._shown.discard(message.key)
        return was_shown


class EventTopic(Topic[EventViewer]):
    """A kind of event as one client may see it, which sends each viewer what has changed.

    Args:
        hub: of its viewers.
        client: reads, for all viewers that may see the same.
        kind: of its events.
    """

    def __init__(self, hub: StreamHub, client: AioClient, kind: EventKind) -> None:
        super().__init__(f"events of a {kind}", ReadingPauses(hub.interval))
        self._kind = kind
        self._reader = READERS[kind](client)
        self._rings = hub.rings if kind is EventKind.TASK else None  # the others are read from samples and heartbeats
        self._queues = client.actor.queues
        self._next_number = hub.next_number
        self._latest: dict[str, EventMessage] = {}
        self._complete_since = hub.next_number()
        """A viewer that has had all messages up to this one misses nothing that was since."""
        self._lock = asyncio.Lock()
        if self._rings is not None:
            self._rings.subscribe(self._on_ring)

    async def join(self, viewer: EventViewer) -> None:
        """Add a viewer, and give it what is newer than its last message; if that is too long ago, everything."""
        self.viewers.add(viewer)
        async with self._lock:
            if not self.is_started:
                await self.read_in_time()
                self.start()
        after = viewer.after
        if after < self._complete_since:
            after = 0
            viewer.reset(self._kind)
        for message in self._latest.values():
            viewer.offer(message, is_new=message.number > after)

    def stop(self) -> None:
        """Read no more, and need no rings."""
        super().stop()
        if self._rings is not None:
            self._rings.unsubscribe(self._on_ring)

    def _on_ring(self, queues: tuple[str, ...]) -> None:
        if not queues or self._queues is None or not self._queues.isdisjoint(queues):
            self._pauses.ring()

    async def read(self) -> bool:
        """Read the state, keep what has changed, with its number, and offer it to all viewers."""
        watched = {task for viewer in self.viewers for task in viewer.wanted.tasks}
        state = {message.key: message for message in await self._reader.read(watched)}
        changed = [message for message in state.values() if self._is_new(message)]
        left = self._latest.keys() - state.keys()
        if self._kind not in KINDS_READ_IN_PART:
            changed += [gone_message(self._kind, key) for key in sorted(left)]
        for key in left:
            del self._latest[key]
        for viewer in self.viewers:
            viewer.forget_tasks(left)
        for message in changed:
            self._send(message._replace(number=self._next_number()))
        return bool(changed)

    def _is_new(self, message: EventMessage) -> bool:
        latest = self._latest.get(message.key)
        if message.is_gone:
            return latest is not None
        return latest is None or latest.data != message.data

    def _send(self, message: EventMessage) -> None:
        if message.is_gone:
            self._complete_since = message.number
            self._latest.pop(message.key, None)
        else:
            self._latest[message.key] = message
        for viewer in self.viewers:
            viewer.offer(message)


async def watch_events(
    hub: StreamHub, client: AioClient, wanted: EventFilter, last_event_id: str | None = None
) -> EventViewer:
    """A new viewer of events.

    Args:
        hub: of its process.
        client: of its request; requests that may see the same queues share the readings of the first one's.
        wanted: which events it wants.
        last_event_id: of the last event that it has received.

    Raises:
        TooManyViewers: there is no room.
        PeerdError: a topic cannot be read with this client.
    """
    viewer = EventViewer(wanted, hub.boot, last_number(last_event_id, hub.boot))
    topics: dict[Hashable, Callable[[], EventTopic]] = {
        (client.actor.queues, kind): partial(EventTopic, hub, client, kind) for kind in sorted(wanted.kinds)
    }
    await hub.join(viewer, topics, client.actor)
    return viewer


def last_number(last_event_id: str | None, boot: str) -> int:
    """The number of the last message that a viewer has had; 0 if it was of another process, or is none.

    >>> last_number("a1-7", "a1"), last_number("b2-7", "a1"), last_number("a1-x", "a1"), last_number(None, "a1")
    (7, 0, 0, 0)
    """
    of_boot, _, number = (last_event_id or "").rpartition("-")
    return int(number) if of_boot == boot and number.isascii() and number.isdecimal() and len(number) < 19 else 0
