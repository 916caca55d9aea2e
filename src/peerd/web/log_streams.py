"""Streams of log lines, as server-sent events: one reader per task, however many watch it.

A watcher first reads what is there, at its own speed. Then it gets the lines that the reader of its task finds, which
reads soon after it has found lines, and then less and less often, once in `READ_EVERY` at the least. A watcher that is
too slow for them loses them, and reads them itself again from where it is, so that it misses none and uses little
memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from peerd.domain.errors import DatabaseUnavailable, TaskNotFound, TooManyLogStreams
from peerd.domain.log_line import LogCursor, TaskLogLine, levels_from
from peerd.operate.client import AioClient
from peerd.runtime.process.process_context import ProcessContext
from peerd.web.dependencies import scope_of
from peerd.web.reading_pauses import SHORTEST_PAUSE, ReadingPauses

IsAllowed = Callable[[], Awaitable[bool]]

READ_EVERY: Final = 1.0
"""Seconds from the end of a reading of a task's lines to the next one, at the most."""
READINGS_A_SECOND: Final = 100
"""Of all tasks together, at the most, unless the pauses would be longer than `READ_EVERY`."""
MAX_STREAMS: Final = 200
"""Streams of a process at once."""
MAX_BEHIND: Final = 2_000
"""Lines that wait for a watcher; one that is further behind reads them itself."""
PAGE: Final = 500
"""Lines that a watcher reads at once."""
COMMENT_EVERY: Final = 15.0
"""Seconds after which a stream without lines gets a comment, so that proxies do not close it."""
SEND_WITHIN: Final = 60.0
"""Seconds after which a client that takes nothing is given up."""
RECONNECT_AFTER: Final = 2_000
"""Milliseconds after which a browser connects again; it sends the id of its last line."""
RECHECK_EVERY: Final = 60.0
"""Seconds after which the rights of a watcher are checked again."""
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


class LogStreams:
    """The streams of a process."""

    def __init__(self) -> None:
        self.count = 0
        self._readers: dict[tuple[int, frozenset[str] | None], LogReader] = {}

    async def open(
        self,
        client: AioClient,
        task_id: int,
        after: str | None,
        level: str | None,
        process: ProcessContext | None,
        is_allowed: IsAllowed,
    ) -> EventStreamResponse:
        """The stream of a task's lines.

        Args:
            client: acts as the actor of the request.
            task_id: the task's.
            after: the cursor of a line; only lines after it.
            level: only lines of this level or a higher one.
            process: the web process, whose end ends the stream.
            is_allowed: whether the actor may still see what it could.

        Raises:
            TaskNotFound: there is no such task.
            InvalidFilter: wrong values.
            TooManyLogStreams: this process has as many as it may have.
        """
        levels = None if level is None else levels_from(level)
        await client.tasks.logs(task_id, after=after, limit=1)
        if self.count >= MAX_STREAMS:
            raise TooManyLogStreams(MAX_STREAMS)
        watcher = LogWatcher(self, client, task_id, after, levels, process, is_allowed)
        return EventStreamResponse(self, watcher.events())

    def join(self, client: AioClient, watcher: LogWatcher) -> LogReader:
        """The reader of the watcher's task, which collects lines for it from now on.

        What a reader finds is what its own actor may see, so watchers of other queues have another.
        """
        key = watcher.task_id, scope_of(client)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = LogReader(self, client, watcher.task_id)
        reader.watchers.add(watcher)
        return reader

    def close(self, reader: LogReader) -> None:
        """The reader reads no more."""
        if self._readers.get(reader.key) is reader:
            del self._readers[reader.key]

    @property
    def reading(self) -> int:
        """How many readers read."""
        return len(self._readers)


class LogReader:
    """Reads the new lines of a task, while it has watchers."""

    def __init__(self, streams: LogStreams, client: AioClient, task_id: int) -> None:
        self.task_id = task_id
        self.key = task_id, scope_of(client)
        self.watchers: set[LogWatcher] = set()
        self._streams = streams
        self._client = client
        self._reading: asyncio.Task[None] | None = None

    def start(self, cursor: str | None) -> None:
        """Read from a place on, if it does not read yet: a later one could miss what its first watcher has not read."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all(cursor), name=f"log lines of task {self.task_id}")

    def leave(self, watcher: LogWatcher) -> None:
        """One watches no more."""
        self.watchers.discard(watcher)
        if not self.watchers:
            self._streams.close(self)
            if self._reading is not None:
                self._reading.cancel()

    async def _read_all(self, cursor: str | None) -> None:
        pauses = ReadingPauses(READ_EVERY, lambda: max(SHORTEST_PAUSE, self._streams.reading / READINGS_A_SECOND))
        try:
            is_over = False
            while not is_over:
                await pauses.wait()
                pauses.begin()
                lines: list[TaskLogLine] = []
                with suppress(DatabaseUnavailable):
                    page = await self._client.tasks.logs(self.task_id, after=cursor, limit=2 * PAGE)
                    cursor, is_over, lines = page.next, page.ended, page.items
                    self._give(lines)
                pauses.end(has_changed=bool(lines))
        except TaskNotFound:  # it was deleted
            is_over = True
        finally:
            self._streams.close(self)
            for watcher in self.watchers:
                watcher.end(self._reading)

    def _give(self, lines: list[TaskLogLine]) -> None:
        if lines:
            for watcher in self.watchers:
                watcher.take(lines)


class LogWatcher:
    """One stream."""

    def __init__(
        self,
        streams: LogStreams,
        client: AioClient,
        task_id: int,
        after: str | None,
        levels: tuple[str, ...] | None,
        process: ProcessContext | None,
        is_allowed: IsAllowed,
    ) -> None:
        self.task_id = task_id
        self._streams = streams
        self._client = client
        self._place = LogCursor(-1, -1) if after is None else LogCursor.parse(after)
        self._levels = levels
        self._process = process
        self._is_allowed = is_allowed
        self._is_refused = False
        self._recheck_at = time.monotonic() + RECHECK_EVERY
        self._lines: deque[TaskLogLine] = deque()
        self._is_behind = False
        self._ended_with: asyncio.Task[None] | None = None
        self._is_over = False
        self._news = asyncio.Event()

    def take(self, lines: list[TaskLogLine]) -> None:
        """Lines that the reader has found."""
        if len(self._lines) + len(lines) > MAX_BEHIND:
            self._lines.clear()
            self._is_behind = True
        elif not self._is_behind:
            self._lines.extend(lines)
        self._news.set()

    def end(self, reading: asyncio.Task[None] | None) -> None:
        """The reader has ended: the task has, or the reading has failed."""
        self._ended_with, self._is_over = reading, True
        self._news.set()

    async def events(self) -> AsyncIterator[bytes]:
        """The events of the stream."""
        yield b"retry: %d\n\n" % RECONNECT_AFTER
        reader = self._streams.join(self._client, self)
        try:
            is_caught_up = False
            while not (is_caught_up or self._must_leave):
                self._is_behind = False
                async for event in self._catch_up():
                    yield event
                if not (self._is_over or self._must_leave):
                    reader.start(None if self._place.lease < 0 else self._place.text)
                async for event in self._follow():
                    yield event
                is_caught_up = not self._is_behind
            yield _event("bye" if self._must_leave else "end", {"task_id": str(self.task_id)})
        except TaskNotFound:
            yield _event("end", {"task_id": str(self.task_id)})
        finally:
            reader.leave(self)

    @property
    def _is_stopping(self) -> bool:
        return self._process is not None and self._process.draining.is_set()

    @property
    def _must_leave(self) -> bool:
        return self._is_stopping or self._is_refused

    async def _check_rights(self) -> None:
        """Look, once in `RECHECK_EVERY`, whether the rights of the watcher have ended."""
        if time.monotonic() >= self._recheck_at:
            self._recheck_at = time.monotonic() + RECHECK_EVERY
            self._is_refused = not await self._is_allowed()

    async def _catch_up(self) -> AsyncIterator[bytes]:
        """What is in the table beyond the place of this watcher."""
        has_more = True
        while has_more and not self._must_leave:
            after = None if self._place.lease < 0 else self._place.text
            page = await self._client.tasks.logs(self.task_id, after=after, limit=PAGE)
            has_more, self._is_over = page.has_more, self._is_over or page.ended
            await self._check_rights()
            if self._is_refused:
                return
            for event in self._events_of(page.items):
                yield event

    async def _follow(self) -> AsyncIterator[bytes]:
        """What the reader finds, until the end, or until this watcher is too far behind."""
        silence = 0.0
        while not (self._is_behind or self._must_leave):
            await self._check_rights()
            while self._lines and not self._is_refused and not self._is_behind:
                for event in self._events_of([self._lines.popleft()]):
                    silence = 0.0
                    yield event
                await self._check_rights()
            if self._is_refused:
                return
            if self._is_over and not self._is_behind:
                if self._ended_with is not None and self._ended_with.done():
                    self._ended_with.result()
                return
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_EVERY):
                    await self._news.wait()
                continue
            silence += READ_EVERY
            if silence >= COMMENT_EVERY:
                silence = 0.0
                yield b": nothing new\n\n"

    def _events_of(self, lines: list[TaskLogLine]) -> list[bytes]:
        events = []
        for line in lines:
            place = LogCursor(line.lease, line.sequence)
            if place > self._place:
                self._place = place
                if self._levels is None or line.level in self._levels:
                    events.append(_event("line", view_of(line), line.cursor))
        return events


class EventStreamResponse(StreamingResponse):
    """A stream of events, which is counted while it is open."""

    def __init__(self, streams: LogStreams, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they, or the client, end."""
        self._streams.count += 1

        async def send_within(message: Any) -> None:
            async with asyncio.timeout(SEND_WITHIN):
                await send(message)

        try:
            async with aclosing(self.body_iterator):  # type: ignore[type-var]  # it is a generator
                with suppress(TimeoutError):
                    await super().__call__(scope, receive, send_within)
        finally:
            self._streams.count -= 1


def view_of(line: TaskLogLine) -> dict[str, Any]:
    """A line as the API shows it; ids are text."""
    return msgspec.structs.asdict(line) | {"lease": str(line.lease), "cursor": line.cursor}


def _event(name: str, data: dict[str, Any], event_id: str | None = None) -> bytes:
    """An event; JSON has no line end in it, so the data is one line."""
    head = f"event: {name}\n" + (f"id: {event_id}\n" if event_id is not None else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"
