"""The Python client of the JSON protocol, blocking and awaited."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from peerd.gateway.client import (
    GatewayUnreachable,
    connect,
    connect_async,
)
from peerd.gateway.process_state import GatewayOptions
from peerd.store.connection.database import Database
from tests.gateway.gateway_thread import GatewayThread
from tests.gateway.json_protocol.conftest import TOKEN
from tests.support.certificates import make_certificate

# ---------------------------------------------------------------- the Python client


# ---------------------------------------------------------------- the Python client on other roads


async def test_the_python_client_speaks_tls_and_shows_its_token(database: Database, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with GatewayThread(database, GatewayOptions(token=TOKEN), tls=serving) as gateway:
        port = gateway.address[1]
        with connect(port, tls=trusting, token=TOKEN) as client:
            client.add_job("secret")
        async with await connect_async(port, tls=trusting, token=TOKEN) as awaited:
            assert (await awaited.get_job()).value == "secret"
        with pytest.raises(GatewayUnreachable, match="certificate verify failed"):
            connect(port, tls=ssl.create_default_context(), token=TOKEN)
        with pytest.raises(GatewayUnreachable, match="certificate verify failed"):
            await connect_async(port, tls=ssl.create_default_context(), token=TOKEN)


async def test_the_python_client_connects_to_a_unix_socket(database: Database, tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.sock")
    with socket.socket(socket.AF_UNIX) as listening, GatewayThread(database) as gateway:
        listening.bind(path)
        listening.listen()
        gateway.call(gateway.server.start, [listening])
        with connect(unix=path) as client:
            client.add_job(1)
        async with await connect_async(unix=path) as awaited:
            assert (await awaited.get_job()).value == 1


async def test_a_cancelled_get_job_loses_no_job(gateway: GatewayThread) -> None:
    async with await connect_async(gateway.address[1]) as client, await connect_async(gateway.address[1]) as other:
        for number in range(20):
            call = asyncio.create_task(client.get_job(wait=0.2))
            await other.add_job(number)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await client.release(await call)
        taken = [(await other.get_job(wait=10)).value for _ in range(20)]
        assert sorted(taken) == list(range(20))  # one that is given back may come after others
