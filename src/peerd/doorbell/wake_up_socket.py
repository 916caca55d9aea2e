"""Ears: where a node's agent tells its processes that there is work, without its master between.

Any other message goes from the agent to the master and from there to the process, by threads that read and threads that
act: five that wake up, one after the other. That took 2 of the 8 ms in which an idle node picks a task up.

An ear is a datagram socket in the run directory, which only the node's user may open. It brings hints and nothing else:
what is lost is found by the next poll. Whoever has no ear, or does not empty it, gets a message.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from peerd.domain.ring import TasksAvailable
from peerd.runtime.unix_socket_path import short_socket_directory

SOCKET_PREFIX: Final = "ear."
"""Begins the name of the socket; the process's number follows."""
MAX_WAKE_UP_BYTES: Final = 8192
"""Bytes of a ring: of thirty-two queues with long names."""
MAX_READS_PER_TURN: Final = 16
"""Rings that are read before the event loop has its turn; the kernel keeps about ten."""


class WakeUpSocket:
    """A process's end.

    Args:
        run_directory: the node's.
        on_ring: gets what is rung, on the event loop.
    """

    def __init__(self, run_directory: Path, on_ring: Callable[[TasksAvailable], object]) -> None:
        self._run_directory = run_directory
        self._on_ring = on_ring
        self._name = f"{SOCKET_PREFIX}{os.getpid()}"
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen.

        Raises:
            OSError: there can be no socket in the run directory.
        """
        end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(end.fileno(), 0o600)  # which its file will have when it is bound
            with short_socket_directory(self._run_directory) as folder:
                (folder / self._name).unlink(missing_ok=True)  # of a process that had this number before
                end.bind(str(folder / self._name))
        except BaseException:
            end.close()
            raise
        self._socket = end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._read, end)

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                (self._run_directory / self._name).unlink()

    def _read(self, end: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(MAX_READS_PER_TURN):
                ring = end.recv(MAX_WAKE_UP_BYTES)
                with suppress(msgspec.DecodeError):
                    self._on_ring(msgspec.json.decode(ring, type=TasksAvailable))


class WakeUpSender:
    """The agent's end: those of all processes of its node.

    Args:
        run_directory: the node's.
    """

    def __init__(self, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._socket: socket.socket | None = None
        self._folder = -1

    def open(self) -> None:
        """Get ready to tell; sweep up the ears of processes that were killed.

        Raises:
            OSError: the run directory cannot be opened.
        """
        self._folder = os.open(self._run_directory, os.O_PATH | os.O_DIRECTORY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.remove_stale()

    def send(self, pid: int, ring: TasksAvailable) -> bool:
        """Ring at a process of this number; return whether it has an ear, and room in it."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto(msgspec.json.encode(ring), f"/proc/self/fd/{self._folder}/{SOCKET_PREFIX}{pid}")
        except OSError:
            return False
        return True

    def remove_stale(self) -> None:
        """Remove the ears of processes that are gone."""
        with suppress(OSError):
            for stale in _stale_sockets(self._run_directory.glob(f"{SOCKET_PREFIX}*")):
                stale.unlink(missing_ok=True)

    def close(self) -> None:
        """Tell nobody any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            os.close(self._folder)


def _stale_sockets(paths: Iterable[Path]) -> list[Path]:
    """Those whose process is not there."""
    return [path for path in paths if not Path("/proc", path.name.removeprefix(SOCKET_PREFIX)).exists()]
