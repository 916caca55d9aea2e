"""The ASGI app that all servers serve: two milliseconds of work that holds the event loop, and a kilobyte."""

from __future__ import annotations

import time
from typing import Any

WORK = 0.002
BODY = b"x" * 1024
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]


async def app(scope: Any, _receive: Any, send: Any) -> None:
    """Answer."""
    if scope["type"] != "http":
        return
    time.sleep(WORK)  # noqa: ASYNC251 - careless on purpose: while the loop is held, connections pile up
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
