"""The newest database servers of Debian, which `scripts/database-servers` brings."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Final

from tests.support.mariadb import MariaDB
from tests.support.postgresql import PostgreSQL
from tests.support.server import ServerUnavailableError

TABLES: Final = ("mariadb_system_tables", "mariadb_performance_tables", "mariadb_system_tables_data")


def folder_of(kind: str) -> Path:
    """Where the script puts a server: PostgreSQL, which is no root, cannot read what is in root's home."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache" if os.geteuid() else "/var/cache"
    return Path(cache, "peerd", "servers", kind)


def newest_program(kind: str, name: str) -> str:
    """The path of a server's program; raises ServerUnavailableError."""
    if not (folder_of(kind) / "complete").exists():
        raise ServerUnavailableError(f"the newest {kind} is not at hand (`scripts/database-servers {kind}` brings it)")
    return str(folder_of(kind) / "bin" / name)


class NewestMariaDB(MariaDB):
    kind = "newest-mariadb"

    def program(self, name: str) -> str:
        return newest_program("mariadb", name)

    def create_data(self) -> None:
        """As mariadb-install-db does it, which looks for programs elsewhere."""
        script = self.folder / "create.sql"
        files = [folder_of("mariadb") / "usr" / "share" / "mariadb" / f"{name}.sql" for name in TABLES]
        first = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        script.write_text(first + "\n".join(file.read_text() for file in files))
        self.data.mkdir()
        server = [self.program("mariadbd"), "--no-defaults", "--bootstrap", f"--datadir={self.data}"]
        options = [f"--user={self.system_user() or getpass.getuser()}", *self._messages(), "--innodb-log-file-size=8M"]
        with script.open() as given:
            self.run([*server, *options], stdin=given)

    def command(self) -> list[str]:
        return [*super().command(), *self._messages()]

    def _messages(self) -> list[str]:
        return [f"--lc-messages-dir={folder_of('mariadb') / 'usr' / 'share' / 'mariadb'}"]


class NewestPostgreSQL(PostgreSQL):
    kind = "newest-postgresql"

    def program(self, name: str) -> str:
        return newest_program("postgresql", name)
