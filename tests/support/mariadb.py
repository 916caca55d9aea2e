"""MariaDB for tests."""

from __future__ import annotations

import getpass
import signal

from tests.support.server import DatabaseServer


class MariaDB(DatabaseServer):
    kind = "mariadb"
    dialect = "mysql"
    death_signal = signal.SIGKILL

    def url(self, database: str) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/{database}?charset=utf8mb4"

    def create_data(self) -> None:
        options = [
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--datadir={self.data}",
        ]
        user = f"--user={self.system_user() or getpass.getuser()}"
        quick = ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync", "--innodb-doublewrite=0"]
        self.run([self.program("mariadb-install-db"), *options, user, *quick])

    def command(self) -> list[str]:
        return [
            self.program("mariadbd"),
            "--no-defaults",
            f"--user={self.system_user() or getpass.getuser()}",
            f"--datadir={self.data}",
            f"--socket={self.folder / 's'}",
            f"--pid-file={self.folder / 'pid'}",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--max-connections=400",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--key-buffer-size=1M",
            "--aria-pagecache-buffer-size=1M",
            "--performance-schema=OFF",
            # 2: to the operating system at each commit, to the disk once a second
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
            *([] if self.durable else ["--innodb-doublewrite=0", "--innodb-flush-method=nosync"]),
        ]

    def accepts_connections(self) -> bool:
        import pymysql  # noqa: PLC0415 - only where a server is wanted

        try:
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=2).close()
        except pymysql.err.MySQLError:
            return False
        return True
