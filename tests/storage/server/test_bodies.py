"""A body is written in a thread, in its order, while more of it is received."""

from __future__ import annotations

import threading
from collections.abc import Iterable, MutableMapping
from typing import Any

import pytest

from peerd.storage.server.http_io import BLOCK, SMALLEST_BLOCK, ClientGone, Request

SCOPE: dict[str, Any] = {"method": "PUT", "path": "/", "headers": []}
PATIENCE = 60.0


BODIES = [bytes([number]) * BLOCK for number in range(5)]


class Sender:
    """Sends messages of a request, and counts those that were received; if it is cut, its client goes then."""

    def __init__(self, bodies: Iterable[bytes], *, is_cut: bool = False) -> None:
        self._bodies = list(bodies)
        self._is_cut = is_cut
        self.received = 0
        self.second = threading.Event()
        self.gone = threading.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        if self.received == len(self._bodies):
            self.gone.set()
            return {"type": "http.disconnect"}
        self.received += 1
        if self.received >= 2:
            self.second.set()
        is_last = self.received == len(self._bodies) and not self._is_cut
        return {"type": "http.request", "body": self._bodies[self.received - 1], "more_body": not is_last}


async def test_the_next_block_is_received_while_one_is_written() -> None:
    """One block is written at a time, and no more than one is received before: memory is flat in the size of a body."""
    sender, written, ahead, running = Sender(BODIES), bytearray(), list[int](), threading.Lock()

    def write(block: bytes | bytearray) -> None:
        assert running.acquire(blocking=False)
        assert sender.second.wait(PATIENCE), "the second block is not received before the first one is written"
        ahead.append(sender.received - len(ahead))
        written.extend(block)
        running.release()

    await Request(SCOPE, sender.receive).write_to(write)
    assert written == b"".join(BODIES)
    assert max(ahead) <= 2


async def test_an_error_of_the_last_block_is_raised_and_ends_an_earlier_one() -> None:
    def write(block: bytes | bytearray) -> None:
        raise OSError(f"block {block[0]}")

    for number, sent in enumerate((BODIES[:1], BODIES)):
        sender = Sender(sent)
        with pytest.raises(OSError, match="block 0"):
            await Request(SCOPE, sender.receive).write_to(write)
        assert sender.received <= 1 + number, "after an error nothing more is received"


async def test_when_a_client_goes_nothing_is_being_written_any_more() -> None:
    sender, written = Sender(BODIES[:2], is_cut=True), []

    def write(block: bytes | bytearray) -> None:
        if block[0] == 1:
            assert sender.gone.wait(PATIENCE), "the end is not received while the last block is written"
        written.append(block[0])

    with pytest.raises(ClientGone):
        await Request(SCOPE, sender.receive).write_to(write)
    assert written == [0, 1]


async def test_what_came_at_once_is_written_as_it_came_and_little_pieces_are_gathered() -> None:
    large, little = bytes(SMALLEST_BLOCK), bytes(BLOCK // 8)
    written: list[bytes | bytearray] = []
    await Request(SCOPE, Sender([large, *[little] * 12, large]).receive).write_to(written.append)
    assert written[0] is large, "it is not copied"
    assert [len(block) for block in written] == [len(large), BLOCK, BLOCK // 2 + len(large)]
    written.clear()
    await Request(SCOPE, Sender([little] * 3).receive).write_to(written.append, least=1)
    assert written == [little] * 3, "a body that is relayed stands still no longer than that of the client"
