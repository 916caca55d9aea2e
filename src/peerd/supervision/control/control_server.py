"""The master's end of the control socket: a frame with a command in, a frame with the answer out.

Connections take descriptors, which the master needs for the node's processes. So there are `MOST` at the most; one that
asks nothing for `IDLE` seconds is closed; and where there is no descriptor for one more, it waits to be accepted.
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
from peerd.supervision.control.channel import Channel
from peerd.supervision.control.control_client import control_address, control_path
from peerd.supervision.event_loop import Loop

IDLE: Final = 10.0
"""Seconds that a client has for its command, after it has connected and after each answer."""

IDLE_WHEN_FULL: Final = 1.0
"""The same while others wait to be accepted."""

MOST: Final = 64
"""Connections at once; further ones wait in the kernel's queue."""

PAUSE: Final = 0.5
"""Seconds without accepting where the system has no descriptor or memory for one more connection."""


class Later:
    """An answer that is given later: by then the client may have gone."""

    def __init__(self) -> None:
        self._given: Mapping[str, object] | None = None
        self._send: Callable[[Mapping[str, object]], object] | None = None

    def give(self, answer: Mapping[str, object]) -> None:
        """Give it."""
        self._given = answer
        if self._send:
            self._send(answer)

    def send_to(self, send: Callable[[Mapping[str, object]], object]) -> None:
        """Say whom it is for."""
        self._send = send
        if self._given is not None:
            send(self._given)


Answer = Callable[[Mapping[str, object]], Mapping[str, object] | Later]


@dataclass(slots=True, eq=False)
class _Client:
    channel: Channel
    heard_at: float
    owed: int = 0
    """Answers that are given later."""
    stays: bool = False
    """Whether it waits for the end of the master."""

    def close_at(self, patience: float) -> float:
        return math.inf if self.owed or self.stays else self.heard_at + patience


class ControlServer:
    """Listens in the run directory, whose lock the caller holds; answers its owner only."""

    def __init__(
        self,
        run_directory: Path,
        loop: Loop,
        answer: Answer,
        clock: Callable[[], float],
        complain: Callable[[str], object],
    ) -> None:
        """Listen.

        Args:
            run_directory: the node's.
            loop: where the socket and its connections are watched.
            answer: called with each command.
            clock: the time, seconds; that of `look`.
            complain: called with words when nobody can be accepted.

        Raises:
            OSError: there can be no socket in the run directory.
        """
        self._path = control_path(run_directory)
        self._loop = loop
        self._answer = answer
        self._clock = clock
        self._complain = complain
        self._clients: set[_Client] = set()
        self._accept_at: float | None = None
        """When to accept again; None while connections are accepted."""
        self._in_trouble = False
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
        loop.watch(self._listener, self._accept)

    @property
    def due_at(self) -> float:
        """When to look next, if nothing happens before."""
        times = [client.close_at(self._patience) for client in self._clients]
        if self._accept_at is not None and len(self._clients) < MOST:
            times.append(self._accept_at)
        return min(times, default=math.inf)

    @property
    def _patience(self) -> float:
        return IDLE if self._accept_at is None else IDLE_WHEN_FULL

    def look(self, now: float) -> None:
        """Close connections whose time is up, and accept again if that was put off."""
        for client in [one for one in self._clients if now >= one.close_at(self._patience)]:
            self._end(client)
        if self._accept_at is not None and now >= self._accept_at and len(self._clients) < MOST:
            self._accept_at = None
            self._loop.watch(self._listener, self._accept)

    def close(self) -> None:
        """Remove the socket. Connections end with the master, which is how clients see it end."""
        self._path.unlink(missing_ok=True)
        self._loop.forget(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        try:
            end = self._listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if not self._in_trouble:
                self._complain(f"the control socket cannot accept a connection, and tries again: {error}")
            self._in_trouble = True
            self._put_off(self._clock() + PAUSE)
            return
        self._in_trouble = False
        client = _Client(Channel(end), self._clock())
        self._clients.add(client)
        self._loop.watch(client.channel, partial(self._serve, client), client.channel.has_unsent)
        if len(self._clients) >= MOST:
            self._put_off(self._clock())

    def _put_off(self, until: float) -> None:
        """Accept no more for now: the socket would be called ready again and again, and nothing could be done."""
        self._accept_at = until
        self._loop.forget(self._listener)

    def _serve(self, client: _Client) -> None:
        channel = client.channel
        channel.flush()
        try:
            for command in channel.receive():
                client.heard_at = self._clock()
                client.stays |= command.get("command") == "stop"
                self._reply(client, self._answer(command))
        except FrameError as error:
            channel.end_with({"error": str(error)})
        finally:
            if not channel.is_open:
                self._end(client)

    def _reply(self, client: _Client, answer: Mapping[str, object] | Later) -> None:
        if not isinstance(answer, Later):
            client.channel.send(answer)
            return
        client.owed += 1
        answer.send_to(partial(self._reply_later, client))

    def _reply_later(self, client: _Client, answer: Mapping[str, object]) -> None:
        client.owed -= 1
        client.heard_at = self._clock()
        client.channel.send(answer)

    def _end(self, client: _Client) -> None:
        self._clients.discard(client)
        self._loop.forget(client.channel)
        client.channel.close()
