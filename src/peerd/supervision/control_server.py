"""The master's hold of its run directory: the lock, which one master per run directory has, and the control socket.

Each frame on the control socket is a command, and gets a frame with the answer. Connections use descriptors, which the
master needs for the node's processes. There are at most `MAX_CONNECTIONS`; one that sends no command for `IDLE_TIMEOUT`
seconds is closed; without a free descriptor, new ones wait to be accepted.

The kernel releases the lock when the master ends. Other users must not be able to write to the run directory: they
could place a symbolic link there through which the master overwrites a file, or a control socket of their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from peerd.runtime.frames import FrameError
from peerd.runtime.observability.log_file import open_no_link
from peerd.supervision.control_client import LOCK_FILE, PID_FILE, control_address, control_path
from peerd.supervision.event_loop import FrameChannel, SelectorLoop
from peerd.supervision.reporting import Console

IDLE_TIMEOUT: Final = 10.0
"""Seconds that a client has for a command, after it has connected and after each answer."""

IDLE_TIMEOUT_WHEN_FULL: Final = 1.0
"""Seconds that a client has for a command while others wait to be accepted."""

MAX_CONNECTIONS: Final = 64
"""Open connections; further ones wait in the kernel's queue."""

ACCEPT_RETRY_DELAY: Final = 0.5
"""Seconds until the next accept after one failed because the system has no descriptor or memory."""

SendAnswer = Callable[[Mapping[str, object]], None]
CommandHandler = Callable[[Mapping[str, object], SendAnswer], None]
"""Called with a command and the function that sends its answer, to be called once, also later."""


@dataclass(slots=True, eq=False)
class _ControlConnection:
    channel: FrameChannel
    last_active_at: float
    open_answers: int = 0
    waits_for_exit: bool = False  # of the master

    def expires_at(self, timeout: float) -> float:
        return math.inf if self.open_answers > 0 or self.waits_for_exit else self.last_active_at + timeout


class ControlServer:
    """Listens in the run directory, whose lock the caller holds, for commands of its owner."""

    def __init__(
        self, run_directory: Path, loop: SelectorLoop, handle_command: CommandHandler, console: Console
    ) -> None:
        self._path = control_path(run_directory)
        self._loop = loop
        self._handle_command = handle_command
        self._console = console
        self._clients: set[_ControlConnection] = set()
        # when to accept again; None while connections are accepted
        self._accept_again_at: float | None = None
        self._accept_failed = False
        self._path.unlink(missing_ok=True)  # left by a killed master: the caller holds the lock
        mask = os.umask(0o177)
        try:
            with control_address(run_directory) as address:
                self._listener = socket.create_server(address, family=socket.AF_UNIX)
        finally:
            os.umask(mask)
        self._listener.setblocking(False)
        loop.register(self._listener, self._accept)

    @property
    def due_at(self) -> float:
        """When `advance` must be called if nothing happens before."""
        times = [client.expires_at(self._idle_timeout) for client in self._clients]
        if self._accept_again_at is not None and len(self._clients) < MAX_CONNECTIONS:
            times.append(self._accept_again_at)
        return min(times, default=math.inf)

    @property
    def _idle_timeout(self) -> float:
        return IDLE_TIMEOUT if self._accept_again_at is None else IDLE_TIMEOUT_WHEN_FULL

    def advance(self) -> None:
        """Close idle connections, and accept again if that was paused."""
        now = time.monotonic()
        for client in [one for one in self._clients if now >= one.expires_at(self._idle_timeout)]:
            self._close_connection(client)
        if self._accept_again_at is not None and now >= self._accept_again_at and len(self._clients) < MAX_CONNECTIONS:
            self._accept_again_at = None
            self._loop.register(self._listener, self._accept)

    def close(self) -> None:
        """Remove the socket. Connections stay open until the master exits, which is how clients detect it."""
        self._path.unlink(missing_ok=True)
        self._loop.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        now = time.monotonic()
        try:
            connection = self._listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if not self._accept_failed:
                self._console.log(f"the control socket cannot accept a connection, and tries again: {error}")
            self._accept_failed = True
            self._pause_accepting(now + ACCEPT_RETRY_DELAY)
            return
        self._accept_failed = False
        client = _ControlConnection(FrameChannel(connection), now)
        self._clients.add(client)
        self._loop.register(client.channel, partial(self._serve, client), client.channel.has_unsent)
        if len(self._clients) >= MAX_CONNECTIONS:
            self._pause_accepting(now)

    def _pause_accepting(self, until: float) -> None:
        """Unregister the listener, which would otherwise wake the loop all the time."""
        self._accept_again_at = until
        self._loop.unregister(self._listener)

    def _serve(self, client: _ControlConnection) -> None:
        channel = client.channel
        channel.flush()
        try:
            for command in channel.receive():
                client.waits_for_exit |= command.get("command") == "stop"
                client.open_answers += 1
                self._run_command(client, command)
        except FrameError as error:
            channel.end_with({"error": str(error)})
        finally:
            if not channel.is_open:
                self._close_connection(client)

    def _run_command(self, client: _ControlConnection, command: Mapping[str, object]) -> None:
        try:
            self._handle_command(command, partial(self._send_answer, client))
        except Exception as error:
            self._send_answer(client, {"error": f"the command failed: {type(error).__name__}: {error}"})
            raise

    def _send_answer(self, client: _ControlConnection, answer: Mapping[str, object]) -> None:
        client.open_answers -= 1
        client.last_active_at = time.monotonic()
        client.channel.send(answer)

    def _close_connection(self, client: _ControlConnection) -> None:
        self._clients.discard(client)
        self._loop.unregister(client.channel)
        client.channel.close()


# ---------------------------------------------------------------- the lock of the run directory


class AlreadyRunning(Exception):
    """Another master runs in the run directory."""

    def __init__(self, run_directory: Path, pid: str) -> None:
        super().__init__(
            f"already running as process {pid or '?'} in {run_directory}: stop it first (peerd stop), "
            "or give this node another name or run directory"
        )


class UnsafeRunDirectory(Exception):
    """Other users can write to the run directory."""


@contextlib.contextmanager
def node_lock(run_directory: Path) -> Iterator[None]:
    """Hold the lock of a run directory, which is created if necessary, and write the master's pid file.

    Raises:
        AlreadyRunning: another master holds it.
        UnsafeRunDirectory: the folder belongs to another user, or others may write to it.
        OSError: the folder cannot be used.
    """
    run_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private_directory(run_directory)
    pid_file = run_directory / PID_FILE
    with os.fdopen(open_no_link(run_directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with contextlib.suppress(OSError):
                raise AlreadyRunning(run_directory, pid_file.read_text().strip()) from error
            raise AlreadyRunning(run_directory, "") from error
        with os.fdopen(open_no_link(pid_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "w") as file:
            file.write(f"{os.getpid()}\n")
        try:
            yield
        finally:
            pid_file.unlink(missing_ok=True)


def _require_private_directory(run_directory: Path) -> None:
    found = run_directory.stat()
    if found.st_uid != os.geteuid():
        raise UnsafeRunDirectory(
            f"the run directory {run_directory} belongs to user {found.st_uid}, and this node runs as user "
            f"{os.geteuid()}: start it as that user, or give it another [node] run_directory"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeRunDirectory(
            f"others may write to the run directory {run_directory} (mode {mode:04o}): forbid it "
            f"(chmod go-w {run_directory}), or give the node another [node] run_directory"
        )
