"""Bodies of requests that a thread reads, while the event loop receives them: a block is in memory, and not more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from peerd.domain.access import Actor, ActorKind
from peerd.domain.errors import PeerdError

T = TypeVar("T")
MOST_UPLOADS: Final = 16
"""Uploads that a process relays at the same time: each has a thread, and a mebibyte."""
SLOWEST: Final = 16 * 1024
"""Bytes in a second that a client must send, over each mebibyte: it holds a place that others wait for."""
PATIENCE: Final = 30.0
"""Seconds that a mebibyte may take beyond that."""
PACED: Final = 1024 * 1024
"""Bytes over which a client is measured."""
GATHERED_FOR: Final = 5.0
"""Seconds after which a node gets what has come: it refuses a body that stands still for half a minute."""
DRAINED: Final = 16 * 1024 * 1024
"""Bytes of a refused body that are read, so that its client gets the answer."""
DRAINED_WITHIN: Final = 5.0
"""Seconds."""


class TooManyUploads(PeerdError):
    """A process relays as many uploads as it may, or as many of one actor."""

    def __init__(self, running: int) -> None:
        self.running = running
        super().__init__(f"this process receives {running} files already; put it again in a moment")


class UploadAborted(PeerdError):
    """The client of an upload has gone or sends too slowly, or the process ends. Nothing was stored."""

    def __init__(self) -> None:
        slow = f"its client has gone, or has sent less than {SLOWEST:,} bytes in a second"
        super().__init__(f"the upload was aborted, and nothing was stored: {slow}; put it again")


class FileUploads:
    """The uploads of this process, each with a thread.

    An actor gets a place while it has fewer than are free: alone it gets half of them.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST_UPLOADS, thread_name_prefix="peerd-upload")
        self._running: Counter[tuple[ActorKind, str]] = Counter()

    @asynccontextmanager
    async def place(self, actor: Actor) -> AsyncIterator[ThreadPoolExecutor]:
        """The threads; one of them is free. Raises TooManyUploads."""
        who, running = (actor.kind, actor.name), self._running.total()
        if self._running[who] >= MOST_UPLOADS - running:
            raise TooManyUploads(running)
        self._running[who] += 1
        try:
            yield self._threads
        finally:
            self._running -= Counter((who,))


class UploadSource:
    """The body of a request, as a thread reads it.

    Args:
        request: of the upload.
        loop: that receives it.
    """

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.is_received = False
        """Whether the whole body was read."""
        self._stream = request.stream()
        self._loop = loop
        self._buffer = bytearray()
        self._lock = threading.Lock()
        self._waiting: Future[bytes] | None = None
        self._is_ended = False
        self._renew_patience()

    async def run(self, threads: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        """Call a function in a thread that reads the body. It is aborted if this is cancelled."""
        try:
            return await self._loop.run_in_executor(threads, function)
        finally:
            self._end()

    def read(self, size: int) -> bytes:
        """So many bytes, fewer of a slow client, none at the end. Raises UploadAborted."""
        with self._lock:
            if self._is_ended:
                raise UploadAborted
            self._waiting = waiting = asyncio.run_coroutine_threadsafe(self._receive(size), self._loop)
        try:
            return waiting.result()
        except (ClientDisconnect, asyncio.CancelledError, TimeoutError) as error:
            raise UploadAborted from error

    async def blocks(self) -> AsyncIterator[bytes]:
        """What is left of the body, for the event loop."""
        while data := await self._receive(65_536):
            yield data

    async def _receive(self, size: int) -> bytes:
        began = self._loop.time()
        async with asyncio.timeout(self._patience):
            while len(self._buffer) < size and not self.is_received:
                try:
                    self._buffer += await anext(self._stream)
                except StopAsyncIteration:
                    self.is_received = True
                if self._buffer and self._loop.time() >= began + GATHERED_FOR:
                    break
        self._patience -= self._loop.time() - began
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        self._left -= len(data)
        if self._left <= 0:
            self._renew_patience()
        return data

    def _renew_patience(self) -> None:
        """Give the client its time for the next mebibyte."""
        self._left = PACED
        self._patience = PATIENCE + PACED / SLOWEST
        """Seconds that are left for waiting for bytes."""

    def _end(self) -> None:
        with self._lock:
            self._is_ended = True
            if self._waiting is not None:
                self._waiting.cancel()


async def drain(request: Request, source: UploadSource) -> bool:
    """Read what is left of a refused body that is small; whether all of it was read."""
    length = request.headers.get("content-length", "")
    if source.is_received:
        return True
    if "expect" in request.headers or not length.isdigit() or int(length) > DRAINED:
        return False
    with contextlib.suppress(ClientDisconnect, TimeoutError):
        async with asyncio.timeout(DRAINED_WITHIN):
            async for _ in source.blocks():
                pass
            return True
    return False
