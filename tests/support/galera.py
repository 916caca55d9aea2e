"""A MariaDB Galera cluster for tests: three real servers that hold the same tables, each of which takes writes.

Debian's galera-4 comes with its mariadb-server, and so does all that a state transfer by rsync needs. Every server has
four ports: for its clients, for the group, for incremental and for whole state transfers. No commit waits for the disk
unless `durable` is set; a server that is killed with SIGKILL comes back by a state transfer from another.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from peerd.testing import eventually
from tests.support.mariadb import MariaDB
from tests.support.server import ServerFailedError, ServerUnavailableError, free_port

SERVERS: Final = 3
DEBIAN_USER: Final = "mysql"
SUSPECT_AFTER: Final = 5
"""Seconds of silence after which a server is expelled from the group, as Galera has it by default."""
JOIN_WITHIN: Final = 180.0
"""Seconds in which a server has joined: a whole state transfer on a busy machine."""
LIBRARY: Final = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")


class GaleraServer(MariaDB):
    kind: ClassVar[str] = "galera"

    def __init__(self, folder: Path, *, durable: bool = False, suspect_after: int = SUSPECT_AFTER) -> None:
        super().__init__(folder, durable=durable)
        self.suspect_after = suspect_after
        self.start_timeout = JOIN_WITHIN
        self.group_port, self.increment_port, self.transfer_port = free_port(), free_port(), free_port()
        self.group: list[str] = []
        self._begins = False

    @property
    def group_address(self) -> str:
        return f"127.0.0.1:{self.group_port}"

    def begin(self) -> None:
        self._begins = True
        try:
            self.start()
        finally:
            self._begins = False

    def system_user(self) -> str | None:
        """Root cannot run it: the rsync of a state transfer, started by root, writes as nobody."""
        return DEBIAN_USER if os.getuid() == 0 else None

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with replace_sched_idle_with_nice():
            return super().spawn(command)

    def command(self) -> list[str]:
        provider = {
            "gmcast.listen_addr": f"tcp://{self.group_address}",
            "ist.recv_addr": f"127.0.0.1:{self.increment_port}",
            "gcache.size": "32M",
            "evs.suspect_timeout": f"PT{self.suspect_after}S",
            "evs.inactive_timeout": f"PT{3 * self.suspect_after}S",
        }
        options = {
            "provider": find_library(),
            "provider-options": ";".join(f"{name}={value}" for name, value in provider.items()),
            "cluster-address": f"gcomm://{'' if self._begins else ','.join(self.group)}",
            "node-name": self.folder.name,
            "sst-receive-address": f"127.0.0.1:{self.transfer_port}",
        }
        return [
            *super().command(),
            *("--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-cluster-name=peerd"),
            *("--wsrep-node-address=127.0.0.1", "--wsrep-sst-method=rsync", "--wsrep-slave-threads=2"),
            *(f"--wsrep-{name}={value}" for name, value in options.items()),
            *(["--wsrep-new-cluster"] if self._begins else []),
        ]

    def environment(self) -> dict[str, str]:
        """The scripts of a state transfer find their programs where Debian puts servers too."""
        environment = super().environment()
        return environment | {"PATH": environment["PATH"] + ":/usr/sbin:/sbin:/usr/bin:/bin"}

    def accepts_connections(self) -> bool:
        with suppress(ServerFailedError):
            return self.status("wsrep_ready") == "ON" and self.status("wsrep_local_state_comment") == "Synced"
        return False

    def status(self, name: str) -> str:
        """A status variable of the server: ``wsrep_cluster_size`` and the like."""
        import pymysql  # noqa: PLC0415 - only where a server is wanted

        at: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "connect_timeout": 2, "read_timeout": 5}
        try:
            with closing(pymysql.connect(user="root", **at)) as connection, connection.cursor() as cursor:
                cursor.execute("SHOW GLOBAL STATUS LIKE %s", (name,))
                row = cursor.fetchone()
        except pymysql.err.MySQLError as error:
            raise ServerFailedError(f"{self.folder.name} does not answer: {error}") from error
        return str(row[1]) if row else ""


class Galera:
    kind: ClassVar[str] = "galera"
    dialect: ClassVar[str] = "mysql"
    suspect_after: ClassVar[int] = SUSPECT_AFTER

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        how: dict[str, Any] = {"durable": durable, "suspect_after": self.suspect_after}
        self.servers = [GaleraServer(folder / f"g{number}", **how) for number in range(1, SERVERS + 1)]
        for server in self.servers:
            server.group = [one.group_address for one in self.servers]

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    @ports.setter
    def ports(self, ports: list[int]) -> None:
        for server, port in zip(self.servers, ports, strict=True):
            server.port = port

    def start(self) -> None:
        find_library()
        self.folder.mkdir(parents=True, exist_ok=True)
        first, *others = self.servers
        first.begin()
        for server in others:
            server.start()
        self.wait_until_synced()

    def wait_until_synced(self, size: int = SERVERS) -> None:
        """Wait until every living server sees so many."""

        def is_synced(server: GaleraServer) -> bool:
            return server.accepts_connections() and server.status("wsrep_cluster_size") == str(size)

        living = [server for server in self.servers if server.process is not None]
        message = f"the cluster comes to {size} servers"
        eventually(lambda: all(map(is_synced, living)), JOIN_WITHIN, every=0.05, message=message)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def url(self, database: str, *, at: int = 0) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{self.ports[at]}/{database}?charset=utf8mb4"

    def multi_host_url(self, database: str, *, first: int = 0) -> str:
        hosts = [f"127.0.0.1:{port}" for port in self.ports]
        return f"mysql+pymysql://root@{','.join(hosts[first:] + hosts[:first])}/{database}?charset=utf8mb4"

    def count(self, name: str) -> int:
        total = 0
        for server in self.servers:
            with suppress(ServerFailedError):
                total += int(server.status(name))
        return total


class SharedGalera(Galera):
    """A cluster of which no server is killed, but which may not get a processor for a while on a busy machine: where
    all three suspected each other at once, none would take writes ever again."""

    suspect_after: ClassVar[int] = 60


@contextmanager
def replace_sched_idle_with_nice() -> Iterator[None]:
    """What is started under SCHED_IDLE is started at nice 19 instead: a thread of Galera requests the usual policy, and
    the server crashes where it is refused."""
    if os.sched_getscheduler(0) != os.SCHED_IDLE:
        yield
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def find_library() -> str:
    if found := next((path for path in LIBRARY if Path(path).exists()), None):
        return found
    raise ServerUnavailableError("galera-4 is not installed (as root, `make test` installs it where apt is present)")
