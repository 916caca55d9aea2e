"""The master's end of the control socket: a frame with a command in, a frame with the answer out."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from peerd.runtime.frames import FrameError
from peerd.supervision.channel import Channel
from peerd.supervision.control import control_address, control_path
from peerd.supervision.loop import Loop

Answer = Callable[[Mapping[str, object]], Mapping[str, object]]


class ControlServer:
    """Listens in the run directory, whose lock the caller holds; answers its owner only."""

    def __init__(self, run_directory: Path, loop: Loop, answer: Answer) -> None:
        """Listen.

        Raises:
            OSError: there can be no socket in the run directory.
        """
        self._path = control_path(run_directory)
        self._loop = loop
        self._answer = answer
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

    def close(self) -> None:
        """Remove the socket. Connections end with the master, which is how clients see it end."""
        self._path.unlink(missing_ok=True)
        self._loop.forget(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            client = Channel(self._listener.accept()[0])
            self._loop.watch(client, lambda: self._serve(client), client.has_unsent)

    def _serve(self, client: Channel) -> None:
        client.flush()
        try:
            for command in client.receive():
                client.send(self._answer(command))
        except FrameError as error:
            client.send({"error": str(error)})
        finally:
            if not client.is_open:
                self._loop.forget(client)
                client.close()
