from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from peerd.runtime.observability import events
from peerd.testing import eventually_async
from peerd.web_server.http import LARGE_READ, SMALL_READ, HttpProtocol
from peerd.web_server.lifespan import StartupFailed
from tests.unit.web_server.apps import App
from tests.unit.web_server.conftest import Serve, web_settings

TOO_LARGE = "the request's line and headers are too large"


async def test_the_app_finds_its_process_in_each_scope_and_requests_are_logged(serve: Serve) -> None:
    app = App()
    served = await serve(app, web_settings(access_log=True))
    client = await served.connect()
    assert await client.answered("/%0Aa?secret=1") == (200, "keep-alive", "/\na")
    [event] = served.events
    assert isinstance(event, events.WebRequestAnswered)
    assert (event.what, event.status) == ("GET /%0Aa", 200)
    socket = await served.connect()
    key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\n"
    socket.request("/", "upgrade: websocket\nconnection: upgrade\nsec-websocket-version: 13\n" + key)
    assert (await socket.answer())[0] == 101
    assert app.states == [(kind, "the context") for kind in ("lifespan", "http", "websocket")]


async def test_a_request_that_raises_is_answered_with_500_and_has_no_other_effect(serve: Serve) -> None:
    served = await serve(App())
    for path, error in (("/broken", "RuntimeError: it is broken"), ("/leaves", "SystemExit: 3")):
        status, connection, _ = await (await served.connect()).answered(path)
        assert (status, connection) == (500, "close")
        event = served.events.pop()
        assert isinstance(event, events.WebRequestFailed)
        assert (event.what, event.error) == (f"GET {path}", error)
        assert "apps.py" in event.traceback
    assert (served.events, served.lost) == ([], [])
    assert (await (await served.connect()).answered("/a"))[0] == 200


async def test_a_head_that_is_too_large_or_does_not_come_is_refused(serve: Serve) -> None:
    served = await serve(App(), web_settings(max_head=1000))
    at_once = await served.connect()
    at_once.request("/", f"x: {'y' * 1000}\n")
    assert (await at_once.answer())[::2] == (431, TOO_LARGE)
    in_parts = await served.connect()
    in_parts.send("GET / HTTP/1.1\nx: ")
    for _ in range(10):
        in_parts.send("y" * 100)
        await asyncio.sleep(0)
    assert (await in_parts.answer())[::2] == (431, TOO_LARGE)
    enough = await served.connect()
    enough.request("/", f"x: {'y' * 800}\n")
    assert (await enough.answer())[0] == 200
    for _ in range(30):  # sent ahead: their heads together are larger
        enough.request("/", "x: y\n" * 50)
    assert [(await enough.answer())[0] for _ in range(30)] == [200] * 30
    served = await serve(App(), web_settings(head_timeout=0.1, keep_alive=60))
    silent, slow = await served.connect(), await served.connect()
    slow.send("GET / HTTP/1.1\n")
    assert await silent.ended() == b""
    assert (await slow.answer())[0] == 408
    blank = await served.connect()
    await blank.answered("/a")
    blank.send("\n")  # is no head
    assert await blank.ended() == b""


async def test_requests_above_the_concurrency_are_answered_with_503(serve: Serve) -> None:
    app = App()
    served = await serve(app, web_settings(concurrency=1))
    first, second = await served.connect(), await served.connect()
    first.request("/gated")
    await app.entered.wait()
    second.request("/a")
    head = await second.ended()
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in head
    assert served.server.connections.in_flight == 1
    app.gate.set()
    assert (await first.answer())[0] == 200


async def test_the_lifespan_begins_before_the_first_request_and_ends_after_the_last(serve: Serve) -> None:
    app = App()
    served = await serve(app)
    client = await served.connect()
    client.request("/gated")
    await app.entered.wait()
    draining = served.start_draining()
    await asyncio.sleep(0.05)
    assert app.lifespan == ["startup"]
    app.gate.set()
    assert (await client.answer())[0] == 200
    await draining
    await served.server.shut_down(5.0)
    assert app.lifespan == ["startup", "shutdown"]


async def reports_failure(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "Traceback …\n  File …\nKeyError: 'a'\n"})
    raise KeyError("a")


async def leaves_in_its_startup(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    raise SystemExit(1)


async def test_an_app_that_does_not_start_reports_the_reason_and_one_without_a_lifespan_is_served(serve: Serve) -> None:
    for app, words in (
        (reports_failure, "KeyError: 'a'"),
        (leaves_in_its_startup, "RuntimeError: the lifespan raised SystemExit: 1"),
    ):
        with pytest.raises(StartupFailed, match="the app's startup failed") as failed:
            await serve(app)
        assert failed.value.reason == words
        assert failed.value.__cause__ is not None, "its traceback is shown"
    served = await serve(knows_http_only)
    assert (await (await served.connect()).answered("/a"))[0] == 200
    client = await served.connect()
    client.send("\x16\x03\x01\n\n")
    assert (await client.answer())[0] == 400
    assert isinstance(served.events[0], events.LogLine)


async def knows_http_only(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise ValueError(scope["type"])
    await App()(scope, receive, send)


async def test_a_lifespan_that_ends_or_takes_too_long_is_reported(serve: Serve) -> None:
    breaks = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await breaks.wait()
        raise OSError("the pool is gone")

    served, slow = await serve(app), await serve(app)
    await slow.start_draining()
    await slow.server.shut_down(0.1)
    assert slow.events == [events.AttemptHookFailed(hook="lifespan shutdown", error="it did not end within 0.1 s")]
    assert served.lost == []
    breaks.set()
    await eventually_async(lambda: served.lost == ["the app's lifespan ended: OSError: the pool is gone"])


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
                part = {"file": file, "offset": offset, "count": count, "more_body": number < len(parts) or number > 1}
                await send({"type": "http.response.zerocopysend", **part})
        if len(parts) > 1:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

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


async def test_a_file_for_a_client_that_has_gone_is_no_error(serve: Serve, app: FileApp) -> None:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def answer_late(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        while (await receive())["type"] != "http.disconnect":
            pass
        try:
            await app(scope, receive, send)
        except RuntimeError as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    client = await (await serve(answer_late)).connect()
    client.request("/0-100")
    client.writer.close()
    await asyncio.wait_for(ended, 30)


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
    for path in (f"/0-{SIZE}", f"/0-{SIZE - 1},{SIZE - 1}-1"):
        client = await served.connect()
        client.request(path)
        await client.reader.readexactly(1000)
        client.writer.transport.abort()
        await eventually_async(lambda: not served.server.connections.open)
        assert [one for one in served.events if isinstance(one, events.WebRequestFailed)] == []


async def test_a_large_body_arrives_whole_and_more_of_it_is_read_at_once(serve: Serve, app: FileApp) -> None:
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
    app.chunks.clear()
    served = await serve(app)
    client = await served.connect()
    client.writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\nx" % SIZE)
    await eventually_async(lambda: app.chunks)
    [connection] = served.server.connections.open
    assert isinstance(connection, HttpProtocol)
    assert vars(connection.transport)["max_size"] == LARGE_READ
    client.writer.write(bytes(SIZE - 1) + b"GET /3-4 HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (await read_answer(client))[0] == 200
    assert (await read_answer(client))[0] == 200
    assert vars(connection.transport)["max_size"] == SMALL_READ
