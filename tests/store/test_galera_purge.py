"""The table of tasks may be altered on a Galera cluster in use: no server's purge stops at it.

MariaDB 10.11 (seen with 10.11.19, galera 26.4.23): with an index of a virtual column, purge opens the table. Where an
`ALTER TABLE` ended that with an error, purge tried it again for ever, with 90 MB of memory a second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Final

import pymysql
import pytest

from peerd.domain.lifecycle import Status
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.testing import eventually
from tests.support.galera import Galera, GaleraServer

ALTERS: Final = 300
"""With a virtual column, a server's purge stopped within a hundred or two."""
OLD_ROWS: Final = 100
"""What purge may have before it when it has caught up."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_alter_table_does_not_stop_the_purge_of_old_rows(private_galera: Galera) -> None:
    with closing(Database(private_galera.url("peerd"))) as database:
        migrate(database)
    with changing_tasks(private_galera.servers[0]), closing(connect(private_galera.servers[0])) as connection:
        cursor = connection.cursor()
        for _ in range(ALTERS):
            with suppress(pymysql.err.MySQLError):  # a conflict with a row
                cursor.execute("ALTER TABLE tasks AUTO_INCREMENT = 1")
    for server in private_galera.servers:
        eventually(partial(has_purged, server), every=0.5, message=f"purge of {server.folder.name} does not go on")


def has_purged(server: GaleraServer) -> bool:
    return int(server.status("Innodb_history_list_length")) < OLD_ROWS


@contextmanager
def changing_tasks(server: GaleraServer) -> Iterator[None]:
    """Rows come, change their status and go, by three connections."""
    stop = threading.Event()

    def change() -> None:
        with closing(connect(server)) as connection:
            cursor = connection.cursor()
            while not stop.is_set():
                with suppress(pymysql.err.MySQLError):  # a conflict with a change of the table
                    cursor.execute("INSERT INTO tasks (queue) VALUES " + ", ".join(["('q')"] * 50))
                    for status in (Status.SCHEDULED, Status.BURIED, Status.PENDING):
                        cursor.execute("UPDATE tasks SET status = %s ORDER BY id DESC LIMIT 50", (status.value,))
                    cursor.execute("DELETE FROM tasks ORDER BY id LIMIT 50")

    threads = [threading.Thread(target=change) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def connect(server: GaleraServer) -> pymysql.Connection:
    return pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="peerd", autocommit=True)
