"""Sending the bytes of contents: ranges of files by the kernel, others as they come."""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from typing import Final

from peerd.storage.awaiting import Run
from peerd.storage.disk.open_disk import LocalRange, Piece
from peerd.storage.server.http_io import Response

MOST_AHEAD: Final = 32 * 1024 * 1024
"""Bytes of a file of this node that are verified while others are sent: eight chunks of most contents. The process does
not hold them, but the system should have them in its memory still when they are sent."""


async def send_pieces(
    pieces: Iterator[Piece],
    status: int,
    headers: Mapping[str, str | int],
    response: Response,
    first: Sequence[Piece] | None = None,
    run: Run = to_thread,
) -> None:
    """Send pieces; the next ones are verified while some are sent. The response begins when the first one is verified.

    Args:
        pieces: of the body.
        status: of the response.
        headers: of the response, with the length of the body.
        response: is begun, and ended.
        first: pieces before the others, which are verified already.
        run: calls a function in a thread.
    """
    some = first if first is not None else await run(next_pieces, pieces, 1)
    await response.begin(status, headers)
    left = int(headers["content-length"])
    while some:
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
