from __future__ import annotations

import asyncio
import random
import socket
from contextlib import suppress
from typing import Any

import pytest

from peerd.web_server.websocket import WebSocketProtocol
from tests.unit.web_server.apps import App, Reading
from tests.unit.web_server.conftest import Serve, web_settings

CRLF, LF = "\r\n", "\n"
UPGRADE = (
    b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
WEBSOCKET = b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE
HOSTILE = [
    b"\0" * 100, b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET /%ff%00 HTTP/1.1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\n\r\n", b"CONNECT x:80 HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nx\xff: \xff\r\n\r\n",
    b"GET / HTTP/1.1\r\nx-forwarded-for: \xff\xfe, ,,\r\nx-forwarded-proto: \xff\r\n\r\n",
    b"GET / HTTP/1.1\r\nexpect: 100-continue\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nhost: \xff\xfe\r\n" + UPGRADE + b"\r\n",
    WEBSOCKET + b"sec-websocket-protocol: \xff,,\r\n\r\n",
    WEBSOCKET + b"sec-websocket-extensions: permessage-deflate; =\r\n\r\n",
    b"POST" + WEBSOCKET[3:] + b"\r\n", WEBSOCKET.replace(b"dGh", b"???") + b"\r\n",
    WEBSOCKET + b"\r\n\xff\xff\xff\xff", WEBSOCKET + b"\r\n\x81\x85\0\0\0\0\xff\xfe\xfd\xfc\xfb",
    WEBSOCKET + b"\r\n\x88\x81\0\0\0\0\1", WEBSOCKET + b"\r\n\x80\x80\0\0\0\0\x80\x80\0\0\0\0",
]  # fmt: skip


def mangled(seed: int) -> bytes:
    chance = random.Random(seed)
    data = bytearray(chance.choice(HOSTILE))
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        data[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 3))
    return bytes(data)


@pytest.fixture
async def uncaught() -> list[dict[str, Any]]:
    """What reaches the loop's exception handler; in a web process it would taint it."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


async def test_hostile_bytes_of_a_client_cannot_harm_the_process(serve: Serve, uncaught: list[dict[str, Any]]) -> None:
    served = await serve(App(), web_settings(head_timeout=0.05, keep_alive=0.05))
    for data in (*HOSTILE, *map(mangled, range(60))):
        client = await served.connect()
        client.writer.write(data[: len(data) // 2])
        await asyncio.sleep(0)
        client.writer.write(data[len(data) // 2 :])
        client.writer.write_eof()
        async with asyncio.timeout(10):
            await client.reader.read()
        assert (await (await served.connect()).answered("/a"))[0] == 200, data
        assert uncaught == [], data


CHUNKED = b"POST /%b HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
ENDLESS = {
    "trailers": (b"0\r\n", b"x-trailer: y\r\n"), "one trailer": (b"0\r\nx: ", b"y"),
    "the name of a trailer": (b"0\r\n", b"y"), "the extension of a chunk": (b"5;x=", b"y"),
}  # fmt: skip


async def test_bytes_that_are_neither_head_nor_body_are_limited_like_a_head(serve: Serve) -> None:
    served = await serve(app := Reading(), web_settings(max_head=50_000))
    for what, (begin, more) in ENDLESS.items():
        client = await served.connect()
        client.writer.write(CHUNKED % b"" + begin)
        assert (await client.answer_while_sending(more * (10_000 // len(more)), at_most=200))[0] == 431, what
    client = await served.connect()
    client.writer.write(CHUNKED % b"" + b"0\r\nx-forged: yes\r\n\r\n")
    assert ((await client.answer())[2], [name for name, _ in app.headers if name == b"x-forged"]) == ("5", [])


async def test_a_body_that_stalls_or_is_too_slow_is_refused(serve: Serve) -> None:
    served = await serve(Reading(), web_settings(concurrency=1, body_timeout=0.2))
    stalled = await served.connect()
    stalled.send("POST / HTTP/1.1\nhost: test\ncontent-length: 10\n\n12345")
    status, headers, text = await stalled.answer()
    assert (status, headers["connection"], text) == (408, "close", "the request's body did not arrive in time")
    assert await stalled.ended() == b""
    assert (await (await served.connect()).answered("/a"))[0] == 200, "its connection slot is free"
    trailing, answered = await served.connect(), await served.connect()
    trailing.writer.write(CHUNKED % b"" + b"0\r\n")
    assert (await trailing.answer_while_sending(b"x: y\r\n"))[0] == 408
    answered.send("POST /echo HTTP/1.1\nhost: test\ncontent-length: 10\n\n12345")
    answer = await answered.ended()
    assert (answer[:13], b"408" in answer) == (b"HTTP/1.1 200 ", False), "its answer has begun"
    served = await serve(Reading(), web_settings(body_timeout=0.3, min_body_rate=1000))
    slow, steady = await served.connect(), await served.connect()
    slow.send("POST / HTTP/1.1\nhost: test\ncontent-length: 10000\n\n")
    assert (await slow.answer_while_sending(b"y"))[0] == 408
    steady.send("POST / HTTP/1.1\nhost: test\ncontent-length: 60000\n\n")
    for _ in range(30):  # a second in all
        steady.writer.write(b"y" * 2000)
        await asyncio.sleep(0.035)
    assert (await steady.answer())[::2] == (200, "60000")


async def test_a_client_is_not_timed_out_for_an_app_that_does_not_read(serve: Serve) -> None:
    app = Reading()
    app.gate.clear()
    served = await serve(app, web_settings(body_timeout=0.1))
    expects_continue, has_sent_all = await served.connect(), await served.connect()
    expects_continue.send("POST / HTTP/1.1\nhost: test\ncontent-length: 5\nexpect: 100-continue\n\n")
    has_sent_all.send("POST / HTTP/1.1\nhost: test\ncontent-length: 1000000\n\n")
    has_sent_all.writer.write(b"y" * 1_000_000)
    await asyncio.sleep(0.5)
    app.gate.set()
    assert await expects_continue.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    expects_continue.writer.write(b"hello")
    assert (await expects_continue.answer())[::2] == (200, "5")
    assert (await has_sent_all.answer())[::2] == (200, "1000000")


async def test_the_size_of_a_head_behind_a_body_is_counted_from_its_start(serve: Serve) -> None:
    served = await serve(Reading(), web_settings(max_head=10_000))
    client = await served.connect()
    first = b"POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 200000\r\n\r\n" + b"y" * 200_000
    client.writer.write(first + b"GET /a HTTP/1.1\r\nhost: te")
    assert (await client.answer())[::2] == (200, "200000")
    client.writer.write(b"st\r\n\r\n")
    assert (await client.answer())[::2] == (200, "0")


async def test_a_request_without_its_one_host_or_of_another_version_is_refused(serve: Serve) -> None:
    served = await serve(Reading())
    for head in (
        "GET /a HTTP/1.1\n\n", "GET /a HTTP/1.1\nhost: a\nhost: b\n\n", "GET /a HTTP/1.0\nhost: a\nhost: a\n\n",
        "GET /a\n\n", "GET /a HTTP/0.9\nhost: a\n\n", "GET /a HTTP/2.0\nhost: a\n\n",
        f"GET /a HTTP/1.1\n{UPGRADE.decode().replace(CRLF, LF)}\n",
    ):  # fmt: skip
        client = await served.connect()
        client.send(head)
        assert (await client.answer())[0] == 400, head
        assert await client.ended() == b"", head
    client = await served.connect()
    client.send("GET /a HTTP/1.0\n\n")  # needs no host
    assert (await client.answer())[0] == 200


MASKED_PING = b"\x89\xfd" + b"\0\0\0\0" + b"y" * 125


async def test_a_websocket_that_pings_and_does_not_read_is_not_read_either(serve: Serve) -> None:
    served = await serve(App())
    pinging = socket.socket(socket.AF_UNIX)
    pinging.connect(str(served.path))
    pinging.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n")
    pinging.setblocking(False)
    loop = asyncio.get_running_loop()
    assert (await loop.sock_recv(pinging, 4096)).startswith(b"HTTP/1.1 101 ")
    sent = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            while sent < 20_000_000:
                await asyncio.wait_for(loop.sock_sendall(pinging, MASKED_PING * 500), 0.5)
                sent += len(MASKED_PING) * 500
    [connection] = served.server.connections.open
    assert isinstance(connection, WebSocketProtocol)
    held = connection.transport.get_write_buffer_size()
    assert sent < 20_000_000, "it is read without end"
    assert held < 1_000_000
    while held := connection.transport.get_write_buffer_size():  # the client reads: sending continues
        await loop.sock_recv(pinging, 1_000_000)
    pinging.close()
