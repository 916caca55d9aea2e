"""Real database servers in a private folder, for tests: start, stop, kill, freeze.

Each listens on a unix socket in its folder and on a free TCP port of 127.0.0.1, and dies with the process that
started it (PR_SET_PDEATHSIG). Nothing is configured from the machine's own files.

Servers are fast rather than safe by default: they do not wait for the disk. A killed server still loses nothing
(the operating system has the pages), a machine without power would. `durable=True` waits for the disk at each commit.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar

import psutil

RUN_FOLDER_VARIABLE = "PEERD_TEST_RUN_FOLDER"
START_TIMEOUT = 60.0
PORTS_TO_TRY = 3
PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections: a killed server finds its port free when it comes back."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ServerUnavailableError(Exception):
    """The server's programs are not installed on this machine."""


class ServerFailedError(Exception):
    """The server is installed, and did not start."""


class DatabaseServer(ABC):
    kind: ClassVar[str]
    dialect: ClassVar[str]
    """What its SQL is: mysql or postgresql."""
    death_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self.durable = durable
        self.port = 0
        self.start_timeout = START_TIMEOUT
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def ports(self) -> list[int]:
        return [self.port]

    @ports.setter
    def ports(self, ports: list[int]) -> None:
        [self.port] = ports

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @abstractmethod
    def url(self, database: str) -> str:
        """SQLAlchemy's address of a database on this server, with its driver."""

    def start(self) -> None:
        if not self.data.exists():
            self._make_data()
        may_choose = not self.port
        for attempt in range(1, PORTS_TO_TRY + 1):
            try:
                self._run_on(free_port() if may_choose else self.port)
                break
            except ServerFailedError:  # another process may have bound the port meanwhile
                if attempt == PORTS_TO_TRY or not may_choose:
                    raise

    def stop(self, timeout: float = 20) -> None:
        """End the server without closing its clients' connections first; its data stay."""
        self._end(self.death_signal, timeout)

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash does; `start` recovers it on the same port."""
        self._end(signal.SIGKILL, 20)

    def freeze(self) -> None:
        """Stop the server's processes: connections stay open and nothing answers, until `thaw`."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._process_tree():
            with suppress(psutil.NoSuchProcess):  # a session's process that was just leaving
                process.send_signal(number)

    def program(self, name: str) -> str:
        return find_program(name)

    @abstractmethod
    def create_data(self) -> None: ...

    @abstractmethod
    def command(self) -> list[str]: ...

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            how: dict[str, Any] = {"stdout": log, "stderr": log, "start_new_session": True}
            dies = _set_pdeathsig(self.death_signal)
            return subprocess.Popen(command, **self._surroundings(), **how, preexec_fn=dies)  # noqa: PLW1509 - prctl alone

    def run(self, command: list[str], stdin: int | IO[str] = subprocess.DEVNULL) -> None:
        streams: dict[str, Any] = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, **self._surroundings() | streams, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed with status {done.returncode}:\n{done.stdout.decode()}")

    def _surroundings(self) -> dict[str, Any]:
        user = self.system_user()
        return {"cwd": self.folder, "env": self.environment(), "stdin": subprocess.DEVNULL, "user": user}

    def environment(self) -> dict[str, str]:
        """The temporary folder is private: a starting mariadbd removes the temporary tables of all others in it."""
        return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "TZ": "UTC", "TMPDIR": str(self.folder)}

    def system_user(self) -> str | None:
        return None

    def _make_data(self) -> None:
        """Creating data takes seconds: within a run, those that its first server of the kind has created are copied."""
        self._make_folder()
        if (run_folder := os.environ.get(RUN_FOLDER_VARIABLE)) is None:
            self.create_data()
            return
        template = type(self)(Path(run_folder) / f"{self.kind}.template")
        with Path(run_folder, f"{self.kind}.template.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (created := template.folder / "created").exists():
                template._make_folder()
                template.create_data()
                created.touch()
        subprocess.run(["cp", "--archive", "--sparse=always", template.data, self.data], check=True)

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if (user := self.system_user()) is not None:
            shutil.chown(self.folder, user)

    def _run_on(self, port: int) -> None:
        self.port = port
        self.process = self.spawn(self.command())
        try:
            self._wait_until_it_listens()
        except ServerFailedError:
            self.kill()
            raise

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + self.start_timeout
        while not self.accepts_connections():
            if self._running().poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace").splitlines()[-20:]
                raise ServerFailedError("\n".join([f"{self.kind} did not start in {self.start_timeout:g} s:", *tail]))
            time.sleep(0.02)

    @abstractmethod
    def accepts_connections(self) -> bool: ...

    def _end(self, number: signal.Signals, timeout: float) -> None:
        if self.process is None:
            return
        sessions: list[psutil.Process] = []
        if self.process.poll() is None:
            self.thaw()  # a frozen server handles no signal but SIGKILL
            sessions = self._process_tree()[1:]
            self.process.send_signal(number)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        psutil.wait_procs(sessions, timeout)  # PostgreSQL's outlive it for a moment, and still answer
        self.process = None

    def _process_tree(self) -> list[psutil.Process]:
        leader = psutil.Process(self._running().pid)
        return [leader, *leader.children(recursive=True)]

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise RuntimeError(f"{self.kind} was not started")
        return self.process


def find_program(name: str) -> str:
    """The program's path, also in the folders in which Debian installs servers; raises ServerUnavailableError."""
    folders = [*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"]
    folders += [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise ServerUnavailableError(f"{name} is not installed (as root, `make test` installs it where apt is present)")
    return found


def _version(path: Path) -> int:
    return int(path.parent.name) if path.parent.name.isdigit() else 0


def free_port() -> int:
    """A port that no process uses at the moment."""
    while True:
        port = random.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _set_pdeathsig(number: signal.Signals) -> Callable[[], None]:
    parent = os.getpid()

    def set_death_signal() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os.kill(os.getpid(), signal.SIGKILL)

    return set_death_signal
