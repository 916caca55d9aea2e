"""PostgreSQL for tests."""

from __future__ import annotations

import os
import pwd
import signal
from contextlib import suppress

from tests.support.server import DatabaseServer


class PostgreSQL(DatabaseServer):
    """postgres with trust authentication; the user is `peerd`. It refuses root, so it runs as another user then."""

    kind = "postgresql"
    dialect = "postgresql"
    death_signal = signal.SIGQUIT  # its 'immediate' shutdown: all backends leave, the shared memory is removed

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://peerd@127.0.0.1:{self.port}/{database}"

    def system_user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        return "postgres" if "postgres" in {user.pw_name for user in pwd.getpwall()} else "nobody"

    def create_data(self) -> None:
        options = ["--username=peerd", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"]
        self.run([self.program("initdb"), f"--pgdata={self.data}", "--no-sync", *options])

    def command(self) -> list[str]:
        switch = "on" if self.durable else "off"
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "400",
            "shared_buffers": "64MB",
            "fsync": switch,
            "full_page_writes": switch,
            "max_wal_size": "256MB",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "jit": "off",
            "logging_collector": "off",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self.program("postgres"), "-D", str(self.data), f"--port={self.port}", *options]

    def accepts_connections(self) -> bool:
        import psycopg  # noqa: PLC0415 - only where a server is wanted

        with suppress(psycopg.OperationalError):
            psycopg.connect(f"postgresql://peerd@127.0.0.1:{self.port}/postgres", connect_timeout=2).close()
            return True
        return False
