"""A topic: one kind of event as one client may see it, with one reader for all viewers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.web.events.messages import KINDS_READ_IN_PART, EventKind, EventMessage
from peerd.web.events.readers import TopicReader, gone_message
from peerd.web.events.viewer import Viewer
from peerd.web.reading_pauses import ReadingPauses
from peerd.web_server.app_state import RingSubscriptions


class Topic:
    """Reads while it has viewers, and sends each what has changed.

    Args:
        kind: of its events.
        reader: reads its state.
        interval: seconds from the end of a reading to the next one, at the most.
        number: makes the number of each message.
        rings: after which a reading comes soon; None: no ring tells that the topic has changed.
        scope: the queues of which rings matter; None: all.
    """

    def __init__(
        self,
        kind: EventKind,
        reader: TopicReader,
        interval: float,
        number: Callable[[], int],
        rings: RingSubscriptions | None = None,
        scope: frozenset[str] | None = None,
    ) -> None:
        self.viewers: set[Viewer] = set()
        self._kind = kind
        self._reader = reader
        self._pauses = ReadingPauses(interval)
        self._rings = rings
        self._scope = scope
        self._number = number
        self._latest: dict[str, EventMessage] = {}
        self._complete_since = number()
        """A viewer that has had all messages up to this one misses nothing that was since."""
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def join(self, viewer: Viewer, after: int) -> None:
        """Add a viewer, and give it what is newer than the message `after`; if that is too long ago, everything.

        Raises:
            PeerdError: the state cannot be read.
        """
        self.viewers.add(viewer)
        try:
            async with self._lock:
                if self._task is None:
                    await self._read()
                    self._task = asyncio.create_task(self._read_repeatedly(), name=f"events of a {self._kind}")
                    if self._rings is not None:
                        self._rings.subscribe(self._on_ring)
        except BaseException:
            self.leave(viewer)
            raise
        if after < self._complete_since:
            after = 0
            viewer.reset(self._kind)
        for message in self._latest.values():
            viewer.offer(message, is_new=message.number > after)

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; without any, nothing is read."""
        self.viewers.discard(viewer)
        if not self.viewers and self._task is not None:
            self._task.cancel()
            self._task = None
            if self._rings is not None:
                self._rings.unsubscribe(self._on_ring)

    def _on_ring(self, queues: tuple[str, ...]) -> None:
        if not queues or self._scope is None or not self._scope.isdisjoint(queues):
            self._pauses.ring()

    async def _read_repeatedly(self) -> None:
        try:
            while True:
                await self._pauses.wait()
                try:
                    for message in await self._read():
                        self._send(message)
                except DatabaseUnavailable:  # the viewers keep what they have; a later reading tells what has changed
                    continue
        except PeerdError:
            self._close_all("refused")
        except Exception:
            self._close_all("error")
            raise

    async def _read(self) -> list[EventMessage]:
        self._pauses.begin()
        changed: list[EventMessage] = []
        try:
            changed = await self._read_changes()
        finally:
            self._pauses.end(has_changed=bool(changed))
        return changed

    async def _read_changes(self) -> list[EventMessage]:
        """Read the state; return and keep what has changed, with its number."""
        watched = {task for viewer in self.viewers for task in viewer.wanted.tasks}
        state = {message.key: message for message in await self._reader.read(watched)}
        changed = [self._numbered(message) for message in state.values() if self._is_new(message)]
        left = self._latest.keys() - state.keys()
        if self._kind not in KINDS_READ_IN_PART:
            changed += [self._numbered(gone_message(self._kind, key)) for key in sorted(left)]
        self._forget(left)
        for message in changed:
            if message.is_gone:
                self._complete_since = message.number
                self._latest.pop(message.key, None)
            else:
                self._latest[message.key] = message
        return changed

    def _is_new(self, message: EventMessage) -> bool:
        latest = self._latest.get(message.key)
        if message.is_gone:
            return latest is not None
        return latest is None or latest.data != message.data

    def _numbered(self, message: EventMessage) -> EventMessage:
        return message._replace(number=self._number())

    def _forget(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            del self._latest[key]
        if self._kind is EventKind.TASK:
            for viewer in self.viewers:
                viewer.forget_tasks(keys)

    def _send(self, message: EventMessage) -> None:
        for viewer in list(self.viewers):
            viewer.offer(message)

    def _close_all(self, reason: str) -> None:
        for viewer in list(self.viewers):
            viewer.close(reason)
