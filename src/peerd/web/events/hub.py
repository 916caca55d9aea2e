"""All streams of a process: their topics, their number, and their end when the process drains."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from itertools import count
from typing import Final

from peerd.operate.client import AioClient
from peerd.runtime.process.process_context import ProcessContext
from peerd.web.events.messages import EventFilter, EventKind, last_number
from peerd.web.events.readers import READERS
from peerd.web.events.topic import Topic
from peerd.web.events.viewer import Viewer
from peerd.web_server.app_state import RingSubscriptions

MAX_VIEWERS: Final = 200
"""Streams of a process."""
INTERVAL: Final = 2.0
"""Seconds between two readings of a topic that does not change."""


Scope = frozenset[str] | None
"""The queues that a client may see; None: all."""


class TooManyViewers(Exception):
    """The process has as many streams as it may have, or it drains."""


class EventHub:
    """The topics and viewers of an app.

    A topic belongs to a scope: requests that may see the same share its reader, which has the client of the first.
    """

    def __init__(self, *, interval: float = INTERVAL, max_viewers: int = MAX_VIEWERS) -> None:
        self.boot = secrets.token_hex(4)
        """Distinguishes the messages of this process from those of others."""
        self.max_viewers = max_viewers
        self.interval = interval
        self._numbers = count(1)
        self._topics: dict[tuple[Scope, EventKind], Topic] = {}
        self._viewers: set[Viewer] = set()
        self._rings: RingSubscriptions | None = None
        self._drain: asyncio.Task[None] | None = None
        self._draining = False

    @property
    def viewers(self) -> int:
        """How many streams there are."""
        return len(self._viewers)

    async def join(self, client: AioClient, wanted: EventFilter, last_event_id: str | None, scope: Scope) -> Viewer:
        """Add a viewer, whose right to view the caller has checked.

        Args:
            client: of its request.
            wanted: which events it wants.
            last_event_id: of the last event that it has received.
            scope: what the client may see.

        Raises:
            TooManyViewers: there is no room.
            PeerdError: a topic cannot be read with this client.
        """
        if self._draining or len(self._viewers) >= self.max_viewers:
            raise TooManyViewers
        viewer = Viewer(wanted)
        self._viewers.add(viewer)
        after = last_number(last_event_id, self.boot)
        try:
            for kind in sorted(wanted.kinds):
                await self._topic(client, scope, kind).join(viewer, after)
        except BaseException:
            self.leave(viewer)
            raise
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer, and the topics that were only its own."""
        self._viewers.discard(viewer)
        for place, topic in list(self._topics.items()):
            topic.leave(viewer)
            if not topic.viewers:
                del self._topics[place]

    def attach(self, process: ProcessContext | None, rings: RingSubscriptions | None) -> None:
        """Heed the rings of the web process, and end all streams when it drains; another server has neither."""
        self._rings = rings
        if process is not None and self._drain is None:
            self._drain = asyncio.create_task(self._close_at_draining(process), name="end of event streams")

    def close_all(self) -> None:
        """End all streams, and take no new ones."""
        self._draining = True
        for viewer in list(self._viewers):
            viewer.close("draining")

    async def _close_at_draining(self, process: ProcessContext) -> None:
        with suppress(asyncio.CancelledError):
            await process.draining.wait()
            self.close_all()

    def _topic(self, client: AioClient, scope: Scope, kind: EventKind) -> Topic:
        place = (scope, kind)
        if place not in self._topics:
            rings = self._rings if kind is EventKind.TASK else None  # the others are read from samples and heartbeats
            reader = READERS[kind](client)
            self._topics[place] = Topic(kind, reader, self.interval, lambda: next(self._numbers), rings, scope)
        return self._topics[place]
