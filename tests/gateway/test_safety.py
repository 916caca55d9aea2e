"""Safety of the queue server: slow, silent, greedy and foreign clients, tokens and TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from peerd.gateway.process_state import GatewayOptions
from peerd.store.connection.database import Database
from peerd.testing import eventually
from tests.gateway.gateway_thread import GatewayThread, bytes_held_for
from tests.support.certificates import make_certificate
from tests.support.servers import DatabaseFactory

Serve = Callable[..., GatewayThread]
PUT = b"put 0 0 60 %d\r\n"


@pytest.fixture
def serve(module_factory: DatabaseFactory) -> Iterator[Serve]:
    with ExitStack() as afterwards:
        database = Database(module_factory("sqlite"))
        afterwards.callback(database.close)

        def start(tls: ssl.SSLContext | None = None, **options: Any) -> GatewayThread:
            return afterwards.enter_context(GatewayThread(database, GatewayOptions(**options), tls=tls))

        yield start


def send_what_is_taken(rests: dict[socket.socket, int]) -> int:
    """Send zeros of each connection's rest as far as they are taken without waiting; how many."""
    sent = 0
    for connection, rest in rests.items():
        with suppress(BlockingIOError):
            taken = connection.send(bytes(rest))
            rests[connection] -= taken
            sent += taken
    return sent


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


# ---------------------------------------------------------------- slow and silent clients


def test_what_does_not_end_closes_its_connection_and_who_is_silent_or_waits_stays(serve: Serve) -> None:
    gateway = serve(head_timeout=0.05, body_timeout=0.1)
    with gateway.connect() as silent, gateway.connect() as waiting:
        silent.ask(b"list-tube-used\r\n")
        waiting.send(b"reserve\r\n")
        for beginning in (b"put 0", PUT % 1000 + b"x" * 10):
            with socket.create_connection(gateway.address) as slow:
                slow.sendall(beginning)
                assert is_closed(slow), beginning
        assert silent.statistics()["current-jobs-ready"] == "0"
        silent.put(b"job")
        assert waiting.receive().startswith(b"RESERVED ")


def test_a_client_that_does_not_read_costs_bounded_memory(serve: Serve) -> None:
    gateway = serve(max_buffered=65_536, max_job_size=1_000_000)
    with gateway.connect() as producer, socket.create_connection(gateway.address) as greedy:
        job_id = producer.put(b"x" * 60_000)
        unread = bytes_held_for(gateway, greedy, b"peek %d\r\n" % job_id * 1000)
        assert 60_000 < unread < 2 * gateway.state.options.max_unanswered * 60_100
        assert gateway.state.buffered <= 1_000_000
        assert producer.ask(b"list-tube-used\r\n") == b"USING default\r\n"  # others are served


# ---------------------------------------------------------------- greedy clients


def test_a_connection_beyond_the_limit_is_closed_and_the_others_stay(serve: Serve) -> None:
    gateway = serve(max_connections=2)
    for _ in range(2):
        with gateway.connect() as one, gateway.connect() as two:
            one.use(b"one")
            two.use(b"two")
            with socket.create_connection(gateway.address) as third:
                assert is_closed(third)
            one.use(b"default")
        eventually(lambda: gateway.state.connections == 0)


def test_bodies_of_all_connections_together_are_bounded(serve: Serve) -> None:
    gateway = serve(max_job_size=1_000_000, max_buffered=2_000_000, max_buffered_total=3_000_000, body_timeout=30)
    with ExitStack() as afterwards:
        connections = [afterwards.enter_context(socket.create_connection(gateway.address)) for _ in range(20)]
        for connection in connections:
            connection.setblocking(False)
            connection.sendall(PUT % 1_000_000)
        rests = dict.fromkeys(connections, 999_999)

        def are_left_alone() -> bool:
            served = list(gateway.server._connections)
            return len(served) == 20 and all(one._counted >= 999_999 or not one._is_reading for one in served)

        eventually(lambda: not send_what_is_taken(rests) and gateway.call(are_left_alone))
        assert 3_000_000 <= gateway.call(lambda: gateway.state.buffered) <= 3_000_000 + 20 * (65_536 + 262_144)


def test_a_connection_that_was_held_up_by_others_goes_on_when_they_have_gone(serve: Serve) -> None:
    gateway = serve(max_job_size=1_000_000, max_buffered_total=1_200_000)
    with gateway.connect() as producer, socket.create_connection(gateway.address) as greedy:
        greedy.sendall(PUT % 1_000_000 + b"x" * 900_000)
        eventually(lambda: gateway.state.buffered >= 900_000)
        producer.send(PUT % 1_000_000 + b"x" * 400_000)
        eventually(lambda: gateway.state.held_up)
        greedy.close()
        eventually(lambda: not gateway.state.held_up)
        producer.send(b"x" * 600_000 + b"\r\n")
        assert producer.receive().startswith(b"INSERTED ")


def test_each_tube_has_one_timer_for_its_pause_at_the_most(serve: Serve) -> None:
    gateway = serve()
    with gateway.connect() as client:
        before = gateway.call(lambda: len(asyncio.get_running_loop()._scheduled))  # type: ignore[attr-defined]
        for _ in range(50):
            assert client.ask(b"pause-tube default 4294967295\r\n") == b"PAUSED\r\n"
        assert client.ask(b"pause-tube default 1\r\n") == b"PAUSED\r\n"
        after = gateway.call(lambda: [one for one in asyncio.get_running_loop()._scheduled if not one.cancelled()])  # type: ignore[attr-defined]
        assert len(after) <= before + 2
        client.put(b"job")
        assert client.ask(b"reserve-with-timeout 10\r\n").startswith(b"RESERVED ")


# ---------------------------------------------------------------- the end of input


def test_a_reserve_behind_the_end_of_input_does_not_wait(serve: Serve) -> None:
    gateway = serve()
    with gateway.connect() as client:
        job_id = client.put(b"job")
        client.send(b"reserve\r\ndelete %d\r\nreserve\r\n" % job_id)
        client.send_end()
        assert client.ends() == b"RESERVED %d 3\r\njob\r\nDELETED\r\nTIMED_OUT\r\n" % job_id
    eventually(lambda: gateway.state.connections == 0)


# ---------------------------------------------------------------- access


def test_without_the_token_every_command_is_refused_and_a_wrong_one_ends_the_connection(serve: Serve) -> None:
    gateway = serve(token="secret-token-of-the-test")
    with gateway.connect() as connection, gateway.connect() as wrong:
        for command in (b"stats\r\n", b"reserve-with-timeout 0\r\n", PUT % 3 + b"abc\r\n"):
            assert connection.ask(command) == b"UNAUTHORIZED\r\n"
        assert connection.ask(b"auth secret-token-of-the-test\r\n") == b"AUTHORIZED\r\n"
        assert connection.statistics()["current-jobs-ready"] == "0"
        wrong.send(b"auth secret-token-of-the-tesT\r\nstats\r\n")
        assert wrong.ends() == b"UNAUTHORIZED\r\n"


def test_a_client_that_does_not_show_its_token_in_time_is_closed(serve: Serve) -> None:
    gateway = serve(token="secret-token-of-the-test", head_timeout=1.0)
    with ExitStack() as clients:
        silent, refused, in_json = [clients.enter_context(socket.create_connection(gateway.address)) for _ in range(3)]
        known = clients.enter_context(gateway.connect())
        assert known.ask(b"auth secret-token-of-the-test\r\n") == b"AUTHORIZED\r\n"
        refused.sendall(b"stats\r\n")
        in_json.sendall(b'{"cmd": ')
        assert all(is_closed(one) for one in (silent, refused, in_json))
        assert known.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def test_with_tls_a_client_works_and_plain_text_is_refused(serve: Serve, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    gateway = serve(tls=context)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with (
        socket.create_connection(gateway.address) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(PUT % 3 + b"abc\r\nreserve\r\n")
        answer = b""
        while answer.count(b"\r\n") < 3:
            answer += secure.recv(1000)
        assert answer == b"INSERTED 1\r\nRESERVED 1 3\r\nabc\r\n"
    with socket.create_connection(gateway.address) as plain:
        plain.sendall(b"stats\r\n")
        assert is_closed(plain)
