"""One viewer of a stream: the messages that it has not taken yet, of which there is a bounded number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from peerd.web.events.messages import EventFilter, EventKind, EventMessage

MAX_PENDING: Final = 5_000
"""Messages that wait for a viewer; one that lets more of them wait is dropped. A state replaces an earlier one."""


class Viewer:
    """A viewer. Used on one event loop."""

    def __init__(self, wanted: EventFilter) -> None:
        self.wanted = wanted
        self.end: str | None = None
        """Why the stream ends."""
        self.resets: list[EventKind] = []
        """Kinds whose present state follows as a whole; they are taken by the stream."""
        self._pending: dict[tuple[EventKind, str], EventMessage] = {}
        self._shown: set[str] = set()
        """Tasks that the filter has accepted; the change that leads out of the filter is sent, too."""
        self._changed = asyncio.Event()

    def offer(self, message: EventMessage, *, is_new: bool = True) -> None:
        """Keep a message for the viewer, if it wants it and has not had it before."""
        if not self._wants(message) or not is_new:
            return
        place = (message.kind, message.key)
        self._pending.pop(place, None)
        self._pending[place] = message
        if len(self._pending) > MAX_PENDING:
            self.close("slow")
        self._changed.set()

    def reset(self, kind: EventKind) -> None:
        """Begin anew with the events of a kind."""
        self.resets.append(kind)
        self._changed.set()

    def forget_tasks(self, keys: Iterable[str]) -> None:
        """Forget tasks that are not read any more."""
        self._shown.difference_update(keys)

    def close(self, reason: str) -> None:
        """End the stream, after what is pending."""
        if self.end is None:
            self.end = reason
        self._changed.set()

    async def take(self, within: float) -> list[EventMessage]:
        """The messages that are pending; none if nothing changes in this many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return []
        self._changed.clear()
        pending, self._pending = self._pending, {}
        return sorted(pending.values(), key=lambda message: message.number)

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
