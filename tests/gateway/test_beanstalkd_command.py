"""`peerd-beanstalkd`: its options, sockets and signals, what outlives it, and what it leaves behind."""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved
from tests.gateway.beanstalk_servers import MODULE, SOURCES
from tests.gateway.conftest import StartCommand
from tests.support.server import free_port

START: Final = (sys.executable, "-m", MODULE)
WITH_SOCKET: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); "
    "os.execvpe(sys.argv[2], sys.argv[2:], os.environ | {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())})"
)
"""Gives a program a descriptor as its third, and tells it of that as systemd does."""
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


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that is to end by itself; flags alone are those of `peerd-beanstalkd`."""
    command = command if command[0] == sys.executable else (*START, *command)
    surroundings = os.environ | {"PYTHONPATH": str(SOURCES)} | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=surroundings)


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


def test_nothing_that_takes_long_is_loaded_before_it_listens() -> None:
    program = f"import sys; before = set(sys.modules); import {MODULE}; print(*(set(sys.modules) - before))"
    loaded = set(
        run(sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(SOURCES)!r}); {program}").stdout.split()
    )
    assert "peerd.gateway.standalone_start" in loaded
    assert len(loaded) <= 40
    slow = {"asyncio", "inspect", "logging", "msgspec", "pathlib", "re", "sqlalchemy", "ssl", "subprocess", "typing"}
    assert not loaded & slow


def test_what_it_does_and_ignores_is_said(
    start_command: StartCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binlog.1").touch()
    for name in ("LISTEN_FDS", "LISTEN_PID"):  # for another process
        monkeypatch.setenv(name, "1")
    server = start_command("-V", "-c", "-n", "-z", "10", "-b", str(tmp_path))
    assert server.process is not None
    said = server.said()
    bound = rf"bind \d+ 127\.0\.0\.1:{server.port}\n"
    for words in (
        f"pid {server.process.pid}\n", bound, "-c has no effect", "-n has no effect", r"binlog\.1 are not read",
    ):  # fmt: skip
        assert re.search(words, said), words
    assert "inherited" not in said
    with server.connect() as connection:
        connection.put(b"0123456789")
        assert connection.ask(b"put 0 0 60 11\r\n01234567890\r\n") == b"JOB_TOO_BIG\r\n"


def test_what_cannot_be_done_ends_the_start_with_the_status_of_beanstalkd(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        for flags, status, words in (
            (("-Q",), 5, "unknown flag: -Q"),
            (("-p", "no-such-service"), 111, "cannot listen on 127.0.0.1 port no-such-service"),
            (("-l", f"unix:{file}"), 111, "is no socket"),
            (("-l", "127.0.0.1", "-p", port), 111, "ss -ltnxp"),
            (("-p", "0", "-b", "/no/such/folder"), 10, "cannot use the folder /no/such/folder"),
            (("-p", "0", "-u", "no-such-user"), 33, "there is no user no-such-user"),
        ):
            done = run(*flags, LISTEN_FDS="1", LISTEN_PID="1")  # which are for another process
            assert done.returncode == status, done.stderr
            assert words in done.stderr
            assert "Traceback" not in done.stderr
    assert file.read_text() == "mine"
    done = run("-v")
    assert (done.returncode, done.stdout.split()[0]) == (0, "beanstalkd")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_becomes_the_user_that_is_given() -> None:
    """Only the step, because another user may be unable to read the interpreter of the tests."""
    user = pwd.getpwnam("nobody")
    program = (
        f"from {MODULE} import become_user; import os; become_user('nobody'); "
        "print(*os.getresuid(), *os.getresgid(), 0 in os.getgroups())"
    )
    done = run(sys.executable, "-c", program)
    assert done.stdout.split() == [str(user.pw_uid)] * 3 + [str(user.pw_gid)] * 3 + ["False"]


def test_a_unix_socket_is_served_left_alone_replaced_and_removed(start_command: StartCommand, tmp_path: Path) -> None:
    server = start_command(listen=f"unix:{tmp_path}/socket")
    assert run("-l", f"unix:{tmp_path}/socket").returncode == 111
    with server.connect() as connection:
        job_id = connection.put(b"by the file")
        assert connection.ask(b"reserve\r\n") == reserved(job_id, b"by the file")
        connection.send_end()
        assert connection.ends() == b""
    server.end(signal.SIGKILL)
    assert (tmp_path / "socket").exists()
    server.start()
    assert server.end(signal.SIGTERM) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_server_takes_the_socket_that_it_is_given() -> None:
    """The third descriptor, named by LISTEN_FDS and LISTEN_PID, as systemd gives it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        process = subprocess.Popen(
            [sys.executable, "-c", WITH_SOCKET, str(listening.fileno()), *START, "-p", str(free_port())],
            pass_fds=[listening.fileno()],
            env=os.environ | {"PYTHONPATH": str(SOURCES)},
        )
        try:
            with BeanstalkConnection(listening.getsockname()) as connection:
                assert connection.ask(b"list-tube-used\r\n", 20) == b"USING default\r\n"
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.slow
def test_what_is_passed_as_a_socket_must_listen() -> None:
    opens = f"import os, sys; sys.argv[1] = os.open('/dev/null', os.O_RDWR); {WITH_SOCKET}"
    done = run(sys.executable, "-c", opens, "", *START)
    assert (done.returncode, "descriptor 3" in done.stderr) == (111, True)


def test_jobs_without_a_folder_are_in_memory_and_leave_nothing_behind(start_command: StartCommand) -> None:
    server = start_command()
    assert server.process is not None
    opened = {one.readlink() for one in Path(f"/proc/{server.process.pid}/fd").iterdir() if one.is_symlink()}
    (folder,) = {path.parent for path in opened if path.parent.name.startswith("peerd-beanstalkd-")}
    with server.connect() as connection, server.connect() as waiter:
        waiter.send(b"reserve-with-timeout 1000\r\n")
        eventually(lambda: connection.tube()["current-waiting"] == "1")
        assert server.end(signal.SIGTERM) == 0
        waiter.ends()
    assert not folder.exists()


def test_a_killed_server_with_a_folder_keeps_its_jobs(start_command: StartCommand, tmp_path: Path) -> None:
    server = start_command("-b", str(tmp_path), "-f", "0")
    with server.connect() as connection, server.connect() as waiter:
        connection.use(b"t")
        ready = connection.put(b"\xff\0", priority=7, ttr=50)
        delayed = connection.put(delay=1000)
        buried, deleted, held = connection.put(), connection.put(), connection.put(ttr=1000)
        connection.ask_all(b"reserve-job %d\r\nbury %d 9\r\ndelete %d\r\n" % (buried, buried, deleted), 3)
        connection.ask(b"reserve-job %d\r\n" % held)
        waiter.send(b"reserve\r\n")
        server.end(signal.SIGKILL)
        assert (connection.ends(), waiter.ends()) == (b"", b"")
    server.start()
    with server.connect() as connection:
        shown = {job_id: connection.job(job_id) for job_id in (ready, delayed, buried, held)}
        assert [one["state"] for one in shown.values()] == ["ready", "delayed", "buried", "ready"]
        assert (shown[ready]["pri"], shown[ready]["ttr"], shown[held]["releases"]) == ("7", "50", "0")
        assert connection.ask(b"peek %d\r\n" % deleted) == b"NOT_FOUND\r\n"
        assert connection.ask(b"peek %d\r\n" % ready).endswith(b"\xff\0\r\n")
        assert connection.put() > held


@pytest.mark.parametrize("flags", ["-f 0", *(pytest.param(flags, marks=pytest.mark.slow) for flags in ("-f 5", "-F"))])
def test_an_orderly_stop_keeps_jobs_in_every_mode_and_the_log_is_merged_at_its_size(
    start_command: StartCommand, tmp_path: Path, flags: str
) -> None:
    server = start_command("-b", str(tmp_path), "-s", "131072", *flags.split())
    log = tmp_path / "peerd.sqlite-wal"
    with server.connect() as connection:
        job_ids = [connection.put(b"x" * 10_000) for _ in range(100)]
        assert log.stat().st_size < 400_000
    assert server.end(signal.SIGINT) == 0
    assert not log.exists()
    server.start()
    with server.connect() as connection:
        assert [connection.reserve() for _ in job_ids] == job_ids


def test_sigusr1_drains_a_server(start_command: StartCommand) -> None:
    server = start_command()
    with server.connect() as connection:
        job_id = connection.put()
        assert server.process is not None
        server.process.send_signal(signal.SIGUSR1)
        eventually(lambda: connection.statistics()["draining"] == "true")
        assert connection.ask(b"put 0 0 60 3\r\nabc\r\n") == b"DRAINING\r\n"
        assert connection.ask(b"put 0 0 60 3\r\nabc!\n") == b"EXPECTED_CRLF\r\n"
        assert connection.ask(b"reserve-with-timeout 0\r\n") == reserved(job_id)
