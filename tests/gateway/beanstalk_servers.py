"""Servers that speak the beanstalkd protocol, each on a private port: Debian's beanstalkd, and peerd's drop-in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Protocol

from tests.gateway.beanstalk_connection import Address, BeanstalkConnection, elements, members
from tests.support.server import ServerFailedError, ServerUnavailableError, _set_pdeathsig, find_program, free_port

BEANSTALKD: Final = "beanstalkd"
PEERD: Final = "peerd-beanstalkd"
MODULE: Final = "peerd.entrypoints.beanstalkd"
SOURCES: Final = Path(__file__).parents[2] / "src"
START_TIMEOUT: Final = 20.0
STOP_TIMEOUT: Final = 20.0
AT_ONCE: Final = 50
"""Jobs that are deleted together."""


def why_missing(kind: str) -> str | None:
    """Why a server cannot be started here; None if it can."""
    if kind == BEANSTALKD:
        try:
            find_program(BEANSTALKD)
        except ServerUnavailableError as error:
            return str(error)
    return None


class ConnectableServer(Protocol):
    """What a server must be that is swept."""

    def connect(self) -> BeanstalkConnection: ...


class BeanstalkServer:
    """One server on a private port, until `stop`. It dies with the process that started it."""

    def __init__(self, kind: str, *options: str, listen: str = "127.0.0.1") -> None:
        self.kind = kind
        self._options = options
        self._listen = listen
        self.port = 0
        self._folder = Path(tempfile.mkdtemp(prefix="peerd-beanstalk-"))
        self._log = self._folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listen.removeprefix("unix:") if self._listen.startswith("unix:") else (self._listen, self.port)

    def start(self) -> None:
        """Run the server, on a free port at the first time, and return when it answers."""
        is_first = self.port == 0
        for tries_left in (2, 1, 0) if is_first else (0,):
            self.port = free_port() if is_first else self.port
            try:
                self._run()
                break
            except ServerFailedError:
                if not tries_left:
                    raise

    def connect(self) -> BeanstalkConnection:
        return BeanstalkConnection(self.address)

    def stop(self) -> None:
        """End the server as an operator does, with SIGTERM, and remove what it has said."""
        try:
            self.end(signal.SIGTERM)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def end(self, number: signal.Signals) -> int:
        """End the server with a signal; its exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ServerFailedError(f"{self.kind} did not stop within {STOP_TIMEOUT:g} s:\n{self.said()}") from None
        finally:
            self.process = None

    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _run(self) -> None:
        command = [find_program(BEANSTALKD)] if self.kind == BEANSTALKD else [sys.executable, "-m", MODULE]
        where = ["-l", self._listen, *([] if self._listen.startswith("unix:") else ["-p", str(self.port)])]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *where, *self._options],
                env={name: value for name, value in os.environ.items() if not name.startswith("PEERD_")}
                | {"PYTHONPATH": str(SOURCES)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_set_pdeathsig(signal.SIGKILL),  # noqa: PLW1509 - prctl alone
            )
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            if self.process.poll() is not None:
                raise ServerFailedError(f"{self.kind} did not start:\n{self.said()}")
            with contextlib.suppress(OSError), BeanstalkConnection(self.address) as connection:
                connection.ask(b"list-tube-used\r\n", START_TIMEOUT)
                return
            if time.monotonic() > deadline:
                raise ServerFailedError(f"{self.kind} did not start within {START_TIMEOUT:g} s:\n{self.said()}")
            time.sleep(0.01)


def sweep(server: ConnectableServer) -> None:
    """Make a server as empty as a new one, but for its counters: no job, no tube but `default`, which is not paused.

    Raises:
        TimeoutError: other connections are still open after `STOP_TIMEOUT` seconds.
    """
    with server.connect() as connection:
        deadline = time.monotonic() + STOP_TIMEOUT
        shown = connection.statistics()
        while (shown["current-connections"], shown["current-jobs-reserved"]) != ("1", "0"):
            if time.monotonic() > deadline:
                raise TimeoutError("connections are still open, or their jobs reserved")
            time.sleep(0.005)
            shown = connection.statistics()
        tubes: list[str] = []
        while tubes != ["default"]:  # a job of another that was just released may come after its tube was emptied
            for tube in (tubes := elements(connection.ask(b"list-tubes\r\n"))):
                if not _is_as_new(connection.ask(b"stats-tube %b\r\n" % tube.encode())):
                    _empty(server, tube.encode())
            if tubes != ["default"] and time.monotonic() > deadline:  # to empty one with many jobs may take long
                raise TimeoutError(f"tubes {tubes} do not end")
        connection.send(b"quit\r\n")
        connection.ends()  # so that nobody counts it


def _is_as_new(answer: bytes) -> bool:
    """Whether a tube, of which a server has told this, holds no job and is not paused, or has just ended."""
    names = ("current-jobs-ready", "current-jobs-delayed", "current-jobs-buried", "pause")
    shown = members(answer)
    return all(shown.get(name, "0") == "0" for name in names)


def _empty(server: ConnectableServer, tube: bytes) -> None:
    """Delete all jobs of a tube: they are made ready, and reserved many at a time."""
    with server.connect() as connection:
        connection.ask_all(b"use %b\r\nwatch %b\r\npause-tube %b 0\r\n" % (tube, tube, tube), 3)
        while connection.ask(b"kick 1000000\r\n") != b"KICKED 0\r\n":
            pass
        while connection.ask(b"peek-ready\r\n") != b"NOT_FOUND\r\n":
            answers = connection.ask_all(b"reserve-with-timeout 0\r\n" * AT_ONCE, AT_ONCE)
            jobs = [answer.split()[1] for answer in answers if answer.startswith(b"RESERVED ")]
            connection.ask_all(b"".join(b"delete %b\r\n" % job_id for job_id in jobs), len(jobs))
        connection.send(b"quit\r\n")
        connection.ends()
