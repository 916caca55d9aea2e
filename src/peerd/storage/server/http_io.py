"""Requests and responses of ASGI, as far as storage needs them: bodies in large blocks, and of files by the kernel."""

from __future__ import annotations

import asyncio
import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from io import FileIO
from typing import Any, Final
from urllib.parse import parse_qsl

from peerd.storage.awaiting import Run
from peerd.storage.disk.open_disk import LocalRange, Piece

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BLOCK: Final = 1024 * 1024
"""Bytes of a body that are gathered before a thread writes them."""
SMALLEST_BLOCK: Final = BLOCK // 2
"""Bytes that are written as they came: gathering them with others would copy them."""
ZERO_COPY: Final = "http.response.zerocopysend"
MOST_AHEAD: Final = 32 * 1024 * 1024
"""Bytes of a file of this node that are verified while others are sent: eight chunks of most contents. The process does
not hold them, but the system should have them in its memory still when they are sent."""


class ClientGone(Exception):
    """The client has closed the connection before its request was complete, or its response."""


class BodyTooLarge(ValueError):
    """A body that is read as a whole is larger than allowed."""


class Request:
    """A request.

    Args:
        scope: of ASGI.
        receive: of ASGI.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.is_received = False
        """Whether the whole body has been read."""
        self._receive = receive

    @property
    def target(self) -> str:
        """Path and query as they were sent."""
        query = self.scope["query_string"].decode("latin-1")
        path = self.scope["raw_path"].decode("latin-1")
        return f"{path}?{query}" if query else path

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query; of several with one name, the last."""
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100))

    @property
    def content_length(self) -> int | None:
        """The announced bytes of the body."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() else None

    async def blocks(self, least: int = BLOCK) -> AsyncIterator[bytes | bytearray]:
        """The body in blocks of about so many bytes, or more. Raises ClientGone."""
        block, more = bytearray(), True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientGone
            received: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            self.is_received = not more
            if not block and len(received) >= min(least, SMALLEST_BLOCK):
                yield received
                continue
            block += received
            if len(block) >= least:
                yield block
                block = bytearray()
        if block:
            yield block

    async def write_to(
        self, write: Callable[[bytes | bytearray], object], run: Run = to_thread, least: int = BLOCK
    ) -> None:
        """Give the body to a function, block by block, in a thread, while the next block is received.

        When it ends, the function runs no more, unless the request was cancelled.

        Args:
            write: called with each block; one call at a time.
            run: calls a function in a thread.
            least: bytes that are gathered for a call.

        Raises:
            ClientGone: not all of it came; and what ``write`` raises.
        """
        writing: asyncio.Future[object] | None = None
        try:
            async for block in self.blocks(least):
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(run(write, block))
        finally:
            if writing is not None:
                await writing

    async def until_gone(self) -> None:
        """Return when the client has closed the connection; what it still sends of the body is dropped."""
        while (await self._receive())["type"] == "http.request":
            pass

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge, ClientGone."""
        whole = bytearray()
        async for block in self.blocks():
            whole += block
            if len(whole) > limit:
                raise BodyTooLarge(f"the body is larger than {limit} bytes")
        return bytes(whole)


class Response:
    """A response that is being sent.

    Args:
        send: of ASGI.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.has_ended = False

    async def begin(self, status: int, headers: Mapping[str, str | int]) -> None:
        """Send the status and the headers."""
        self.has_begun = True
        encoded = [(name.encode(), str(value).encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def bytes(self, data: bytes | bytearray | memoryview, *, is_last: bool = False) -> None:
        """Send bytes of the body."""
        self.has_ended = is_last
        await self._send({"type": "http.response.body", "body": bytes(data), "more_body": not is_last})

    async def file(self, file: Any, offset: int, count: int) -> None:
        """Send a range of an open file."""
        await self._send({"type": ZERO_COPY, "file": file, "offset": offset, "count": count, "more_body": True})

    async def end(self) -> None:
        """Send the end of the body."""
        self.has_ended = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str | int] | None = None) -> None:
        """Send a whole response with a JSON body."""
        body = json.dumps(value, ensure_ascii=False).encode()
        more = {"content-type": "application/json", "content-length": len(body), **(headers or {})}
        await self.begin(status, more)
        await self.bytes(body, is_last=True)

    async def empty(self, status: int, headers: Mapping[str, str | int] | None = None) -> None:
        """Send a response without a body."""
        await self.begin(status, {**(headers or {}), **({} if status in {204, 304} else {"content-length": 0})})
        await self.end()


async def send_pieces(
    pieces: Iterator[Piece],
    status: int,
    headers: Mapping[str, str | int],
    request: Request,
    response: Response,
    first: Sequence[Piece] | None = None,
    run: Run = to_thread,
) -> None:
    """Send pieces; the next ones are verified while some are sent. The response begins when the first one is verified.

    Args:
        pieces: of the body.
        status: of the response.
        headers: of the response, with the length of the body.
        request: that is answered.
        response: is begun, and ended.
        first: pieces before the others, which are verified already.
        run: calls a function in a thread.

    Raises:
        ClientGone: nothing more is verified for the client.
    """
    some = first if first is not None else await run(next_pieces, pieces, 1)
    await response.begin(status, headers)
    left = int(headers["content-length"])
    gone = asyncio.create_task(request.until_gone())
    try:
        while some:
            if gone.done():
                raise ClientGone
            count = sum(map(size_of, some))
            left -= count
            following = asyncio.ensure_future(run(next_pieces, pieces, min(MOST_AHEAD, 2 * count))) if left else None
            try:
                for piece in some:
                    if isinstance(piece, LocalRange):
                        await response.file(FileIO(piece.fd, closefd=False), piece.offset, piece.count)
                    else:
                        await response.bytes(piece, is_last=not left and piece is some[-1])
            finally:
                some = [] if following is None else await following
    finally:
        gone.cancel()
    if not response.has_ended:
        await response.end()


def next_pieces(pieces: Iterator[Piece], wanted: int) -> list[Piece]:
    """The next pieces; ranges of a file that follow one another are one. None are left when the list is empty.

    Args:
        pieces: of a body.
        wanted: bytes of a file of this node after which it ends; it ends behind other bytes too, which are in memory.
    """
    found: list[Piece] = []
    for piece in pieces:
        wanted -= size_of(piece)
        last = found[-1] if found else None
        if isinstance(piece, LocalRange) and isinstance(last, LocalRange) and _follows(piece, last):
            found[-1] = LocalRange(last.fd, last.offset, last.count + piece.count)
        else:
            found.append(piece)
        if wanted <= 0 or isinstance(piece, bytes):
            break
    return found


def size_of(piece: Piece) -> int:
    """The bytes of a piece."""
    return piece.count if isinstance(piece, LocalRange) else len(piece)


def _follows(piece: LocalRange, last: LocalRange) -> bool:
    return (piece.fd, piece.offset) == (last.fd, last.offset + last.count)
