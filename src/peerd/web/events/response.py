"""The response of a stream: it ends when the viewer leaves, reads too slowly, or may not see the events any more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from peerd.web.events.hub import EventHub
from peerd.web.events.messages import encode_message, encode_reset
from peerd.web.events.viewer import Viewer

KEEP_ALIVE: Final = 15.0
"""Seconds after which a comment is sent where nothing else is: proxies cut what is silent."""
RECHECK_EVERY: Final = 60.0
"""Seconds after which the rights of a viewer are checked again."""
SEND_WITHIN: Final = 30.0
"""Seconds that a viewer has to take what is sent."""
HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "connection": "close",
}
COMMENT: Final = b": \n\n"


class EventStream(Response):
    """A stream.

    Args:
        hub: it is left at the end.
        viewer: which has joined.
        is_allowed: whether the viewer may still see the events.
    """

    media_type = "text/event-stream"

    def __init__(self, hub: EventHub, viewer: Viewer, is_allowed: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._viewer = viewer
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(self._wait_until_gone(receive), name="viewer")
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send_body(send, COMMENT)
            await self._send_messages(send)
            if not gone.done():
                await self._send_body(send, b"", more=False)
        except TimeoutError:
            pass  # it reads too slowly; the server closes the connection, since the body is not complete
        finally:
            gone.cancel()
            self._hub.leave(self._viewer)

    async def _send_messages(self, send: Send) -> None:
        viewer, recheck_at = self._viewer, time.monotonic() + RECHECK_EVERY
        while True:
            messages = await viewer.take(KEEP_ALIVE)
            if time.monotonic() >= recheck_at:
                recheck_at = time.monotonic() + RECHECK_EVERY
                if not await self._is_allowed():
                    viewer.close("refused")
                    messages = []
            if viewer.end == "gone":
                return None
            resets, viewer.resets = viewer.resets, []
            parts = [*map(encode_reset, resets), *(encode_message(message, self._hub.boot) for message in messages)]
            encoded = b"".join(parts)
            await self._send_body(send, encoded or COMMENT)
            if viewer.end is not None:
                bye = f"event: bye\ndata: {json.dumps({'reason': viewer.end})}\n\n"
                return await self._send_body(send, bye.encode())

    async def _send_body(self, send: Send, body: bytes, *, more: bool = True) -> None:
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": more})

    @staticmethod
    async def _send(send: Send, message: Message) -> None:
        async with asyncio.timeout(SEND_WITHIN):
            await send(message)

    async def _wait_until_gone(self, receive: Receive) -> None:
        message: Any = await receive()
        while message["type"] != "http.disconnect":
            message = await receive()
        self._viewer.close("gone")
