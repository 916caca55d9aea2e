"""Tokens, full queues, a database that is away, slow or greedy clients, and the Python client on other roads."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from peerd.config.settings import GatewaySettings, QueueSettings
from peerd.domain.errors import DatabaseUnavailable
from peerd.gateway.client import (
    GatewayUnreachable,
    connect,
    connect_async,
)
from peerd.gateway.puts import QueueCapacities, count_for_capacity
from peerd.store.connection.database import Database
from tests.gateway.conftest import TOKEN, Serve
from tests.gateway.gateway_thread import GatewayThread
from tests.gateway.json_protocol.conftest import JsonConnection
from tests.support.certificates import make_certificate


def test_a_token_is_required_first(serve: Serve) -> None:
    gateway = serve(token=TOKEN)
    for message in (
        {"cmd": "add_job", "job": 1},
        {"cmd": "auth", "token": "wrong"},
        {"cmd": "auth"},
        {"cmd": "add_job", "job": "x" * 100_000},
    ):
        with JsonConnection(gateway) as connection:
            connection.send(message)
            assert connection.receive()["code"] == "unauthorized"
            assert connection.receive() is None
    with connect(gateway.address[1], token=TOKEN) as client:
        assert client.add_job(1).created


def test_the_first_byte_decides_the_protocol(gateway: GatewayThread) -> None:
    with gateway.connect() as client:
        assert client.ask(b"\r\n") == b"UNKNOWN_COMMAND\r\n"
        assert client.ask(b'{"cmd":"get_job"}\r\n') == b"UNKNOWN_COMMAND\r\n"


ENDS: tuple[dict[str, Any], ...] = (
    {"cmd": "notify", "result": 1}, {"cmd": "fail", "retry": False}, {"cmd": "notify"},
)  # fmt: skip


def test_an_add_job_has_the_room_that_the_message_before_it_makes_though_counting_is_slow(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a count is not made again yet, because it took long, the ends of this connection are known all the same."""

    def count_slowly(*arguments: Any) -> tuple[int, float]:
        return count_for_capacity(*arguments)[0], 3600.0

    monkeypatch.setattr("peerd.gateway.puts.count_for_capacity", count_slowly)
    queues = {f"queue-{number}": QueueSettings(max_jobs=2) for number in range(len(ENDS))}
    with JsonConnection(serve(queues=queues)) as connection:
        for queue, end in zip(queues, ENDS, strict=True):
            add = {"cmd": "add_job", "job": 1, "queue": queue, "id": 1}
            connection.send(add, add, add)
            assert [connection.receive().get("code") for _ in range(3)] == [None, None, "queue_full"]
            connection.ask("get_job", queue=queue)
            connection.send({**end, "id": 2}, add, add)
            assert [connection.receive().get("code") for _ in range(3)] == [None, None, "queue_full"], end


def test_a_full_queue_is_an_error_although_jobs_of_other_queues_end_all_the_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueCapacities, "finish_end", lambda _: None)  # as if the next end had begun already
    with JsonConnection(serve(queues={"small": QueueSettings(max_jobs=1)})) as connection:
        connection.ask("add_job", job=1, queue="other", id=1)
        connection.ask("get_job", queue="other")
        connection.ask("notify", id=2)
        replies = [connection.ask("add_job", job=1, queue="small", id=3) for _ in range(3)]
        assert [reply.get("code") for reply in replies] == [None, "queue_full", "queue_full"]


def test_a_get_job_follows_what_is_added_before_it_though_the_jobs_must_be_counted(serve: Serve) -> None:
    gateway = serve({name: QueueSettings(max_jobs=2) for name in ("small", "default")})
    with JsonConnection(gateway) as connection, gateway.connect() as beanstalk:
        connection.send({"cmd": "add_job", "job": 1, "queue": "small"}, {"cmd": "get_job", "queue": "small"})
        assert connection.receive()["job"] == 1
        beanstalk.send(b"put 0 0 60 1\r\na\r\nreserve-with-timeout 0\r\n")
        assert beanstalk.receive().startswith(b"INSERTED ")
        assert beanstalk.receive().startswith(b"RESERVED ")


def test_a_database_that_does_not_answer_is_an_error_and_a_job_stays_held(
    gateway: GatewayThread, connection: JsonConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise DatabaseUnavailable("it is gone")

    connection.ask("add_job", job=1, id=1)
    connection.ask("get_job")
    with monkeypatch.context() as patch:
        for run in ("run_group", "run_short"):
            patch.setattr(gateway._database, run, fail)
        for cmd in ("notify", "fail", "release", "touch"):
            assert connection.ask(cmd)["code"] == "unavailable"
        assert connection.ask("notify", result=1)["code"] == "unavailable"
        assert connection.ask("add_job", job=1)["code"] == "unavailable"
    assert connection.ask("notify", id=1)["ok"]


def test_a_draining_gateway_takes_no_new_jobs(gateway: GatewayThread, connection: JsonConnection) -> None:
    connection.ask("add_job", job=1, id=1)
    gateway.state.refuses_puts = True
    assert connection.ask("add_job", job=2)["code"] == "draining"
    assert connection.ask("get_job")["job"] == 1


def test_all_that_was_sent_without_replies_before_the_end_is_carried_out(serve: Serve) -> None:
    gateway = serve(max_buffered=65_536)
    with JsonConnection(gateway) as connection:
        connection.socket.sendall(b'{"cmd":"add_job","job":"%b"}' % (b"x" * 50) * 5_000)
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.receive() is None
        assert gateway.state.puts.total == 5_000


def test_a_message_that_does_not_come_closes_the_connection(serve: Serve) -> None:
    gateway = serve(body_timeout=0.1, head_timeout=0.1)
    for beginning in (b"{", b'{"cmd":"add_job","job":"', b'{"cmd":"add_job","job":"' + b"x" * 100_000):
        with JsonConnection(gateway) as slow:
            slow.socket.sendall(beginning)
            assert slow.receive() is None
    with JsonConnection(gateway) as other:
        assert other.ask("get_job")["code"] == "no_work"


# ---------------------------------------------------------------- the Python client


async def test_the_python_client_speaks_tls_and_shows_its_token(database: Database, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with GatewayThread(database, GatewaySettings(token=TOKEN), tls=serving) as gateway:
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
