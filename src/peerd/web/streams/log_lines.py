"""The log lines of a task as a stream: one reader per task, however many watch it.

A viewer first reads what is there, at its own speed. Then it gets the lines that the topic of its task finds, which
reads soon after it has found lines, and then less and less often, once in `READ_EVERY` at the least. The topic keeps
the latest lines for viewers that have not taken them yet. One that is too slow for them reads the table itself again
from where it is, so that it misses none and uses no memory.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import Final

import msgspec

from peerd.domain.errors import TaskNotFound, TooManyLogStreams
from peerd.domain.log_line import LogCursor, TaskLogLine, levels_from
from peerd.operate.client import AioClient
from peerd.store.tasks.log_lines import LogPage
from peerd.web.streams.hub import (
    COMPLETE,
    SHORTEST_PAUSE,
    ReadingPauses,
    StreamHub,
    TooManyViewers,
    Topic,
    Viewer,
    encode_event,
)
from peerd.web.views import view

READ_EVERY: Final = 1.0
"""Seconds from the end of a reading of a task's lines to the next one, at the most."""
READINGS_A_SECOND: Final = 100
"""Readings of all tasks together, at the most, unless the pauses would be longer than `READ_EVERY`."""
MAX_BEHIND: Final = 2_000
"""Lines that a topic keeps; a viewer that is further behind reads them itself."""
PAGE: Final = 500
"""Lines that a viewer takes at once."""
RECONNECT_AFTER: Final = 2_000
"""Milliseconds after which a browser connects again; it sends the id of its last line."""
BEFORE_ALL: Final = LogCursor(-1, -1)
"""The place of a viewer that has had no line."""


class LogViewer(Viewer):
    """A viewer of the lines of a task.

    Args:
        client: acts as the actor of its request.
        task_id: the task's.
        after: only lines after this place.
        levels: only lines of these levels; None: of all.
    """

    opening = b"retry: %d\n\n" % RECONNECT_AFTER
    comment = b": nothing new\n\n"
    send_within = 60.0

    def __init__(self, client: AioClient, task_id: int, after: LogCursor, levels: tuple[str, ...] | None) -> None:
        super().__init__()
        self.topic: LogTopic
        """Set when the viewer joins it."""
        self.place = after
        """The place of the last line that the viewer has taken."""
        self._client = client
        self._task_id = task_id
        self._levels = levels
        self.has_more = True

    async def take(self) -> bytes:
        """The next lines: of the topic, or of the table where the topic has them not, or not any more."""
        begin = self.topic.begin
        if begin is not None and self.place >= begin:
            lines = self.topic.lines_after(self.place)
            self.has_more = len(lines) == PAGE
            return self._events_of(lines)
        self.has_more = True
        try:
            page = await read_page(self._client, self._task_id, self.place, PAGE)
        except TaskNotFound:
            self._complete()
            return b""
        events = self._events_of(page.items)
        if page.ended:
            self._complete()
        elif not page.has_more:
            now = self.topic.follow(self.place)
            # If the topic had begun before the page was read, the page has all lines up to that place.
            self.place = max(self.place, min(begin or BEFORE_ALL, now))
        return events

    @property
    def farewell(self) -> bytes:
        """The event that says that the task has ended or was deleted, or that the viewer may connect again."""
        name = "end" if self.end == COMPLETE else "bye"
        return encode_event(name, msgspec.json.encode({"task_id": str(self._task_id)}))

    def _complete(self) -> None:
        """End the stream, since the table has no line that is not taken, and gets none."""
        self.has_more = False
        self.close(COMPLETE)
        self.news.clear()

    def _events_of(self, lines: list[TaskLogLine]) -> bytes:
        if lines:
            self.place = place_of(lines[-1])
        wanted = [line for line in lines if self._levels is None or line.level in self._levels]
        return b"".join(encode_event("line", msgspec.json.encode(view(line, {})), line.cursor) for line in wanted)


class LogTopic(Topic[LogViewer]):
    """The new lines of a task; the latest are kept.

    Args:
        hub: of its viewers. The more topics it has, the longer are the pauses.
        client: reads; what its actor may see, all viewers may.
        task_id: the task's.
    """

    def __init__(self, hub: StreamHub, client: AioClient, task_id: int) -> None:
        pauses = ReadingPauses(READ_EVERY, lambda: max(SHORTEST_PAUSE, len(hub.topics) / READINGS_A_SECOND))
        super().__init__(f"log lines of task {task_id}", pauses)
        self.begin: LogCursor | None = None
        """All lines after this place that were read are kept; None: no viewer has read what is there yet."""
        self._client = client
        self._task_id = task_id
        self._lines: list[TaskLogLine] = []

    async def join(self, viewer: LogViewer) -> None:
        """Add a viewer."""
        self.viewers.add(viewer)
        viewer.topic = self

    def follow(self, place: LogCursor) -> LogCursor:
        """Read from a place on, or from an earlier one, which is returned, if the topic has begun there.

        A later place could miss what another viewer has not read: the first one may name a place beyond all lines.
        """
        if self.begin is None or (not self._lines and place < self.begin):
            self.begin = place
        self.start()
        return self.begin

    def lines_after(self, place: LogCursor) -> list[TaskLogLine]:
        """The next lines after a place that is not before `begin`."""
        first = bisect_right(self._lines, place, key=place_of)
        return self._lines[first : first + PAGE]

    async def read(self) -> bool:
        """Read the new lines, and keep them until all viewers have taken them."""
        begin = self.begin
        assert begin is not None
        last = place_of(self._lines[-1]) if self._lines else begin
        try:
            page = await read_page(self._client, self._task_id, last, 2 * PAGE)
        except TaskNotFound:  # it was deleted
            self.close_all(COMPLETE)
            return False
        if self.begin != begin:  # a viewer has made it begin earlier meanwhile: the lines from there on are read next
            return False
        self._lines += page.items
        self._forget_past()
        for viewer in self.viewers:
            viewer.news.set()
        if page.ended:
            self.close_all(COMPLETE)
        return bool(page.items)

    def _forget_past(self) -> None:
        """Forget the lines that all viewers have taken, and those that too slow ones read themselves."""
        taken = bisect_right(self._lines, min(viewer.place for viewer in self.viewers), key=place_of)
        if past := self._lines[: max(taken, len(self._lines) - MAX_BEHIND)]:
            self.begin = place_of(past[-1])
            del self._lines[: len(past)]


async def read_page(client: AioClient, task_id: int, place: LogCursor, limit: int) -> LogPage:
    """The lines of a task after a place, in the table."""
    return await client.tasks.logs(task_id, after=None if place == BEFORE_ALL else place.text, limit=limit)


def place_of(line: TaskLogLine) -> LogCursor:
    """The place of a line among those of its task."""
    return LogCursor(line.lease, line.sequence)


async def watch_lines(
    hub: StreamHub, client: AioClient, task_id: int, after: str | None, level: str | None
) -> LogViewer:
    """A new viewer of the lines of a task.

    Args:
        hub: of its process.
        client: acts as the actor of the request.
        task_id: the task's.
        after: the cursor of a line; only lines after it.
        level: only lines of this level or a higher one.

    Raises:
        TaskNotFound: there is no such task.
        InvalidFilter: wrong values.
        TooManyLogStreams: this process has as many as it may have, or as many of one actor.
    """
    levels = None if level is None else levels_from(level)
    await client.tasks.logs(task_id, after=after, limit=1)
    viewer = LogViewer(client, task_id, BEFORE_ALL if after is None else LogCursor.parse(after), levels)
    try:
        make = partial(LogTopic, hub, client, task_id)
        await hub.join(viewer, {(client.actor.queues, task_id): make}, client.actor)
    except TooManyViewers:
        raise TooManyLogStreams(hub.max_viewers) from None
    return viewer
