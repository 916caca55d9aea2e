"""The bench that counts lost requests can lose none by itself: each way in which a server fails is seen."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from bench.reload import ReloadResult, table
from bench.web_load import KINDS, LoadClient

pytestmark = pytest.mark.slow
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reply(answer: bytes, *, reset: bool = False) -> Answer:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if reset:
            at_once = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        writer.close()

    return handle


async def close_the_second_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a server does that closes an idle connection while a request is on its way."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def counted(kind: str, port: int, requests: int = 4) -> set[str]:
    """What a client counts of so many requests."""
    client, stopped = LoadClient(port, kind), asyncio.Event()
    running = asyncio.create_task(client.run(stopped))
    async with asyncio.timeout(20):
        while client.counts.total() < requests:  # noqa: ASYNC110 - it announces nothing
            await asyncio.sleep(0.005)
    stopped.set()
    await running
    return set(client.counts)


ANSWERS: tuple[tuple[str, Answer, set[str]], ...] = (
    ("new", reply(b""), {"closed without an answer"}),
    ("new", reply(OK[:-1]), {"closed without an answer"}),
    ("new", reply(OK[:20]), {"closed in the middle of the answer"}),
    ("new", reply(b"", reset=True), {"ConnectionResetError in the request"}),
    ("new", reply(OK.replace(b"200 OK", b"503 Busy")), {"status 503"}),
    ("busy", reply(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")), {"ok"}),
    ("busy", close_the_second_time, {"ok", "closed without an answer"}),
)


async def test_each_way_to_lose_a_request_is_counted() -> None:
    port = 0
    for kind, answer, expected in ANSWERS:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await counted(kind, port) == expected
        server.close()
    assert await counted("new", port, 1) == {"ConnectionRefusedError in connecting"}


def test_the_table_shows_what_failed_of_how_many_and_how() -> None:
    counts = {kind: Counter(ok=1000) for kind in KINDS}
    counts["busy"]["closed without an answer"] = 7
    shown = table(
        [
            ReloadResult("uvicorn", "0.54.0", counts, 20, 61.2),
            ReloadResult("peerd", "0.1.0", counts, 3, 9.0, "too slow"),
        ]
    )
    assert "uvicorn 0.54.0  20 × 2 in 61 s  0 of 1,000      7 of 1,007  0 of 1,000" in shown
    assert "uvicorn, keep-alive: 7 × closed without an answer" in shown
    assert shown.endswith("  too slow")
