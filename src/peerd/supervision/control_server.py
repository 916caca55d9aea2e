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
                answer = self._answer(command)
                if isinstance(answer, Later):
                    answer.send_to(client.send)
                else:
                    client.send(answer)
        except FrameError as error:
            client.send({"error": str(error)})
        finally:
            if not client.is_open:
                self._loop.forget(client)
                client.close()
