"""What all streams have in common: topics, read once for all viewers, their end, and the response of a viewer.

No ring tells that a task has begun or ended: it would cost something with each task, watched or not.
But changes come in a row: a task that is enqueued, which rings, begins and mostly ends soon. So after a ring and after
a change the next reading comes soon, and each reading that finds nothing new makes the pause longer.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any, ClassVar, Final, Generic, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from peerd.domain.access import Actor, ActorKind
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.runtime.process.process_context import ProcessContext
from peerd.web_server.app_state import RingSubscriptions

MAX_VIEWERS: Final = 200
"""Streams of a kind in a process."""
INTERVAL: Final = 2.0
"""Seconds between two readings of a topic of events that does not change."""
SHORTEST_PAUSE: Final = 0.25
"""Seconds from the end of a reading to the next one, at least."""
REST: Final = 9.0
"""How many times as long as a reading the pause after it is at least: a tenth of the time is for reading."""

GROWTH: Final = 2.0
"""By how much a reading that finds nothing new makes the pause longer."""
COMPLETE: Final = "complete"
"""The end of a stream to which nothing will be added: its viewer gets the rest first."""


KEEP_ALIVE: Final = 15.0
"""Seconds after which a comment is sent where nothing else is: proxies cut what is silent."""
RECHECK_EVERY: Final = 60.0
"""Seconds after which the rights of a viewer are checked again."""
HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "connection": "close",
}
V = TypeVar("V", bound="Viewer")


class TooManyViewers(Exception):
    """The process has as many streams as it may have, or as many of one actor, or it drains."""


class StreamHub:
    """The topics and viewers of an app. Requests that may see the same share a topic, which the first of them makes."""

    def __init__(self, *, interval: float = INTERVAL, max_viewers: int = MAX_VIEWERS) -> None:
        self.boot = secrets.token_hex(4)
        """Distinguishes the messages of this process from those of others."""
        self.next_number = count(1).__next__
        """Makes the number of each message."""
        self.interval = interval
        self.max_viewers = max_viewers
        self.topics: dict[Hashable, Topic[Any]] = {}
        self.rings: RingSubscriptions | None = None
        self.viewers: set[Viewer] = set()
        """All streams."""
        self._drain: asyncio.Task[None] | None = None
        self._draining = False

    async def join(self, viewer: V, topics: Mapping[Hashable, Callable[[], Topic[V]]], actor: Actor) -> None:
        """Add a viewer to topics; each is made if it is not there.

        An actor gets a place while it has fewer than are free: alone it gets half of them.

        Args:
            viewer: is added.
            topics: by what may be seen in them.
            actor: whose rights the caller has checked.

        Raises:
            TooManyViewers: there is no room.
            PeerdError: a topic cannot be read.
        """
        viewer.owner = actor.kind, actor.name
        own = sum(one.owner == viewer.owner for one in self.viewers)
        if self._draining or own >= self.max_viewers - len(self.viewers):
            raise TooManyViewers
        self.viewers.add(viewer)
        try:
            for place, make in topics.items():
                if place not in self.topics:
                    self.topics[place] = make()
                await self.topics[place].join(viewer)
        except BaseException:
            self.leave(viewer)
            raise

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer, and the topics that were only its own."""
        self.viewers.discard(viewer)
        for place, topic in list(self.topics.items()):
            topic.leave(viewer)
            if not topic.viewers:
                del self.topics[place]

    def attach(self, process: ProcessContext | None, rings: RingSubscriptions | None) -> None:
        """Heed the rings of the web process, and end all streams when it drains; another server has neither."""
        self.rings = rings
        if process is not None and self._drain is None:
            self._drain = asyncio.create_task(self._close_at_draining(process), name="end of streams")

    def close_all(self) -> None:
        """End all streams, and take no new ones."""
        self._draining = True
        for viewer in list(self.viewers):
            viewer.close("draining")

    async def _close_at_draining(self, process: ProcessContext) -> None:
        with suppress(asyncio.CancelledError):
            await process.draining.wait()
            self.close_all()


class Viewer(ABC):
    """An open stream. It is used on one event loop.

    Attributes:
        opening: the first bytes of the stream.
        comment: sent where nothing else is.
        send_within: seconds that the viewer has to take what is sent.
    """

    opening: ClassVar[bytes]
    comment: ClassVar[bytes]
    send_within: ClassVar[float]

    def __init__(self) -> None:
        self.owner: tuple[ActorKind, str] | None = None
        """The actor that has opened it."""
        self.end: str | None = None
        """Why the stream ends."""
        self.news = asyncio.Event()
        self.has_more = False
        """Whether there is more to take than was taken, beside what is new."""

    @abstractmethod
    async def take(self) -> bytes:
        """What is new for the viewer, or the next part of it, as events of a stream."""

    @property
    @abstractmethod
    def farewell(self) -> bytes:
        """The last event of the stream."""

    def close(self, reason: str) -> None:
        """End the stream; of one that is complete, what is pending is taken first."""
        self.end = self.end or reason
        self.news.set()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is to be taken any more."""
        return self.end is not None and not (self.end == COMPLETE and (self.has_more or self.news.is_set()))


class Topic(ABC, Generic[V]):
    """Reads while it has viewers, and tells them what is new.

    Args:
        name: of what is read.
        pauses: between two readings.
    """

    def __init__(self, name: str, pauses: ReadingPauses) -> None:
        self.viewers: set[V] = set()
        self._name = name
        self._pauses = pauses
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def join(self, viewer: V) -> None:
        """Add a viewer. Raises PeerdError if the topic cannot be read."""

    @abstractmethod
    async def read(self) -> bool:
        """Read, and tell the viewers what is new; whether anything is."""

    def leave(self, viewer: V) -> None:
        """Remove a viewer; without any, nothing is read."""
        self.viewers.discard(viewer)
        if not self.viewers:
            self.stop()

    @property
    def is_started(self) -> bool:
        """Whether it reads again and again."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Read again and again, until all viewers have left or are about to."""
        if not self.is_started:
            self._task = asyncio.create_task(self._read_repeatedly(), name=self._name)

    def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def close_all(self, reason: str) -> None:
        """End the streams of all viewers."""
        for viewer in self.viewers:
            viewer.close(reason)

    async def read_in_time(self) -> None:
        """Read, and let the length of the reading and what it finds decide when the next one comes."""
        self._pauses.begin()
        has_changed = False
        try:
            has_changed = await self.read()
        finally:
            self._pauses.end(has_changed=has_changed)

    async def _read_repeatedly(self) -> None:
        try:
            while any(viewer.end is None for viewer in self.viewers):
                await self._pauses.wait()
                with suppress(DatabaseUnavailable):  # viewers keep what they have; a later reading tells the changes
                    await self.read_in_time()
        except PeerdError:
            self.close_all("refused")
        except Exception:
            self.close_all("error")
            raise


class ReadingPauses:
    """The pauses of one reader. Used on one event loop.

    Args:
        longest: seconds between two readings, at the most.
        shortest: seconds, at the least, as they are now.
    """

    def __init__(self, longest: float, shortest: Callable[[], float] = lambda: SHORTEST_PAUSE) -> None:
        self._longest = longest
        self._shortest = shortest
        self._least = self._pause = 0.0
        self._rung = asyncio.Event()
        self._was_rung = False
        self._began_at = self._ended_at = 0.0

    def ring(self) -> None:
        """Something may have changed: read as soon as the least pause is over."""
        self._rung.set()

    def begin(self) -> None:
        """A reading begins; what rings from now on is for the next one."""
        self._was_rung = self._rung.is_set()
        self._rung.clear()
        self._began_at = asyncio.get_running_loop().time()

    def end(self, *, has_changed: bool) -> None:
        """The reading has ended, and has found something new or not."""
        self._ended_at = asyncio.get_running_loop().time()
        took = self._ended_at - self._began_at
        self._least = min(max(self._shortest(), REST * took), self._longest)
        later = min(GROWTH * self._pause, self._longest)
        self._pause = self._least if has_changed or self._was_rung else max(self._least, later)

    async def wait(self) -> None:
        """Wait until the next reading is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ended_at + self._pause):
                await self._rung.wait()
        await asyncio.sleep(self._ended_at + self._least - asyncio.get_running_loop().time())


def encode_event(name: str, data: bytes, event_id: str | None = None) -> bytes:
    r"""An event of a stream (Server-Sent Events), whose data is JSON without line ends.

    >>> encode_event("line", b'{"message":"a"}', "3-17"), encode_event("end", b"{}")
    (b'event: line\nid: 3-17\ndata: {"message":"a"}\n\n', b'event: end\ndata: {}\n\n')
    """
    head = f"event: {name}\n" + (f"id: {event_id}\n" if event_id is not None else "")
    return head.encode() + b"data: " + data + b"\n\n"


class EventStream(StreamingResponse):
    """A stream.

    Args:
        hub: it is left at the end.
        viewer: which has joined.
        is_allowed: whether the viewer may still see the events.
    """

    def __init__(self, hub: StreamHub, viewer: Viewer, is_allowed: Callable[[], Awaitable[bool]]) -> None:
        self._events = self._all_events()
        super().__init__(self._events, headers=HEADERS)
        self._hub = hub
        self._viewer = viewer
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they, or the viewer, end."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._viewer.send_within):
                await send(message)

        try:
            async with aclosing(self._events):
                # One that reads too slowly is left; the server closes the connection, since the body is not complete.
                with suppress(TimeoutError):
                    await super().__call__(scope, receive, send_in_time)
        finally:
            self._hub.leave(self._viewer)

    async def _all_events(self) -> AsyncGenerator[bytes]:
        yield self._viewer.opening
        viewer, sent_at = self._viewer, time.monotonic()
        recheck_at = sent_at + RECHECK_EVERY
        while not viewer.has_ended:
            if not viewer.has_more:
                with suppress(TimeoutError):
                    async with asyncio.timeout(sent_at + KEEP_ALIVE - time.monotonic()):
                        await viewer.news.wait()
            viewer.news.clear()
            new = await viewer.take()
            if time.monotonic() >= recheck_at:
                recheck_at = time.monotonic() + RECHECK_EVERY
                if not await self._is_allowed():
                    viewer.close("refused")
                    break
            if new or time.monotonic() >= sent_at + KEEP_ALIVE:
                yield new or viewer.comment
                sent_at = time.monotonic()
        yield viewer.farewell
