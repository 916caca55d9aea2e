"""Conformance: the command line, signals, and what outlives a server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved
from tests.gateway.beanstalk_servers import SOURCES, BeanstalkServer, command_of
from tests.gateway.conftest import StartServer
from tests.support.server import free_port


def run(kind: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    return subprocess.run(
        [*command_of(kind), *options], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_v_prints_the_version(command_kind: str) -> None:
    done = run(command_kind, "-v")
    name, version = done.stdout.split()[:2]
    assert (done.returncode, name) == (0, "beanstalkd")
    assert version[0].isdigit()


def test_an_unknown_option_is_refused(command_kind: str) -> None:
    done = run(command_kind, "-Q")
    assert done.returncode != 0
    assert done.stderr


def test_an_address_that_is_taken_is_refused(start_server: StartServer, command_kind: str) -> None:
    server = start_server()
    done = run(command_kind, "-l", "127.0.0.1", "-p", str(server.port))
    assert done.returncode != 0


def test_a_server_listens_on_a_unix_socket(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(listen=f"unix:{tmp_path}/socket")
    with server.connect() as connection:
        job_id = connection.put(b"by the file")
        assert connection.ask(b"reserve\r\n") == reserved(job_id, b"by the file")


def test_a_stale_unix_socket_is_replaced(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(listen=f"unix:{tmp_path}/socket")
    server.end(signal.SIGKILL)
    assert (tmp_path / "socket").exists()
    server.start()
    with server.connect() as connection:
        connection.put()


def test_a_server_listens_on_ipv6(start_server: StartServer) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with start_server(listen="::1").connect() as connection:
        connection.put()


def test_sigterm_stops_a_server_at_once_though_clients_wait(start_server: StartServer) -> None:
    server = start_server()
    with server.connect() as connection, server.connect() as other:
        connection.send(b"reserve\r\n")
        eventually(lambda: other.tube()["current-waiting"] == "1")
        server.end(signal.SIGTERM)
        connection.ends()


def test_a_server_without_a_folder_forgets_its_jobs(start_server: StartServer) -> None:
    server = start_server()
    with server.connect() as connection:
        connection.put()
    server.end(signal.SIGTERM)
    server.start()
    with server.connect() as connection:
        assert connection.ask(b"peek-ready\r\n") == b"NOT_FOUND\r\n"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_server_with_a_folder_keeps_its_jobs(start_server: StartServer, tmp_path: Path, end: signal.Signals) -> None:
    server = start_server("-b", str(tmp_path), "-f", "0")
    body = bytes(range(256))
    with server.connect() as connection:
        connection.use(b"t")
        ready = connection.put(body, priority=7, ttr=50)
        delayed = connection.put(delay=1000)
        buried, deleted, held = connection.put(), connection.put(), connection.put()
        connection.ask_all(b"reserve-job %d\r\nbury %d 9\r\n" % (buried, buried), 2)
        assert connection.ask(b"delete %d\r\n" % deleted) == b"DELETED\r\n"
        connection.ask(b"reserve-job %d\r\n" % held)
        server.end(end)
    server.start()
    with server.connect() as connection:
        shown = {job_id: connection.job(job_id) for job_id in (ready, delayed, buried, held)}
        assert [one["state"] for one in shown.values()] == ["ready", "delayed", "buried", "ready"]
        assert {one["tube"] for one in shown.values()} == {"t"}
        assert (shown[ready]["pri"], shown[ready]["ttr"]) == ("7", "50")
        assert int(shown[delayed]["time-left"]) > 900
        assert connection.ask(b"peek %d\r\n" % deleted) == b"NOT_FOUND\r\n"
        assert connection.ask(b"peek %d\r\n" % ready).endswith(body + b"\r\n")
        assert connection.put() > held


def test_sigusr1_drains_a_server(start_server: StartServer) -> None:
    server = start_server()
    with server.connect() as connection:
        job_id = connection.put()
        assert server.process is not None
        server.process.send_signal(signal.SIGUSR1)
        eventually(lambda: connection.statistics()["draining"] == "true")
        assert connection.ask(b"put 0 0 60 3\r\nabc\r\n") == b"DRAINING\r\n"
        assert connection.ask(b"put 0 0 60 3\r\nabc!\n") == b"EXPECTED_CRLF\r\n"
        assert connection.ask(b"reserve-with-timeout 0\r\n") == reserved(job_id)
        assert connection.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"


def test_a_server_takes_the_socket_that_it_is_given(command_kind: str) -> None:
    """The third descriptor, named by LISTEN_FDS and LISTEN_PID, as systemd gives it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        address = listening.getsockname()
        process = start_with_socket(command_kind, listening)
        try:
            with BeanstalkConnection(address) as connection:
                assert connection.ask(b"list-tube-used\r\n", 20) == b"USING default\r\n"
        finally:
            process.terminate()
            process.wait(20)


def start_with_socket(kind: str, listening: socket.socket) -> subprocess.Popen[bytes]:
    """The server with this socket as its third descriptor, of which it is told as systemd does."""
    become = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); "
        "os.execvpe(sys.argv[2], sys.argv[2:], os.environ | {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", become, str(listening.fileno()), *command_of(kind), "-p", str(free_port())],
        pass_fds=[listening.fileno()],
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
    )


def test_a_client_gets_its_answers_though_it_ends_its_side_at_once(start_server: StartServer) -> None:
    server: BeanstalkServer = start_server()
    with server.connect() as connection:
        connection.send(b"list-tube-used\r\nlist-tube-used\r\n")
        assert connection.receive() == b"USING default\r\n"
        connection.send_end()
        assert connection.receive() == b"USING default\r\n"
        assert connection.ends() == b""
