"""The databases of a run: durable servers of its own, peerd's tables and the bare one, and a worker's identity."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import URL

from bench.floor import Floor, connect
from bench.floor_tables import BARE, same_table
from peerd.config.address import has_mysqlclient
from peerd.operate.client import Client
from peerd.store import nodes, processes
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.store.take.claimer import Claimer
from tests.support.server import DatabaseServer, ServerUnavailableError
from tests.support.server_kinds import SERVERS
from tests.support.servers import as_admin, create_database

SECRET: Final = "the bell of the bench"
"""Of all nodes, and of the programs that ring at them."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A database, how it is spoken to, and how durable it is; `kind` is that of its SQL."""

    kind: str
    title: str
    server: str = ""
    driver: str | None = None
    synchronous: str = "FULL"


VARIANTS: Final[Mapping[str, Variant]] = {
    "sqlite": Variant(kind="sqlite", title="SQLite, synchronous = FULL"),
    "sqlite-normal": Variant(kind="sqlite", title="SQLite, synchronous = NORMAL", synchronous="NORMAL"),
    "mariadb": Variant(kind="mariadb", server="mariadb", title="MariaDB by PyMySQL", driver="mysql+pymysql"),
    "mariadb-mysqlclient": Variant(
        kind="mariadb", server="mariadb", title="MariaDB by mysqlclient", driver="mysql+mysqldb"
    ),
    "mysql": Variant(kind="mariadb", server="mysql", title="MySQL by PyMySQL", driver="mysql+pymysql"),
    "mysql-mysqlclient": Variant(kind="mariadb", server="mysql", title="MySQL by mysqlclient", driver="mysql+mysqldb"),
    "postgresql": Variant(kind="postgresql", server="postgresql", title="PostgreSQL by psycopg"),
}
"""peerd itself keeps SQLite at FULL; what NORMAL would give is measured, and not offered."""


class BenchDatabase:
    """One database with everything that measurements need.

    Args:
        name: one of `VARIANTS`.
        url: an empty database.
        folder: for files that measurements need.
        server: that it is on.
    """

    def __init__(self, name: str, url: str, folder: Path, server: DatabaseServer | None = None) -> None:
        self.name = name
        self.variant = VARIANTS[name]
        self.kind = self.variant.kind
        self.url = url
        self.folder = folder
        self.server = server
        self.database = open_database(url, self.variant.synchronous)
        migrate(self.database)
        self.client = Client(self.database, secret=SECRET)
        self._connection = connect(self.database.url, self.variant.synchronous)
        self.floors: dict[str, Floor] = {
            "bare": Floor(self.kind, self._connection, BARE),
            "same": Floor(self.kind, self._connection, same_table(self.kind)),
        }
        self.floors["bare"].create()
        self._others: dict[str, str] = {}

    @cached_property
    def version(self) -> str:
        """The server's, or the library's."""
        questions = {"sqlite": "SELECT sqlite_version()", "postgresql": "SHOW server_version"}
        [found] = self.ask(questions.get(self.kind, "SELECT version()"))
        return str(found[0])

    def extra_database(self, name: str) -> str:
        """The address of another database on the same server, or of a file beside; made when it is first asked for."""
        if name not in self._others:
            if self.server is None:
                self._others[name] = f"sqlite:///{self.folder / name}.sqlite"
            else:
                self._others[name] = create_with_driver(self.server, name, self.variant.driver)
        return self._others[name]

    def empty(self) -> None:
        """Take all tasks away, and what they left behind in the files."""
        filled = [table for table in ("tasks", "bare") if self.ask(f"SELECT id FROM {table} LIMIT 1")]
        for table in filled:
            self.ask(f"DELETE FROM {table}" if self.kind == "sqlite" else f"TRUNCATE TABLE {table}")
        if self.kind == "sqlite":
            self.ask("PRAGMA wal_checkpoint(TRUNCATE)")

    def analyze(self) -> None:
        """Tell the planner what is in the tables, as a server does by itself after a while."""
        for table in ("tasks", "bare"):
            self.ask(f"ANALYZE TABLE {table}" if self.kind == "mariadb" else f"ANALYZE {table}")

    def count_done(self) -> int:
        """Tasks of peerd's that are done."""
        [found] = self.ask("SELECT count(*) FROM tasks WHERE status = 'done'")
        return int(found[0])

    def ask(self, statement: str) -> list[Any]:
        """Run a statement on the bare driver; its rows, if it has any."""
        cursor = self._connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description is not None else []

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
        self.client.close()
        self.database.close()


@contextmanager
def open_bench_database(name: str) -> Iterator[BenchDatabase]:
    """A database that waits for the disk at each commit, for the time of the block.

    Raises:
        ServerUnavailableError: the server's programs, or the driver, are not installed.
    """
    variant = VARIANTS[name]
    if variant.driver == "mysql+mysqldb" and not has_mysqlclient():
        raise ServerUnavailableError("mysqlclient is not installed")
    with ExitStack() as afterwards:
        folder = Path(tempfile.mkdtemp(prefix="peerd-bench-"))
        afterwards.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user when we are root
        server: DatabaseServer | None = None
        if variant.kind == "sqlite":
            url = f"sqlite:///{folder / 'peerd.sqlite'}"
        else:
            server = SERVERS[variant.server](folder / variant.server, durable=True)
            afterwards.callback(server.stop)
            server.start()
            url = create_with_driver(server, "peerd", variant.driver)
        ready = BenchDatabase(name, url, folder, server)
        afterwards.callback(ready.close)
        yield ready


def create_with_driver(server: DatabaseServer, name: str, driver: str | None) -> str:
    """The address of a new database, for a user with all rights, by a driver."""
    url = as_admin(create_database(server, name))
    return url.set(drivername=driver or url.drivername).render_as_string(hide_password=False)


def open_database(url: str | URL, synchronous: str = "FULL", *, pool_size: int = 5) -> Database:
    """Peerd's own, with what it does not offer: SQLite's `synchronous`, at each connection."""
    database = Database(url, pool_size=pool_size)
    if synchronous != "FULL":

        def on_connect(connection: Any, _: Any) -> None:
            connection.execute(f"PRAGMA synchronous = {synchronous}")

        for engine in database.engines.distinct():
            sa.event.listen(engine, "connect", on_connect)

    return database


Node = tuple[int, str]
"""A node's id, and its incarnation."""


def register_bench_node(database: Database) -> Node:
    """Be a node."""
    incarnation = nodes.new_incarnation()
    node_id = database.run(nodes.register_incarnation, f"bench-{incarnation}", incarnation, replaces=None)
    assert node_id is not None
    return node_id, incarnation


def register_bench_process(database: Database, *queues: str, node: Node | None = None) -> Claimer:
    """Be a process that serves these queues, of this node or of one of its own."""
    node_id, incarnation = node or register_bench_node(database)
    process_id = database.run(
        processes.register_process,
        node_id=node_id,
        incarnation=incarnation,
        kind="bench",
        slot="bench-1",
        role="worker",
        pid=os.getpid(),
    )
    return Claimer(node_id=node_id, incarnation=incarnation, process_id=process_id, queues=queues)


__all__ = [
    "VARIANTS",
    "BenchDatabase",
    "ServerUnavailableError",
    "open_bench_database",
    "open_database",
    "register_bench_node",
    "register_bench_process",
]
