"""Events of a server as an iterator: a stream whose process or connection ends is opened again where it was."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from threading import Lock
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from peerd.domain.errors import DatabaseUnavailable
from peerd.operate.remote.errors import ServerUnreachable, UnexpectedAnswer
from peerd.operate.remote.http import PAUSES, Answer, ServerConnection
from peerd.runtime.concurrency import start_thread

MAX_EVENT: Final = 1024 * 1024
"""Bytes of an event."""
SILENCE: Final = 45.0
"""Seconds without any byte after which the connection counts as lost; a server sends a comment every 15."""


class ClusterEvent(msgspec.Struct, frozen=True):
    """An event of a cluster.

    Attributes:
        type: ``task``, ``queue``, ``node`` or ``alert``; or ``reset``: what was received of ``data["type"]`` is
            outdated, and its present state follows.
        data: the task, queue, node or alert as the REST API shows it; or its id or name, and ``gone``.
    """

    type: str
    data: dict[str, Any]


class EventParser:
    r"""Parses a stream of events; `feed` takes any part of it.

    >>> parser = EventParser("http://a")
    >>> list(parser.feed(b': \n\nevent: node\nid: a-1\ndata: {"na'))
    []
    >>> list(parser.feed(b'me":"one"}\n\n')), parser.last_id
    ([ClusterEvent(type='node', data={'name': 'one'})], 'a-1')
    """

    def __init__(self, server: str) -> None:
        self.last_id: str | None = None
        self._server = server
        self._rest = b""

    def feed(self, part: bytes) -> Iterator[ClusterEvent]:
        """The events that are complete now; raises UnexpectedAnswer for what is none."""
        *blocks, self._rest = (self._rest + part).split(b"\n\n")
        if len(self._rest) > MAX_EVENT:
            raise UnexpectedAnswer(self._server, f"an event has more than {MAX_EVENT} bytes")
        for block in blocks:
            if (event := self._parse(block)) is not None:
                yield event

    def restart(self) -> None:
        """Forget an event that was cut off."""
        self._rest = b""

    def _parse(self, block: bytes) -> ClusterEvent | None:
        fields: dict[str, str] = {}
        try:
            for line in block.decode().split("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
            if "event" not in fields:  # a comment
                return None
            event = ClusterEvent(fields["event"], msgspec.json.decode(fields["data"], type=dict[str, Any]))
        except (KeyError, ValueError, RecursionError) as error:
            raise UnexpectedAnswer(self._server, f"an event cannot be read: {error}") from None
        self.last_id = fields.get("id", self.last_id)
        return event


class EventReader:
    """Reads the events of a server, one after the other, in one thread at a time.

    Args:
        connection: with the server.
        query: of the request.
        error_of: makes the error of an answer that is no stream.
    """

    def __init__(
        self, connection: ServerConnection, query: dict[str, Any], error_of: Callable[[Answer], Exception]
    ) -> None:
        self._connection = connection
        self._query = query
        self._error_of = error_of
        self._parser = EventParser(connection.address.shown)
        self._open = ExitStack()
        self._parts: Iterator[bytes] | None = None
        self._events: Iterator[ClusterEvent] = iter(())
        self._failures = 0
        self._closed = False
        self._lock = Lock()

    def read(self) -> ClusterEvent | None:
        """Wait for an event; None if the server has only shown that it lives, or the stream was opened again.

        Raises:
            DatabaseUnavailable: it was lost and cannot be opened again; of the server itself, ServerUnreachable.
            ServerRefused, UnexpectedAnswer: the server has no such stream.
        """
        with self._lock:
            if self._closed:
                return None
            try:
                return self._read()
            except DatabaseUnavailable:
                self._leave()
                self._failures += 1
                if self._failures > len(PAUSES):
                    raise
                time.sleep(PAUSES[self._failures - 1])
                return None
            except BaseException:
                self._leave()
                raise
            finally:
                self._leave_if_closed()

    def close(self) -> None:
        """Close the stream; a thread that reads does it when the server sends the next byte."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            self._leave()
            self._lock.release()

    def __iter__(self) -> Iterator[ClusterEvent]:
        """All events; the stream is closed with the iterator."""
        try:
            while not self._closed:
                if (event := self.read()) is not None:
                    yield event
        finally:
            self.close()

    def _read(self) -> ClusterEvent | None:
        parts = self._parts = self._parts or self._enter()
        for event in self._events:
            if event.type == "bye":
                self._leave()
                return None
            return event
        part = next(parts, None)
        if part is None:
            raise ServerUnreachable(self._connection.address.shown, "the stream of events has ended")
        self._failures = 0
        self._events = self._parser.feed(part)
        return None

    def _enter(self) -> Iterator[bytes]:
        connection = self._connection
        headers = {} if self._parser.last_id is None else {"last-event-id": self._parser.last_id}
        target = f"{connection.prefix}/events?{urlencode(self._query, doseq=True)}"
        response = self._open.enter_context(
            connection.request("GET", connection.url, target, headers=headers, timeout=SILENCE)
        )
        connection.refuse_redirect(response)
        if response.status != HTTPStatus.OK:
            raise self._error_of(connection.read(response, connection.address.timeout, time.monotonic()))
        content_type = response.getheader("content-type", "").partition(";")[0]
        if content_type != "text/event-stream":
            raise UnexpectedAnswer(self._connection.address.shown, f"it is {content_type[:80]!r}, no stream of events")
        self._parser.restart()
        return connection.parts(response, SILENCE)

    def _leave_if_closed(self) -> None:
        if self._closed:
            self._leave()

    def _leave(self) -> None:
        self._parts = None
        self._events = iter(())
        self._open.close()


def event_query(
    types: Sequence[str], tasks: Sequence[int], queues: Sequence[str], statuses: Sequence[str]
) -> dict[str, Any]:
    """The query of a stream.

    >>> event_query(["task"], [7, 8], [], [])
    {'type': ['task'], 'task': [7, 8]}
    """
    given = {"type": types, "task": tasks, "queue": queues, "status": statuses}
    return {name: list(values) for name, values in given.items() if values}


async def iterate_async(reader: EventReader) -> AsyncIterator[ClusterEvent]:
    """The events of a reader, which waits in a thread of its own: those of a pool are for what ends soon."""
    try:
        while True:
            if (event := await start_thread(reader.read, name="events")) is not None:
                yield event
    finally:
        reader.close()
