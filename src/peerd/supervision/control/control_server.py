"""The master's end of the control socket: a frame with a command in, a frame with the answer out.

Connections take descriptors, which the master needs for the node's processes. So there are `MAX_CONNECTIONS` at the
most; one that asks nothing for `IDLE_TIMEOUT` seconds is closed; and where there is no descriptor for one more, it
waits to be accepted.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from peerd.runtime.messages.frames import FrameError
from peerd.supervision.control.channel import FrameChannel
from peerd.supervision.control.control_client import control_address, control_path
from peerd.supervision.event_loop import SelectorLoop

IDLE_TIMEOUT: Final = 10.0
"""Seconds that a client has for its command, after it has connected and after each answer."""

IDLE_TIMEOUT_WHEN_FULL: Final = 1.0
"""The same while others wait to be accepted."""

MAX_CONNECTIONS: Final = 64
"""Connections at once; further ones wait in the kernel's queue."""

ACCEPT_RETRY_DELAY: Final = 0.5
"""Seconds without accepting where the system has no descriptor or memory for one more connection."""


class DeferredAnswer:
    """An answer that is given later: by then the client may have gone."""

    def __init__(self) -> None:
        self._resolved: Mapping[str, object] | None = None
        self._send: Callable[[Mapping[str, object]], object] | None = None

    def resolve(self, answer: Mapping[str, object]) -> None:
        """Give it."""
        self._resolved = answer
        if self._send:
            self._send(answer)

    def on_resolved(self, send: Callable[[Mapping[str, object]], object]) -> None:
        """Say whom it is for."""
        self._send = send
        if self._resolved is not None:
            send(self._resolved)


CommandHandler = Callable[[Mapping[str, object]], Mapping[str, object] | DeferredAnswer]


@dataclass(slots=True, eq=False)
class _ControlConnection:
    channel: FrameChannel
    last_active_at: float
    deferred_answers: int = 0
    """Answers that are given later."""
    waits_for_exit: bool = False
    """Whether it waits for the end of the master."""

    def expires_at(self, timeout: float) -> float:
        return math.inf if self.deferred_answers or self.waits_for_exit else self.last_active_at + timeout


class ControlServer:
    """Listens in the run directory, whose lock the caller holds; answers its owner only."""

    def __init__(
        self,
        run_directory: Path,
        loop: SelectorLoop,
        answer: CommandHandler,
        clock: Callable[[], float],
        report_error: Callable[[str], object],
    ) -> None:
        """Listen.

        Args:
            run_directory: the node's.
            loop: where the socket and its connections are watched.
            answer: called with each command.
            clock: the time, seconds; that of `advance`.
            report_error: called with words when nobody can be accepted.

        Raises:
            OSError: there can be no socket in the run directory.
        """
        self._path = control_path(run_directory)
        self._loop = loop
        self._answer = answer
        self._clock = clock
        self._report_error = report_error
        self._clients: set[_ControlConnection] = set()
        self._accept_again_at: float | None = None
        """When to accept again; None while connections are accepted."""
        self._accept_failed = False
        self._path.unlink(missing_ok=True)  # of a master that was killed; the lock says that it is gone
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
        """When to look next, if nothing happens before."""
        times = [client.expires_at(self._idle_timeout) for client in self._clients]
        if self._accept_again_at is not None and len(self._clients) < MAX_CONNECTIONS:
            times.append(self._accept_again_at)
        return min(times, default=math.inf)

    @property
    def _idle_timeout(self) -> float:
        return IDLE_TIMEOUT if self._accept_again_at is None else IDLE_TIMEOUT_WHEN_FULL

    def advance(self, now: float) -> None:
        """Close connections whose time is up, and accept again if that was put off."""
        for client in [one for one in self._clients if now >= one.expires_at(self._idle_timeout)]:
            self._close_connection(client)
        if self._accept_again_at is not None and now >= self._accept_again_at and len(self._clients) < MAX_CONNECTIONS:
            self._accept_again_at = None
            self._loop.register(self._listener, self._accept)

    def close(self) -> None:
        """Remove the socket. Connections end with the master, which is how clients see it end."""
        self._path.unlink(missing_ok=True)
        self._loop.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        try:
            end = self._listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if not self._accept_failed:
                self._report_error(f"the control socket cannot accept a connection, and tries again: {error}")
            self._accept_failed = True
            self._pause_accepting(self._clock() + ACCEPT_RETRY_DELAY)
            return
        self._accept_failed = False
        client = _ControlConnection(FrameChannel(end), self._clock())
        self._clients.add(client)
        self._loop.register(client.channel, partial(self._serve, client), client.channel.has_unsent)
        if len(self._clients) >= MAX_CONNECTIONS:
            self._pause_accepting(self._clock())

    def _pause_accepting(self, until: float) -> None:
        """Accept no more for now: the socket would be called ready again and again, and nothing could be done."""
        self._accept_again_at = until
        self._loop.unregister(self._listener)

    def _serve(self, client: _ControlConnection) -> None:
        channel = client.channel
        channel.flush()
        try:
            for command in channel.receive():
                client.last_active_at = self._clock()
                client.waits_for_exit |= command.get("command") == "stop"
                self._send_answer(client, self._answer(command))
        except FrameError as error:
            channel.end_with({"error": str(error)})
        finally:
            if not channel.is_open:
                self._close_connection(client)

    def _send_answer(self, client: _ControlConnection, answer: Mapping[str, object] | DeferredAnswer) -> None:
        if not isinstance(answer, DeferredAnswer):
            client.channel.send(answer)
            return
        client.deferred_answers += 1
        answer.on_resolved(partial(self._send_deferred_answer, client))

    def _send_deferred_answer(self, client: _ControlConnection, answer: Mapping[str, object]) -> None:
        client.deferred_answers -= 1
        client.last_active_at = self._clock()
        client.channel.send(answer)

    def _close_connection(self, client: _ControlConnection) -> None:
        self._clients.discard(client)
        self._loop.unregister(client.channel)
        client.channel.close()
