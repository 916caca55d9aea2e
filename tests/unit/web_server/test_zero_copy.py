from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.observability import events
from peerd.testing import eventually_async
from peerd.web_server.http import LARGE_READ, SMALL_READ
from tests.unit.web_server.conftest import Serve

SIZE = 3_000_000


class FileApp:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        if scope["method"] == "PUT":
            await self._hash(receive, send)
            return
        assert "http.response.zerocopysend" in scope["extensions"]
        parts = [tuple(map(int, part.split("-"))) for part in scope["path"].strip("/").split(",")]
        total = int(scope["query_string"] or sum(count for _, count in parts))
        await _begin(send, total)
        with self.path.open("rb") as file:
            for number, (offset, count) in enumerate(parts, 1):
                part = {"file": file, "offset": offset, "count": count, "more_body": number < len(parts)}
                await send({"type": "http.response.zerocopysend", **part})

    async def _hash(self, receive: Any, send: Any) -> None:
        digest, more = hashlib.sha256(), True
        while more:
            message = await receive()
            digest.update(message["body"])
            self.chunks.append(len(message["body"]))
            more = message["more_body"]
        await _begin(send, 64)
        await send({"type": "http.response.body", "body": digest.hexdigest().encode()})


async def _begin(send: Any, length: int) -> None:
    headers = [(b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


@pytest.fixture
def app(tmp_path: Path) -> FileApp:
    path = tmp_path / "content"
    path.write_bytes(bytes(number * 7 % 251 for number in range(SIZE)))
    return FileApp(path)


async def test_ranges_of_a_file_are_one_body_and_the_connection_stays_open(serve: Serve, app: FileApp) -> None:
    client, content = await (await serve(app)).connect(), app.path.read_bytes()
    for path, expected in ((f"/0-{SIZE}", content), ("/5-10,100-3", content[5:15] + content[100:103]), ("/7-0", b"")):
        client.request(path)
        assert await read_answer(client) == (200, expected)
    client.send("HEAD /0-100 HTTP/1.1\nhost: a\n\nGET /1-2 HTTP/1.1\nhost: a\n\n")
    assert b"content-length: 100" in await client.reader.readuntil(b"\r\n\r\n")
    assert await read_answer(client) == (200, content[1:3])


async def read_answer(client: Any) -> tuple[int, bytes]:
    head = (await client.reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].split()[0])
    return int(head.split()[1]), await client.reader.readexactly(length)


async def test_a_wrong_range_is_reported_and_a_client_that_leaves_is_no_failure(serve: Serve, app: FileApp) -> None:
    served = await serve(app)
    for path, error in (
        (f"/{SIZE - 5}-10", "the file ends 5 bytes too early"),
        ("/0-10?5", "the file's range is longer than the content-length"),
        ("/0-10?15", "Response content shorter than Content-Length"),
    ):
        client = await served.connect()
        client.request(path)
        await client.reader.read(-1)
        [event] = [one for one in served.events if isinstance(one, events.WebRequestFailed)]
        assert error in event.error
        served.events.clear()
    client = await served.connect()
    client.request(f"/0-{SIZE}")
    await client.reader.readexactly(1000)
    client.writer.transport.abort()
    await eventually_async(lambda: not served.server.connections.open)
    assert [one for one in served.events if isinstance(one, events.WebRequestFailed)] == []


async def test_a_large_body_arrives_whole_and_a_request_after_it_is_its_own(serve: Serve, app: FileApp) -> None:
    served, content = await serve(app), app.path.read_bytes()
    parts = [content[begin : begin + 70_000] for begin in range(0, SIZE, 70_000)]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    for header, body in ((b"content-length: %d" % SIZE, content), (b"transfer-encoding: chunked", chunked)):
        client = await served.connect()
        client.writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\n%b\r\n\r\n%b" % (header, body))
        client.writer.write(b"GET /3-4 HTTP/1.1\r\nhost: a\r\n\r\n")
        assert await read_answer(client) == (200, hashlib.sha256(content).hexdigest().encode()), header
        assert await read_answer(client) == (200, content[3:7]), header
        assert body is chunked or max(app.chunks) > 16_384, "it was not parsed in small blocks"


async def test_more_is_read_at_once_of_a_large_body_than_of_others(serve: Serve, app: FileApp) -> None:
    served = await serve(app)
    client = await served.connect()
    client.writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\nx" % SIZE)
    await eventually_async(lambda: app.chunks)
    [connection] = served.server.connections.open
    assert vars(connection.transport)["max_size"] == LARGE_READ
    client.writer.write(bytes(SIZE - 1) + b"GET /3-4 HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (await read_answer(client))[0] == 200
    assert (await read_answer(client))[0] == 200
    assert vars(connection.transport)["max_size"] == SMALL_READ
