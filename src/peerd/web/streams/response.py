"""The response of a stream: it ends when the viewer leaves, reads too slowly, or may not see the events any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from peerd.web.streams.hub import StreamHub, Viewer

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
