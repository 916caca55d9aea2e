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

from peerd.domain.ring import Work
from peerd.runtime.unix_socket_path import short_path

NAME: Final = "ear."
"""Begins the name of the socket; the process's number follows."""
LARGEST: Final = 8192
"""Bytes of a ring: of thirty-two queues with long names."""
AT_A_TIME: Final = 16
"""Rings that are read before the event loop has its turn; the kernel keeps about ten."""


class Ear:
    """A process's end.

    Args:
        run_directory: the node's.
        hear: gets what is rung, on the event loop.
    """

    def __init__(self, run_directory: Path, hear: Callable[[Work], object]) -> None:
        self._run_directory = run_directory
        self._hear = hear
        self._name = f"{NAME}{os.getpid()}"
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen.

        Raises:
            OSError: there can be no socket in the run directory.
        """
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(one.fileno(), 0o600)  # which its file will have when it is bound
            with short_path(self._run_directory) as folder:
                (folder / self._name).unlink(missing_ok=True)  # of a process that had this number before
                one.bind(str(folder / self._name))
        except BaseException:
            one.close()
            raise
        self._socket = one
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(one, self._read, one)

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                (self._run_directory / self._name).unlink()

    def _read(self, one: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(AT_A_TIME):
                ring = one.recv(LARGEST)
                with suppress(msgspec.DecodeError):
                    self._hear(msgspec.json.decode(ring, type=Work))


class Ears:
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
        self.sweep()

    def tell(self, pid: int, ring: Work) -> bool:
        """Ring at a process of this number; return whether it has an ear, and room in it."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto(msgspec.json.encode(ring), f"/proc/self/fd/{self._folder}/{NAME}{pid}")
        except OSError:
            return False
        return True

    def sweep(self) -> None:
        """Remove the ears of processes that are gone."""
        with suppress(OSError):
            for left in _gone(self._run_directory.glob(f"{NAME}*")):
                left.unlink(missing_ok=True)

    def close(self) -> None:
        """Tell nobody any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            os.close(self._folder)


def _gone(ears: Iterable[Path]) -> list[Path]:
    """Those whose process is not there."""
    return [ear for ear in ears if not Path("/proc", ear.name.removeprefix(NAME)).exists()]
