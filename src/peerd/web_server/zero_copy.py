"""Ranges of files as bodies of responses, sent by the kernel: the ASGI extension `http.response.zerocopysend`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

EXTENSION: Final = "http.response.zerocopysend"


async def send_file_range(cycle: RequestResponseCycle, message: Any) -> None:
    """Send ``count`` bytes of the ``file`` from ``offset``, and end the response unless there is ``more_body``.

    The response has begun, and has a Content-Length. To a client that has gone, nothing is sent, as with other bodies:
    neither this range nor what follows it, although the protocol hears only later that the connection is lost.

    Raises:
        RuntimeError: the app sends more than it has announced, or the file is shorter.
    """
    if cycle.disconnected or cycle.transport.is_closing():  # its response may not have begun for uvicorn
        cycle.disconnected = True
        return
    if not cycle.response_started or cycle.chunked_encoding:
        raise RuntimeError("a file is sent after the start of a response with a content-length")
    count = int(message["count"])
    if count > cycle.expected_content_length:
        raise RuntimeError("the file's range is longer than the content-length")
    if cycle.scope["method"] != "HEAD" and count:
        loop = asyncio.get_running_loop()
        try:
            sent = await loop.sendfile(cycle.transport, message["file"], int(message["offset"]), count)
        except ConnectionError:
            cycle.transport.abort()
            cycle.disconnected = True
            return
        cycle.expected_content_length -= sent
        if sent < count:
            raise RuntimeError(f"the file ends {count - sent} bytes too early")
    if not message.get("more_body", False):
        await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})
