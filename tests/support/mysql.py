"""MySQL for tests, with its own defaults: a binary log, TLS, caching_sha2_password, a strict sql_mode.

The tests log in as a user who has all rights on their database, and none on the server.
"""

from __future__ import annotations

import getpass
from typing import Final

from tests.support.mariadb import MariaDB
from tests.support.newest import folder_of, newest_program

USER: Final = "peerd"
PASSWORD: Final = "tests"
CREATE_USER: Final = (
    f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
    f"GRANT ALL ON {{database}}.* TO {USER}@'127.0.0.1'",
)


class MySQL(MariaDB):
    kind = "mysql"

    def url(self, database: str) -> str:
        return f"mysql+pymysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}?charset=utf8mb4"

    def create_data(self) -> None:
        script = self.folder / "root.sql"
        script.write_text("CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n")
        self.run([*self._program(), "--initialize-insecure", f"--init-file={script}", "--innodb-redo-log-capacity=8M"])

    def command(self) -> list[str]:
        return [
            *self._program(),
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--mysqlx=OFF",
            "--skip-name-resolve",
            "--max-connections=400",
            "--max-allowed-packet=16M",
            "--innodb-buffer-pool-size=64M",
            "--innodb-redo-log-capacity=64M",
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            f"--sync-binlog={1 if self.durable else 0}",
            *([] if self.durable else ["--innodb-doublewrite=OFF", "--innodb-flush-method=nosync"]),
        ]

    def _program(self) -> list[str]:
        share = folder_of("mysql") / "usr"
        return [
            newest_program("mysql", "mysqld"),
            "--no-defaults",
            f"--basedir={share}",
            f"--lc-messages-dir={share / 'share' / 'mysql'}",
            f"--plugin-dir={share / 'lib' / 'mysql' / 'plugin'}",
            "--secure-file-priv=",
            f"--user={self.system_user() or getpass.getuser()}",
            f"--datadir={self.data}",
        ]
