"""Errors of databases, provoked on real ones, and the errors that `Database` raises for them."""

from __future__ import annotations

import importlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseRefused, DatabaseUnavailable, UnsupportedDatabase
from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import find_schema_version, migrate
from tests.store.world import World, at_once
from tests.support.server_kinds import ON_SERVERS
from tests.support.servers import as_admin

pytestmark = pytest.mark.every_database

SERVERS = pytest.mark.parametrize("store", ON_SERVERS, indirect=True)


def write_both(world: World, ids: list[int], meet: threading.Barrier) -> Callable[[], int]:
    """A unit that locks two rows in the order given; the first try of each meets the other between the two."""
    tries = 0

    def unit(connection: Connection) -> int:
        nonlocal tries
        tries += 1
        for index, task_id in enumerate(ids):
            connection.exec_driver_sql(f"UPDATE tasks SET priority = priority + 1 WHERE id = {task_id}")
            if index == 0 and tries == 1:
                meet.wait(10)
        return tries

    return lambda: world.run(unit)


@SERVERS
def test_a_deadlock_is_undone_and_run_again_as_a_whole(world: World) -> None:
    first, second = world.add(), world.add()
    meet = threading.Barrier(2)
    tries = at_once([write_both(world, [first, second], meet), write_both(world, [second, first], meet)])
    assert sorted(tries) == [1, 2]
    assert [world.get(task_id).priority for task_id in (first, second)] == [12, 12]


@SERVERS
def test_a_statement_that_was_cancelled_is_tried_again(world: World) -> None:
    task_id, sessions, gate = world.add(), queue.SimpleQueue[int](), threading.Barrier(2)
    own = "connection_id()" if world.store.name == "mysql" else "pg_backend_pid()"
    cancel = "KILL QUERY {}" if world.store.name == "mysql" else "SELECT pg_cancel_backend({})"

    def write(connection: Connection) -> None:
        sessions.put(connection.exec_driver_sql(f"SELECT {own}").scalar_one())
        connection.exec_driver_sql(f"UPDATE tasks SET priority = priority + 1 WHERE id = {task_id}")

    def cancel_once() -> None:
        with world.store.engine.connect() as holder, world.store.engine.connect() as other:
            holder.exec_driver_sql(f"SELECT id FROM tasks WHERE id = {task_id} FOR UPDATE")
            gate.wait(10)
            session = sessions.get(timeout=60)
            time.sleep(0.2)  # until it waits for the row
            other.exec_driver_sql(cancel.format(session))
            sessions.get(timeout=60)
            holder.rollback()

    for way in (world.store.run, world.store.run_short):

        def write_it(way: Callable[..., object] = way) -> None:
            gate.wait(10)
            way(write)

        at_once([cancel_once, write_it])
    assert world.get(task_id).priority == 12


@pytest.fixture
def opened() -> Iterator[Callable[..., Database]]:
    with ExitStack() as afterwards:
        yield lambda url: afterwards.enter_context(closing(Database(str(url))))


@SERVERS
def test_a_wrong_database_user_or_password_is_refused_with_the_remedy(
    world: World, opened: Callable[..., Database]
) -> None:
    user = {"username": "unknown_user", "password": "secret"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"database": "nowhere"}, r"nowhere.*CREATE DATABASE"),
        (user, r"unknown_user.*see that the user in .* is right, and its password"),
    ]
    for wrong, remedy in refused:
        url = world.store.url.set(**wrong).render_as_string(hide_password=False)
        with pytest.raises(DatabaseRefused, match=remedy) as caught:
            find_schema_version(opened(url))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("store", ["mysql"], indirect=True)
def test_a_server_that_logs_statements_is_refused_with_the_remedy(
    world: World, opened: Callable[..., Database]
) -> None:
    def write(connection: Connection) -> None:
        connection.exec_driver_sql("SET SESSION binlog_format = STATEMENT")
        enqueue.enqueue(connection, NewTask(queue="q"))

    with pytest.raises(DatabaseRefused, match="binlog_format = ROW"):
        opened(as_admin(world.store.url).render_as_string(hide_password=False)).run(write)


@SERVERS
def test_a_user_without_rights_is_refused_with_the_remedy_and_one_with_too_many_connections_waits(
    world: World, opened: Callable[..., Database]
) -> None:
    name = f"no_rights_{world.node('a')}"
    with sa.create_engine(
        as_admin(world.store.url), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    ).connect() as admin:
        if world.store.name == "mysql":
            admin.exec_driver_sql(f"CREATE USER IF NOT EXISTS {name}@'%%' WITH MAX_USER_CONNECTIONS 1")
            admin.exec_driver_sql(f"GRANT SELECT ON {world.store.url.database}.* TO {name}@'%%'")
        else:
            admin.exec_driver_sql(f"DROP ROLE IF EXISTS {name}")
            admin.exec_driver_sql(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1")
        without_rights = opened(world.store.url.set(username=name, password="").render_as_string(hide_password=False))
        with pytest.raises(DatabaseRefused, match="GRANT"):
            without_rights.run(enqueue.enqueue, NewTask(queue="q"))
        with pytest.raises(DatabaseUnavailable) as caught:  # by its second connection
            without_rights.read(lambda connection: connection.exec_driver_sql("SELECT 1"))
        assert caught.type is DatabaseUnavailable
        without_rights.close()
        admin.exec_driver_sql(f"DROP {'USER' if world.store.name == 'mysql' else 'ROLE'} {name}")


def test_a_sqlite_file_that_cannot_be_opened_is_refused_with_the_remedy(
    tmp_path: Path, opened: Callable[..., Database]
) -> None:
    with pytest.raises(DatabaseRefused, match="folder must be there"):
        find_schema_version(opened(f"sqlite:///{tmp_path}/nowhere/peerd.sqlite"))
    (tmp_path / "poem.txt").write_text("no database " * 1000)
    with pytest.raises(DatabaseRefused, match="something else"):
        find_schema_version(opened(f"sqlite:///{tmp_path}/poem.txt"))


def test_an_unknown_database_is_named_with_the_known_ones_and_a_password_is_not_shown() -> None:
    for url, problem in (
        ("oracle://x@y/z", "no database that peerd knows"),
        ("nonsense", "is not an address"),
        ("sqlite://", "every process must open the same file"),
    ):
        with pytest.raises(UnsupportedDatabase, match=problem):
            Database(url)
    with closing(Database("mysql://peerd:secret@db/peerd")) as database:
        assert "secret" not in repr(database)


def test_a_login_that_needs_another_package_shows_which(
    tmp_path: Path, opened: Callable[..., Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL 8's usual login, without TLS: PyMySQL cannot do it alone, and raises a RuntimeError."""
    auth = importlib.import_module("pymysql._auth")
    monkeypatch.setattr(auth, "_have_cryptography", False)

    def log_in(_: Connection) -> None:
        auth.sha2_rsa_encrypt(b"secret", b"nonce", b"key")

    with pytest.raises(UnsupportedDatabase, match=r"pip install 'peerd\[mysql\]'"):
        opened(f"sqlite:///{tmp_path}/peerd.sqlite").run(log_in)


def test_a_full_disk_is_refused_with_the_remedy_and_heals(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/small.sqlite", pool_size=1)
    migrate(database)
    large = NewTask(queue="q", body=json.dumps("x" * 200_000))

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 60")  # the disk, as far as SQLite knows
        enqueue.enqueue(connection, large)

    with pytest.raises(DatabaseRefused, match="free space on the disk"):
        database.run(fill)
    database.close()  # and with it the limit
    assert database.run(enqueue.enqueue, large).created
    database.close()
