"""Which pieces of a body are verified and sent together, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from peerd.storage.disk.open_disk import LocalRange, Piece
from peerd.storage.server.http_io import ClientGone, Request, Response, next_pieces, send_pieces

CHUNKS = [LocalRange(7, start, 10) for start in range(0, 50, 10)]


def test_ranges_that_follow_one_another_are_one_until_there_are_as_many_bytes_as_wanted() -> None:
    for wanted, sent in ((1, 10), (10, 10), (11, 20), (45, 50), (1000, 50)):
        pieces = iter(CHUNKS)
        assert next_pieces(pieces, wanted) == [LocalRange(7, 0, sent)]
        assert next_pieces(pieces, 1000) == ([LocalRange(7, sent, 50 - sent)] if sent < 50 else [])
    for other in (LocalRange(8, 10, 10), LocalRange(7, 11, 10)):  # of another file, and of another place
        assert next_pieces(iter([CHUNKS[0], other]), 1000) == [CHUNKS[0], other]


def test_bytes_in_memory_end_what_is_sent_together() -> None:
    pieces: list[Piece] = [CHUNKS[0], b"abc", b"def"]
    taken = iter(pieces)
    assert [next_pieces(taken, 1000) for _ in range(3)] == [[CHUNKS[0], b"abc"], [b"def"], []]


async def test_nothing_is_verified_for_a_client_that_has_gone() -> None:
    gone, verified = asyncio.Event(), list[int]()

    def pieces() -> Iterator[Piece]:
        for number in range(100):
            verified.append(number)
            yield b"piece"

    async def receive() -> MutableMapping[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:  # a server says nothing of a client that has gone
        if message["type"] == "http.response.body":
            gone.set()

    request = Request({"method": "GET", "headers": []}, receive)
    with pytest.raises(ClientGone):
        await send_pieces(pieces(), 200, {"content-length": "500"}, request, Response(send))
    assert len(verified) < 10
