from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed

from peerd.runtime.observability import events
from peerd.runtime.observability.log_messages import web_requests_aborted
from tests.unit.web_server.apps import App, RawConnection
from tests.unit.web_server.conftest import Serve, Served, web_settings

LONG_TIMEOUTS = web_settings(keep_alive=60, head_timeout=60)


async def served_client(serve: Serve) -> tuple[App, Served, RawConnection]:
    app = App()
    served = await serve(app, LONG_TIMEOUTS)
    return app, served, await served.connect()


@asynccontextmanager
async def draining(served: Served, app: App) -> AsyncIterator[None]:
    """Drain while the app still works, and open its gate; at the end all that waits is over."""
    drain = served.start_draining()
    await served.wait_until_draining()
    app.gate.set()
    yield
    await drain


async def test_all_requests_that_a_client_has_sent_are_answered_and_its_connection_closed(serve: Serve) -> None:
    for paths in (["/gated"], ["/gated", "/b", "/c"]):
        app, served, client = await served_client(serve)
        for path in paths:
            client.request(path)
        await app.entered.wait()
        async with draining(served, app):
            answers = [await client.answer() for _ in paths]
            assert [(status, body) for status, _, body in answers] == [(200, path) for path in paths]
            closing = ["keep-alive"] * (len(paths) - 1) + ["close"]
            assert [headers["connection"] for _, headers, _ in answers] == closing
            assert await client.ended() == b""


async def test_a_request_that_begins_on_an_idle_connection_during_the_drain_is_answered(serve: Serve) -> None:
    served = await serve(App(), LONG_TIMEOUTS)
    idle = await served.connect()
    assert await idle.answered("/a") == (200, "keep-alive", "/a")
    drain = served.start_draining()
    await asyncio.sleep(0.1)
    assert not drain.done(), "an idle connection is not cut"
    assert await idle.answered("/b") == (200, "close", "/b")
    await drain
    served = await serve(App(), web_settings(keep_alive=0.3, head_timeout=60))
    idle, silent = await served.connect(), await served.connect()
    await idle.answered("/a")
    began = asyncio.get_running_loop().time()
    await served.start_draining()
    assert 0.2 < asyncio.get_running_loop().time() - began < 5, "it is closed when its time is up"
    assert await idle.ended() == await silent.ended() == b""


async def test_a_connection_that_is_accepted_and_not_attached_yet_is_answered(serve: Serve) -> None:
    served = await serve(App(), LONG_TIMEOUTS)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(served.path))
        client.sendall(b"GET /a HTTP/1.1\r\nhost: test\r\n\r\n")
        [listener] = served.server._listeners
        listener._accept()
        assert listener._attaching
        assert not served.server.connections.open
        await served.start_draining()
        client.settimeout(5)
        assert b"connection: close" in client.recv(1000)


async def test_a_process_leaves_waiting_connections_to_its_siblings_or_answers_them(serve: Serve) -> None:
    served = await serve(App(), LONG_TIMEOUTS)
    served.server.stop_accepting(close_listeners=False)
    client = await served.connect()
    client.request("/a")
    await served.server.drain(5.0)
    sibling = served.listening.dup()
    connection, _ = sibling.accept()
    with sibling, connection:
        connection.settimeout(5)
        assert connection.recv(100).startswith(b"GET /a ")
    served = await serve(App(), LONG_TIMEOUTS)
    waiting = [await served.connect() for _ in range(5)]
    for client in waiting:
        client.request("/a")
    drain = served.start_draining(close_listeners=True)
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(served.path))
    for client in waiting:
        assert (await client.answer())[::2] == (200, "/a")
        client.writer.close()
    await drain


async def test_a_client_that_still_sends_receives_its_answer_without_a_reset(serve: Serve) -> None:
    app, served, client = await served_client(serve)
    client.send("POST /gated HTTP/1.1\nhost: test\ncontent-length: 10\n\n12345")
    await app.entered.wait()
    async with draining(served, app):
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (200, "keep-alive")
        client.send("67890")
        assert await client.answered("/b") == (200, "close", "/b")


async def test_the_drain_waits_for_work_of_the_app_after_its_answer(serve: Serve) -> None:
    app, served, client = await served_client(serve)
    client.request("/afterwards")
    await client.answer()
    client.writer.close()
    drain = served.start_draining()
    await asyncio.sleep(0.05)
    assert not drain.done()
    app.gate.set()
    await drain
    assert app.after == ["/afterwards"]


async def test_requests_not_answered_within_the_grace_are_cut_off_and_reported(serve: Serve) -> None:
    app = App()
    served = await serve(app, LONG_TIMEOUTS)
    client, idle = await served.connect(), await served.connect()
    await idle.answered("/a")
    client.request("/gated")
    app.entered.clear()
    await app.entered.wait()
    await served.start_draining(grace=0.1)
    assert (await client.answer())[0] == 503
    assert await idle.ended() == b""
    cut, failed = served.events
    assert cut == web_requests_aborted(1, connections=2)
    assert isinstance(failed, events.WebRequestFailed)
    assert failed.error == "not answered within the grace"


async def websocket(served: Served, path: str = "/") -> ClientConnection:
    return await unix_connect(str(served.path), f"ws://test{path}")


async def closed_with(client: ClientConnection) -> int | None:
    with suppress(ConnectionClosed):
        async with asyncio.timeout(10):
            async for _ in client:
                pass
    return client.close_code


async def test_requests_on_a_websocket_are_answered_before_it_is_closed(serve: Serve) -> None:
    app = App()
    served = await serve(app, LONG_TIMEOUTS)
    client = await websocket(served)
    await client.send("gated")
    await app.entered.wait()
    await client.send("b")
    drain = served.start_draining()
    await asyncio.sleep(0.05)
    app.gate.set()
    assert [await client.recv(), await client.recv()] == ["GATED", "B"]
    assert await closed_with(client) == 1012
    await drain
    assert (app.after, served.events) == (["disconnected with 1012"], [])


async def test_a_websocket_is_closed_between_two_messages_or_when_it_is_open(serve: Serve) -> None:
    served = await serve(App(), LONG_TIMEOUTS)
    client = await websocket(served, "/pushes")
    assert await client.recv() == "tick"
    drain = served.start_draining()
    assert await closed_with(client) == 1012
    await drain
    assert served.events == []
    app = App()
    served = await serve(app, LONG_TIMEOUTS)
    opening = asyncio.create_task(websocket(served, "/unaccepted"))
    await app.entered.wait()
    async with draining(served, app):
        assert await closed_with(await opening) == 1012
