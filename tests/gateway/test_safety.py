"""Safety of the queue server: slow, silent, greedy and foreign clients, tokens, TLS, and a database that is busy."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.gateway.reply_memory import FAIR_SHARE, PARTS
from peerd.store.connection.database import Database
from peerd.store.connection.sqlite import WriterBusy
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import found
from tests.gateway.beanstalk_servers import BeanstalkServer
from tests.gateway.conftest import Serve
from tests.gateway.gateway_thread import GatewayThread, bytes_held_for, connection_of
from tests.support.certificates import make_certificate
from tests.support.server_kinds import INNODB
from tests.support.servers import DatabaseFactory

PUT = b"put 0 0 60 %d\r\n"


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    with suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return True


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
    with gateway.connect() as producer:
        job_id = producer.put(b"x" * 60_000)
        watch = b"".join(b"watch %b%d\r\n" % (b"tube" * 40, number) for number in range(300))
        for beginning, command in (
            (b"", b"peek %d\r\n" % job_id),
            (b"", b'{"cmd":"get_job"}{"cmd":"release"}'),
            (watch, b"list-tubes-watched\r\n"),
        ):
            with socket.create_connection(gateway.address) as greedy:
                greedy.sendall(beginning)
                unread = bytes_held_for(gateway, greedy, command * 1000)
                assert 0 < unread < 2 * gateway.state.reply_memory.bound // PARTS
                assert gateway.state.buffered <= 1_000_000
                producer.use(b"default")  # others are served
    eventually(lambda: gateway.state.connections == 0 and gateway.state.reply_memory.used == 0)


def test_who_reads_is_served_while_others_leave_too_much_unread_and_the_slowest_are_disconnected(serve: Serve) -> None:
    gateway = serve()
    memory = gateway.state.reply_memory
    memory.bound = 500_000  # less than what the system leaves of one reply to each: on a slow machine there are no more
    most_taken = memory.bound + 61 * FAIR_SHARE
    with ExitStack() as afterwards, gateway.connect() as reader:
        job_id = reader.put(b"x" * 60_000)
        peek, answer = b"peek %d\r\n" % job_id, found(job_id, b"x" * 60_000)
        for _ in range(60):
            greedy = afterwards.enter_context(socket.socket())
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.connect(gateway.address)
            greedy.sendall(peek * 100)

        def is_a_client_disconnected() -> bool:
            assert reader.ask(peek) == answer
            assert memory.used <= most_taken
            return gateway.state.connections < 61

        eventually(lambda: memory.used >= memory.bound)
        eventually(is_a_client_disconnected)
        eventually(lambda: not memory.waiting and memory.used < memory.bound)
        assert gateway.state.connections > 1  # no more than necessary
        assert reader.ask_all(peek * 100, 100) == [answer] * 100
    eventually(lambda: gateway.state.connections == 0 and memory.used == memory.executing == 0)


def test_a_process_gives_back_what_replies_took_that_nobody_has_read(command_server: BeanstalkServer) -> None:
    assert command_server.process is not None
    status = Path(f"/proc/{command_server.process.pid}/status")

    def megabytes(name: str) -> int:
        return next(int(line.split()[1]) // 1024 for line in status.read_text().splitlines() if line.startswith(name))

    before = megabytes("VmRSS")
    with ExitStack() as afterwards, command_server.connect() as reader:
        job_id = reader.put(b"x" * 65_000)
        for _ in range(20):
            greedy = afterwards.enter_context(socket.create_connection(("127.0.0.1", command_server.port)))
            greedy.sendall(b"peek %d\r\n" % job_id * 1_000)  # 1.3 GB of replies
        eventually(lambda: int(reader.statistics()["cmd-peek"]) > 20 * 60)
        peak = megabytes("VmHWM")
        assert peak < before + 250
        reader.ask(b"delete %d\r\n" % job_id)
    eventually(lambda: megabytes("VmRSS") < (before + peak) // 2 + 10)


def test_a_second_part_of_the_replies_does_not_wait_until_the_first_is_acknowledged(serve: Serve) -> None:
    gateway = serve()
    with socket.create_connection(gateway.address) as client:
        served = eventually(lambda: connection_of(gateway, client))._transport.get_extra_info("socket")
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_never_takes_its_replies_is_disconnected_by_the_system(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.runtime.socket_listener.UNREAD_FOR", 1.0)
    gateway = serve(max_job_size=1_000_000)
    with gateway.connect() as idle, gateway.connect() as client:
        job_id = idle.put(b"x" * 60_000)
        client.send(b"peek %d\r\n" % job_id * 300)
        eventually(lambda: len(gateway.server._connections) == 1, timeout=30.0)
        assert idle.put(b"still here")


def test_all_commands_of_a_client_that_reads_late_are_executed(serve: Serve) -> None:
    gateway = serve(max_job_size=1_000_000)
    with gateway.connect() as client:
        job_id = client.put(b"x" * 60_000)
        client.send(b"peek %d\r\n" % job_id * 300 + b"put 0 0 60 4\r\nlast\r\n")
        client.send_end()
        eventually(lambda: [one for one in gateway.server._connections if one._session.is_suspended])  # type: ignore[union-attr]
        assert client.ends().count(b"FOUND ") == 300
    assert gateway.state.puts.total == 2


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
        rests = {afterwards.enter_context(socket.create_connection(gateway.address)): 999_999 for _ in range(20)}
        for connection in rests:
            connection.setblocking(False)
            connection.sendall(PUT % 1_000_000)

        def is_anything_taken() -> bool:
            before = sum(rests.values())
            for connection, rest in rests.items():
                with suppress(BlockingIOError):
                    rests[connection] -= connection.send(bytes(rest))
            return sum(rests.values()) < before

        def are_left_alone() -> bool:
            served = list(gateway.server._connections)
            return len(served) == 20 and all(one._counted >= 999_999 or not one._is_reading for one in served)

        eventually(lambda: not is_anything_taken() and gateway.call(are_left_alone))
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


def test_a_reserve_behind_the_end_of_input_does_not_wait(serve: Serve) -> None:
    gateway = serve()
    with gateway.connect() as client:
        job_id = client.put(b"job")
        client.send(b"reserve\r\ndelete %d\r\nreserve\r\n" % job_id)
        client.send_end()
        assert client.ends() == b"RESERVED %d 3\r\njob\r\nDELETED\r\nTIMED_OUT\r\n" % job_id
    eventually(lambda: gateway.state.connections == 0)


def test_without_the_token_every_command_is_refused_and_a_wrong_one_ends_the_connection(serve: Serve) -> None:
    gateway = serve(token="secret-token-of-the-test")
    with gateway.connect() as connection, gateway.connect() as wrong:
        for command in (b"stats\r\n", PUT % 3 + b"abc\r\n"):
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
        secure.makefile("rb") as answers,
    ):
        secure.sendall(PUT % 3 + b"abc\r\nreserve\r\n")
        assert [answers.readline() for _ in range(3)] == [b"INSERTED 1\r\n", b"RESERVED 1 3\r\n", b"abc\r\n"]
    with socket.create_connection(gateway.address) as plain:
        plain.sendall(b"stats\r\n")
        assert is_closed(plain)


@pytest.fixture
def other_writer(database: Database) -> Iterator[sqlite3.Connection]:
    """A connection of another program; it writes between BEGIN IMMEDIATE and COMMIT."""
    assert database.engine.url.database
    with closing(sqlite3.connect(database.engine.url.database, isolation_level=None)) as connection:
        yield connection


def test_a_command_that_needs_no_database_is_answered_while_another_program_writes(
    database: Database, other_writer: sqlite3.Connection
) -> None:
    with GatewayThread(database) as gateway, gateway.connect() as producer:
        producer.put(b"before")
        other_writer.execute("BEGIN IMMEDIATE")
        producer.send(b"put 0 0 60 5\r\nafter\r\n")
        with gateway.connect() as other:
            assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"
            assert other.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
        assert producer.answer_that_came() is None
        other_writer.execute("COMMIT")
        assert producer.receive().startswith(b"INSERTED ")


def test_nothing_waits_for_another_writer_that_is_asked_not_to(
    database: Database, other_writer: sqlite3.Connection
) -> None:
    def never(_: Connection) -> None:
        pytest.fail("it has no lock")

    def refuse_another(_: object) -> None:
        with pytest.raises(WriterBusy):
            database.run_group(never, waits=False)

    def insert_and_fail(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO queues (name) VALUES ('left')")
        raise ZeroDivisionError

    database.run(refuse_another)
    with pytest.raises(ZeroDivisionError):
        database.run_group(insert_and_fail, waits=False)
    count = "SELECT count(*) FROM queues"
    assert database.run_group(lambda connection: connection.exec_driver_sql(count).scalar_one(), waits=False) == 0
    other_writer.execute("BEGIN IMMEDIATE")
    refuse_another(None)
    other_writer.execute("COMMIT")
    refuse_another(None)  # the other writer was met a moment ago: it gets its turn
    assert database.run_group(lambda connection: "done") == "done"


@pytest.mark.parametrize("kind", ["postgresql", *(pytest.param(kind, marks=pytest.mark.slow) for kind in INNODB)])
def test_a_locked_job_fails_the_command_of_its_client_alone(migrated_factory: DatabaseFactory, kind: str) -> None:
    with (
        closing(Database(migrated_factory(kind))) as database,
        GatewayThread(database) as gateway,
        gateway.connect() as holder,
        gateway.connect() as second,
        gateway.connect() as other,
        database.engine.connect() as elsewhere,
    ):
        for client in (holder, second):
            client.put(b"locked")
            assert client.ask(b"reserve\r\n").startswith(b"RESERVED ")
        ids = elsewhere.execute(sa.text("SELECT id FROM tasks ORDER BY id FOR UPDATE")).scalars().all()
        holder.send(b"delete %d\r\n" % ids[0])
        eventually(lambda: gateway.state.operations._is_executing)
        second.send(b"delete %d\r\n" % ids[1])
        assert other.ask(b"put 0 0 60 5\r\nother\r\n", 30).startswith(b"INSERTED ")  # it is in the batch of the second
        assert [client.receive(30) for client in (holder, second)] == [b"INTERNAL_ERROR\r\n"] * 2
        elsewhere.rollback()
        assert holder.ask(b"delete %d\r\n" % ids[0]) == b"DELETED\r\n"
