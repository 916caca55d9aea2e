"""The master's end of the control socket: each frame is a command, and gets a frame with the answer.

Connections use descriptors, which the master needs for the node's processes. There are at most `MAX_CONNECTIONS`; one
that sends no command for `IDLE_TIMEOUT` seconds is closed; without a free descriptor, new ones wait to be accepted.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from peerd.runtime.messages.frames import FrameError
from peerd.supervision.console import Console
from peerd.supervision.control.channel import FrameChannel
from peerd.supervision.control.control_client import control_address, control_path
from peerd.supervision.event_loop import SelectorLoop

IDLE_TIMEOUT: Final = 10.0
"""Seconds that a client has for a command, after it has connected and after each answer."""

IDLE_TIMEOUT_WHEN_FULL: Final = 1.0
"""The same while others wait to be accepted."""

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
    waits_for_exit: bool = False
    """Whether the client waits for the exit of the master."""

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
        self._accept_again_at: float | None = None
        """When to accept again; None while connections are accepted."""
        self._accept_failed = False
        self._path.unlink(missing_ok=True)  # left by a killed master: the caller holds the lock
        self._listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            with control_address(run_directory) as address:
                self._listener.bind(address)
        finally:
            os.umask(mask)
        self._listener.listen()
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
