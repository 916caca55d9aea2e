"""`peerd-beanstalkd`: it listens before it loads, leaves nothing behind, and lets one process serve a folder."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from peerd.gateway.standalone.job_folder import MEMORY
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.beanstalk_servers import BEANSTALKD, MODULE, PEERD, SOURCES, BeanstalkServer, why_missing
from tests.support.server import find_program, free_port

START: Final = (sys.executable, "-m", MODULE)
LOADED: Final = "import sys, {module}; print(*sys.modules)"
SLOW_IMPORT: Final = """\
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "sqlalchemy":
            open({reached!r}, "w").close()
            time.sleep(600)
sys.meta_path.insert(0, Slow())
"""
"""A `sitecustomize` with which the program gets no further than its first heavy import."""

Start = Callable[..., BeanstalkServer]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as afterwards:

        def start_server(*flags: str, listen: str = "127.0.0.1") -> BeanstalkServer:
            server = BeanstalkServer(PEERD, *flags, listen=listen)
            afterwards.callback(server.stop)
            server.start()
            return server

        yield start_server


def run(*flags: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The program, which is to end by itself."""
    surroundings = os.environ | {"PYTHONPATH": str(SOURCES)} | (environment or {})
    return subprocess.run([*START, *flags], capture_output=True, text=True, timeout=60, check=False, env=surroundings)


def folder_of(server: BeanstalkServer) -> Path:
    """The folder in memory of a server: the one whose file it has open."""
    assert server.process is not None
    descriptors = Path(f"/proc/{server.process.pid}/fd").iterdir()
    opened = {one.readlink() for one in descriptors if one.is_symlink()}
    (folder,) = {path.parent for path in opened if path.parent.name.startswith("peerd-beanstalkd-")}
    return folder


# ---------------------------------------------------------------- the start


def test_before_it_listens_next_to_nothing_is_loaded() -> None:
    program = LOADED.format(module=MODULE)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCES)}
    )
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("peerd")} == {
        "peerd", "peerd.entrypoints", MODULE, "peerd.gateway", "peerd.gateway.protocols",
        "peerd.gateway.protocols.beanstalk", "peerd.gateway.standalone", "peerd.gateway.standalone.flags",
        "peerd.gateway.standalone.listeners", "peerd.runtime", "peerd.runtime.stale_socket",
    }  # fmt: skip
    assert not loaded & {"sqlalchemy", "msgspec", "asyncio", "argparse", "dataclasses", "pathlib", "typing", "inspect"}


def test_a_client_can_connect_and_send_before_the_server_is_loaded(tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(reached=str(reached)))
    port = free_port()
    surroundings = os.environ | {"PYTHONPATH": f"{tmp_path}:{SOURCES}"}
    with subprocess.Popen([*START, "-p", str(port)], env=surroundings) as process:
        try:
            eventually(reached.exists)
            with BeanstalkConnection(("127.0.0.1", port)) as connection:
                connection.send(b"list-tube-used\r\n")
            process.send_signal(signal.SIGUSR1)  # before the event loop runs; it must not end the program
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_verbosity_shows_the_process_and_where_it_listens(start: Start) -> None:
    server = start("-V")
    assert server.process is not None
    pid, bind = server.said().splitlines()[:2]
    assert pid == f"pid {server.process.pid}"
    assert bind.startswith("bind ")
    assert bind.endswith(f" 127.0.0.1:{server.port}")


def test_flags_without_effect_are_warned_of(start: Start) -> None:
    said = start("-c", "-n").said()
    assert "-c has no effect" in said
    assert "-n has no effect" in said


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        (("-Q",), 5, "unknown flag: -Q"),
        (("-p", "no-such-service"), 111, "cannot listen on 127.0.0.1 port no-such-service"),
        (("-l", "host.invalid", "-p", "0"), 111, "cannot listen on host.invalid port 0"),
        (("-l", "unix:/no/such/folder/socket"), 111, "cannot listen on unix:/no/such/folder/socket"),
        (("-p", "0", "-b", "/no/such/folder"), 10, "cannot use the folder /no/such/folder"),
        (("-p", "0", "-u", "no-such-user"), 33, "there is no user no-such-user"),
    ],
)
def test_what_cannot_be_done_ends_the_start_with_the_status_of_beanstalkd(
    flags: tuple[str, ...], status: int, words: str
) -> None:
    done = run(*flags)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(f"peerd-beanstalkd: {words}")
    assert "Traceback" not in done.stderr


def test_a_port_that_is_in_use_is_reported_with_its_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = run("-l", "127.0.0.1", "-p", str(other.getsockname()[1]))
    assert done.returncode == 111
    assert "ss -ltnxp" in done.stderr


# ---------------------------------------------------------------- sockets


def test_the_file_of_a_unix_socket_is_removed_at_the_end(start: Start, tmp_path: Path) -> None:
    server = start(listen=f"unix:{tmp_path}/socket")
    assert server.end(signal.SIGTERM) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_unix_socket_that_another_process_serves_is_left_alone(start: Start, tmp_path: Path) -> None:
    server = start(listen=f"unix:{tmp_path}/socket")
    assert run("-l", f"unix:{tmp_path}/socket").returncode == 111
    with server.connect() as connection:
        connection.put()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    done = run("-l", f"unix:{file}")
    assert done.returncode == 111
    assert "is no socket" in done.stderr
    assert file.read_text() == "mine"


def test_what_is_passed_as_a_socket_must_listen() -> None:
    become = (
        "import os, sys; os.dup2(os.open('/dev/null', os.O_RDWR), 3); "
        "os.execvpe(sys.argv[1], sys.argv[1:], os.environ | {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())})"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", become, *START], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 111
    assert "descriptor 3" in done.stderr


def test_variables_of_sockets_for_another_process_are_no_reason_for_a_warning(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", "1")
    assert "inherited" not in start().said()


def test_sockets_that_are_passed_to_another_process_are_not_used() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        done = run("-p", str(taken.getsockname()[1]), environment={"LISTEN_FDS": "1", "LISTEN_PID": "1"})
    assert done.returncode == 111


# ---------------------------------------------------------------- folders


def test_jobs_without_a_folder_are_in_memory_and_leave_nothing_behind(start: Start) -> None:
    server = start()
    folder = folder_of(server)
    assert folder.parent in {MEMORY, Path(tempfile.gettempdir())}
    with server.connect() as connection:
        connection.put()
        assert server.end(signal.SIGTERM) == 0
    assert not folder.exists()


def test_what_a_killed_server_has_left_in_memory_is_removed_by_the_next_one(start: Start) -> None:
    killed = start()
    left = folder_of(killed)
    killed.end(signal.SIGKILL)
    assert left.exists()
    start()
    assert not left.exists()


def test_a_folder_is_served_by_one_process(start: Start, tmp_path: Path) -> None:
    server = start("-b", str(tmp_path))
    done = run("-b", str(tmp_path), "-p", "0")
    assert done.returncode == 10
    assert "another process serves it" in done.stderr
    with server.connect() as connection:
        connection.put()


@pytest.mark.skipif(why_missing(BEANSTALKD) is not None, reason="beanstalkd is not installed")
def test_a_folder_is_served_by_peerd_or_by_beanstalkd(start: Start, tmp_path: Path) -> None:
    start("-b", str(tmp_path))
    flags = ["-l", "127.0.0.1", "-p", str(free_port()), "-b", str(tmp_path)]
    done = subprocess.run([find_program(BEANSTALKD), *flags], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 10


def test_jobs_that_beanstalkd_has_left_are_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "binlog.1").touch()
    assert "jobs that beanstalkd has left in binlog.1 are not read" in start("-b", str(tmp_path)).said()


def test_reservations_of_a_killed_server_are_released_at_its_next_start(start: Start, tmp_path: Path) -> None:
    server = start("-b", str(tmp_path), "-f", "0")
    with server.connect() as connection:
        job_ids = [connection.put(ttr=1000) for _ in range(3)]
        assert [connection.reserve() for _ in job_ids] == job_ids
        server.end(signal.SIGKILL)
    server.start()
    with server.connect() as connection:
        assert [connection.reserve() for _ in job_ids] == job_ids
        assert connection.job(job_ids[0])["releases"] == "0"


@pytest.mark.parametrize("flags", [("-f", "0"), ("-f", "5"), ("-F",)], ids=" ".join)
def test_jobs_outlive_an_orderly_stop_in_every_mode(start: Start, tmp_path: Path, flags: tuple[str, ...]) -> None:
    server = start("-b", str(tmp_path), "-s", "65536", *flags)
    with server.connect() as connection:
        job_ids = [connection.put(b"x" * 10_000) for _ in range(30)]
    assert server.end(signal.SIGTERM) == 0
    assert not (tmp_path / "peerd.sqlite-wal").exists()
    server.start()
    with server.connect() as connection:
        assert [connection.reserve() for _ in job_ids] == job_ids


def test_the_log_is_merged_into_the_file_at_the_size_that_is_given(start: Start, tmp_path: Path) -> None:
    server = start("-b", str(tmp_path), "-F", "-s", "131072")
    with server.connect() as connection:
        for _ in range(200):
            connection.put(b"x" * 10_000)
        assert (tmp_path / "peerd.sqlite-wal").stat().st_size < 400_000


def test_a_stop_releases_what_clients_hold_and_closes_their_connections(start: Start, tmp_path: Path) -> None:
    server = start("-b", str(tmp_path))
    with server.connect() as holder, server.connect() as waiter:
        job_id = holder.put(ttr=1000)
        assert holder.reserve() == job_id
        waiter.send(b"reserve\r\n")
        began = time.monotonic()
        assert server.end(signal.SIGINT) == 0
        assert time.monotonic() - began < 10
        assert holder.ends() == b""
        assert waiter.ends() == b""
    server.start()
    with server.connect() as connection:
        assert connection.job(job_id)["state"] == "ready"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_becomes_the_user_that_is_given() -> None:
    """Only the step, because another user may be unable to read the interpreter of the tests."""
    user = pwd.getpwnam("nobody")
    program = (
        f"from {MODULE} import become_user; import os; become_user('nobody'); "
        "print(*os.getresuid(), *os.getresgid(), 0 in os.getgroups())"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [str(user.pw_uid)] * 3 + [str(user.pw_gid)] * 3 + ["False"]
