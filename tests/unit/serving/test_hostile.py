"""Whatever a client sends: it is refused, and neither the process nor other clients notice."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from peerd.serving.server import Options
from peerd.serving.traffic import Limits
from tests.unit.serving.apps import App
from tests.unit.serving.conftest import Serve

UPGRADE = (
    b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
HOSTILE = [
    b"\0" * 100,
    b"GET\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\n\r\n",
    b"GET * HTTP/1.1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"GET //x:y@z:99999999/ HTTP/1.1\r\n\r\n",
    b"CONNECT x:80 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nx\xff: \xff\r\n\r\n",
    b"GET / HTTP/1.1\r\nx-forwarded-for: \xff\xfe, ,,\r\nx-forwarded-proto: \xff\r\n\r\n",
    b"GET / HTTP/1.1\r\nexpect: 100-continue\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n",
    b"GET / HTTP/1.1\r\nhost: \xff\xfe\r\n" + UPGRADE + b"\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nsec-websocket-protocol: \xff,,\r\n" + UPGRADE + b"\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nsec-websocket-extensions: permessage-deflate; =\r\n" + UPGRADE + b"\r\n",
    b"POST / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n",
    b"GET / HTTP/1.0\r\nhost: x\r\n" + UPGRADE + b"\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE.replace(b"dGh", b"???") + b"\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n\xff\xff\xff\xff",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n\x81\x85\0\0\0\0\xff\xfe\xfd\xfc\xfb",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n\x88\x81\0\0\0\0\1",
    b"GET / HTTP/1.1\r\nhost: x\r\n" + UPGRADE + b"\r\n\x80\x80\0\0\0\0\x80\x80\0\0\0\0",
]


def mangled(seed: int) -> bytes:
    """A hostile request with a few bytes changed, taken out or doubled."""
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


@pytest.mark.parametrize("data", [*HOSTILE, *map(mangled, range(60))])
async def test_what_a_client_sends_cannot_harm_the_process(
    serve: Serve, uncaught: list[dict[str, Any]], data: bytes
) -> None:
    served = await serve(App(), Options(limits=Limits(head_timeout=0.05, keep_alive=0.05)))
    client = await served.connect()
    client.writer.write(data[: len(data) // 2])
    await asyncio.sleep(0)
    client.writer.write(data[len(data) // 2 :])
    client.writer.write_eof()
    async with asyncio.timeout(10):
        await client.reader.read()
    assert (await (await served.connect()).answered("/a"))[0] == 200
    assert uncaught == []
