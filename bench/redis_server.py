"""Redis for the peers that are built on it. It keeps nothing on the disk, which is the fastest that it can be."""

from __future__ import annotations

import signal
import socket

from tests.support.server import DatabaseServer, find_program


class Redis(DatabaseServer):
    """redis-server without persistence."""

    kind = "redis"
    death_signal = signal.SIGKILL

    def url(self, database: str) -> str:
        """The address; its databases have numbers."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def create_data(self) -> None:
        """A folder, for nothing."""
        self.data.mkdir()

    def command(self) -> list[str]:
        """On this machine only."""
        return [
            find_program("redis-server"),
            "--bind", "127.0.0.1",
            "--port", str(self.port),
            "--save", "",
            "--appendonly", "no",
            "--dir", str(self.data),
        ]  # fmt: skip

    def accepts_connections(self) -> bool:
        """Whether it answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False
