"""PgBouncer before a PostgreSQL, for tests."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from tests.support.postgresql import PostgreSQL
from tests.support.server import DatabaseServer


class PgBouncer(DatabaseServer):
    """PgBouncer, which lets in everybody as the user `peerd`.

    Args:
        folder: for its files.
        behind: the port of the server, on 127.0.0.1.
        serves: the database that clients may name.
        settings: of its section [pgbouncer], in addition.
    """

    kind = "pgbouncer"
    dialect = "postgresql"
    death_signal = signal.SIGTERM  # its immediate end

    def __init__(self, folder: Path, behind: int, *, serves: str = "*", **settings: str) -> None:
        super().__init__(folder)
        self.behind = behind
        self.serves = serves
        self.settings = settings

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://peerd@127.0.0.1:{self.port}/{database}"

    def system_user(self) -> str | None:
        return "nobody" if os.geteuid() == 0 else None

    def _make_data(self) -> None:
        self._make_folder()
        self.create_data()

    def create_data(self) -> None:
        self.data.mkdir()

    def command(self) -> list[str]:
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "max_client_conn": "1000",
            "default_pool_size": "20",
            **self.settings,
        }
        file = self.folder / "pgbouncer.ini"
        lines = ["[databases]", f"{self.serves} = host=127.0.0.1 port={self.behind} user=peerd", "[pgbouncer]"]
        file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]) + "\n")
        return [self.program("pgbouncer"), str(file)]

    def accepts_connections(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False


class PooledPostgreSQL(PostgreSQL):
    """A PostgreSQL whose clients come through PgBouncer in transaction mode."""

    kind = "pooled-postgresql"
    pooler: PgBouncer | None = None

    @property
    def ports(self) -> list[int]:
        return [self.port if self.pooler is None else self.pooler.port]

    @ports.setter
    def ports(self, ports: list[int]) -> None:
        [self.port] = ports

    def start(self) -> None:
        super().start()
        self.pooler = PgBouncer(self.folder / "pooler", self.port, pool_mode="transaction")
        self.pooler.start()

    def stop(self, timeout: float = 20) -> None:
        if self.pooler is not None:
            self.pooler.stop(timeout)
        super().stop(timeout)
