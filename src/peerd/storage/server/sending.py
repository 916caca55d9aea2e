"""Sending the bytes of contents: ranges of files by the kernel, others as they come."""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Iterator
from io import FileIO

from peerd.storage.disk.open_disk import LocalRange, Piece
from peerd.storage.server.http_io import Response


async def send_pieces(pieces: Iterator[Piece], status: int, headers: dict[str, str | int], response: Response) -> None:
    """Send pieces; the next one is verified while one is sent. The response begins when the first one is verified."""
    piece = await to_thread(next, pieces, None)
    await response.begin(status, headers)
    while piece is not None:
        following = asyncio.ensure_future(to_thread(next, pieces, None))
        try:
            if isinstance(piece, LocalRange):
                await response.file(FileIO(piece.fd, closefd=False), piece.offset, piece.count)
            else:
                await response.bytes(piece)
        finally:
            piece = await following
    await response.end()
