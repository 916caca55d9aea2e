"""The databases of a run: durable servers of its own, peerd's tables and the bare one, and a worker's identity."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.floor import Floor, connect
from bench.samples import By
from bench.tables import BARE, same_table
from peerd.operate.client import Client
from peerd.store import nodes, processes
from peerd.store.claim import Claimer
from peerd.store.database import Database
from peerd.store.migrate import migrate
from tests.support.server import ServerUnavailableError
from tests.support.server_kinds import SERVERS
from tests.support.servers import create_database

KINDS = ("sqlite", "mariadb", "postgresql")


class Stage:
    """One database with everything that measurements need.

    Args:
        kind: mariadb, postgresql or sqlite.
        url: an empty database.
        folder: for files that measurements need.
    """

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self.kind = kind
        self.url = url
        self.folder = folder
        self.database = Database(url)
        migrate(self.database)
        self.client = Client(self.database)
        self._connection = connect(kind, self.database.url)
        self.floors: dict[By, Floor] = {
            "bare": Floor(kind, self._connection, BARE),
            "same": Floor(kind, self._connection, same_table(kind)),
        }
        self.floors["bare"].create()

    @property
    def version(self) -> str:
        """The server's, or the library's."""
        questions = {"sqlite": "SELECT sqlite_version()", "postgresql": "SHOW server_version"}
        [found] = self.ask(questions.get(self.kind, "SELECT version()"))
        return str(found[0])

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
def stage(kind: str) -> Iterator[Stage]:
    """A database that waits for the disk at each commit, for the time of the block.

    Raises:
        ServerUnavailableError: the server's programs are not installed.
    """
    with ExitStack() as afterwards:
        folder = Path(tempfile.mkdtemp(prefix="peerd-bench-"))
        afterwards.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user when we are root
        if kind == "sqlite":
            url = f"sqlite:///{folder / 'peerd.sqlite'}"
        else:
            server = SERVERS[kind](folder / kind, durable=True)
            afterwards.callback(server.stop)
            server.start()
            url = create_database(server, "peerd")
        ready = Stage(kind, url, folder)
        afterwards.callback(ready.close)
        yield ready


def enter(database: Database, queue: str) -> Claimer:
    """Be a node and a process of it that serves one queue."""
    incarnation = nodes.new_incarnation()
    node_id = database.run(nodes.register, f"bench-{incarnation}", incarnation, replaces=None)
    assert node_id is not None
    process_id = database.run(
        processes.register_process,
        node_id=node_id,
        incarnation=incarnation,
        kind="bench",
        slot="bench-1",
        role="worker",
        pid=os.getpid(),
    )
    return Claimer(node_id=node_id, incarnation=incarnation, process_id=process_id, queues=(queue,))


__all__ = ["KINDS", "ServerUnavailableError", "Stage", "enter", "stage"]
