"""The last step of a ring: from the agent to the other processes of its node, by a datagram socket of each.

A message would pass the master and five threads that wake up one after the other, which took 2 of the 8 ms in which an
idle node begins a task; so rings have this way of their own. The socket is in the run directory and belongs to the
node's user. It carries hints only: the poll finds what is lost, and a process whose socket is missing or full gets a
message through the master instead.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from peerd.domain.ring import Ring, TasksAvailable
from peerd.runtime.inbox import Message
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext
from peerd.runtime.sockets import closed_on_error, short_socket_directory

SOCKET_PREFIX: Final = "wake-up."
"""Beginning of the socket's name; the process id follows."""
MAX_WAKE_UP_BYTES: Final = 8192
"""Bytes of a ring: of thirty-two queues with long names."""
MAX_READS_PER_TURN: Final = 16
"""Rings read before the event loop runs other callbacks; the kernel keeps about ten."""


class WakeUpSocket:
    """The receiving end, in a process that claims or shows tasks; `on_ring` is called on the event loop."""

    def __init__(self, run_directory: Path, on_ring: Callable[[TasksAvailable], object]) -> None:
        self._on_ring = on_ring
        self._path = run_directory / f"{SOCKET_PREFIX}{os.getpid()}"
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen.

        Raises:
            OSError: no socket can be made in the run directory.
        """
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with closed_on_error(receiver):
            os.fchmod(receiver.fileno(), 0o600)  # the mode of its file when it is bound
            with short_socket_directory(self._path.parent) as folder:
                (folder / self._path.name).unlink(missing_ok=True)  # of an earlier process with the same number
                receiver.bind(str(folder / self._path.name))
        self._socket = receiver
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(receiver, self._read, receiver)

    def close(self) -> None:
        """Stop listening, and remove the socket's file."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                self._path.unlink()

    def _read(self, receiver: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(MAX_READS_PER_TURN):
                ring = receiver.recv(MAX_WAKE_UP_BYTES)
                with suppress(msgspec.DecodeError):
                    self._on_ring(msgspec.json.decode(ring, type=TasksAvailable))


class RingReceiver:
    """Receives the rings of the agent in another process of its node.

    Rings about available tasks come by the wake-up socket while it is open; others, and these to a process that has
    none, come as messages.

    Args:
        process: the process.
        on_ring: called on the event loop with each ring; plain, or `async` for those that come as messages.
        on_status: called when the agent says whether the doorbell works.
    """

    def __init__(
        self,
        process: ProcessContext,
        on_ring: Callable[[Ring], Awaitable[None] | None],
        on_status: Callable[[bool], object] = lambda _: None,
    ) -> None:
        self._messenger = process.messenger
        self._on_ring = on_ring
        self._on_status = on_status
        self._wake_up_socket: WakeUpSocket | None = None
        # process id of the agent that reported a working doorbell
        self._reporting_agent: int | None = None
        self._messenger.on(RING_ACTION, self._on_ring_message)
        self._messenger.on(DOORBELL_ACTION, self._on_status_message)

    def open(self, run_directory: Path) -> None:
        """Listen on a wake-up socket, if one can be made in the run directory of the node."""
        wake_up_socket = WakeUpSocket(run_directory, self._on_ring)
        with suppress(OSError):
            wake_up_socket.open()
            self._wake_up_socket = wake_up_socket

    def close(self) -> None:
        """Remove the wake-up socket."""
        if self._wake_up_socket is not None:
            self._wake_up_socket.close()

    @property
    def doorbell_works(self) -> bool:
        """Whether the agent that reported a working doorbell lives."""
        agent = self._messenger.agent
        return agent is not None and agent.pid == self._reporting_agent

    def _on_ring_message(self, message: Message) -> Awaitable[None] | None:
        if message.sender.role != "agent":
            return None
        return self._on_ring(msgspec.convert(message.data, Ring))

    def _on_status_message(self, message: Message) -> None:
        if message.sender.role == "agent":
            works = bool(message.data["works"])
            self._reporting_agent = message.sender.pid if works else None
            self._on_status(works)


class WakeUpSender:
    """The sending end, in the agent: reaches the sockets of all processes of the node."""

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Prepare to send, and remove the sockets of processes that were killed.

        Raises:
            OSError: the run directory cannot be opened.
        """
        self._folder = os.open(self._run_directory, os.O_PATH | os.O_DIRECTORY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.remove_stale()

    def send(self, pid: int, ring: TasksAvailable) -> bool:
        """Send a ring to the process; return whether its socket exists and had room."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto(msgspec.json.encode(ring), f"/proc/self/fd/{self._folder}/{SOCKET_PREFIX}{pid}")
        except OSError:
            return False
        return True

    def remove_stale(self) -> None:
        """Remove the sockets of processes that are gone."""
        with suppress(OSError):
            for path in list(self._run_directory.glob(f"{SOCKET_PREFIX}*")):
                if not Path("/proc", path.name.removeprefix(SOCKET_PREFIX)).exists():
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            os.close(self._folder)
