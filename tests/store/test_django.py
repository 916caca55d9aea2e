"""Enqueuing from Django, with the real one, on the three databases."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import django  # type: ignore[import-untyped]
import pymysql
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings  # type: ignore[import-untyped]
from django.db import DatabaseError, connections, transaction  # type: ignore[import-untyped]

from peerd import Queue, Status
from peerd.contrib.django import enqueue, enqueue_many
from peerd.domain.errors import InvalidTask, NodeNotFound
from peerd.domain.ring import TasksAvailable
from peerd.domain.task import Call, NewTask
from peerd.testing import eventually, run_inline
from tests.store.world import World

if not settings.configured:
    settings.configure(USE_TZ=True, TIME_ZONE="Asia/Kolkata", DATABASES={})
    django.setup()

ENGINES = {"mysql": "mysql", "postgresql": "postgresql", "sqlite": "sqlite3"}
CALL = Call("q", "transcode", '{"percent":"100 %s"}')


@pytest.fixture(scope="module", autouse=True)
def _mysql() -> Iterator[None]:
    """Django's own driver for MySQL needs a compiler; PyMySQL answers to its name meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pymysql, "version_info", (2, 2, 7, "final", 0))
        for name in [name for name in sys.modules if name.partition(".")[0] == "pymysql"]:
            # All of its modules: one that is loaded anew would put other errors in the place of PyMySQL's.
            patch.setitem(sys.modules, name.replace("pymysql", "MySQLdb", 1), sys.modules[name])
        yield


def execute(using: str, sql: str, *values: object) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, values)


@pytest.fixture
def using(world: World) -> Iterator[str]:
    """Django's name of a database in which peerd's tables are."""
    url = world.store.url
    alias = f"on_{world.store.name}"
    database = {"ENGINE": f"django.db.backends.{ENGINES[world.store.name]}", "NAME": url.database}
    database |= {
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.host or "",
        "PORT": str(url.port or ""),
    }
    connections.settings[alias] = connections.configure_settings({"default": database})["default"]
    execute(alias, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
    execute(alias, "DELETE FROM orders")
    yield alias
    connections[alias].close()
    del connections[alias]


def order(using: str, number: int = 7) -> None:
    execute(using, "INSERT INTO orders VALUES (%s)", number)


def orders(using: str) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orders")
        return int(cursor.fetchone()[0])


def test_a_task_commits_with_the_transaction_around_it(world: World, using: str) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    with transaction.atomic(using=using):
        order(using)
        answer = enqueue(CALL, using=using, priority=20, start_at=moment, finish_in="2h", unique="k")
        assert answer.created
        assert world.find(answer.id) is None
    task = world.get(answer.id)
    assert (task.queue, task.name, task.body, task.priority) == ("q", "transcode", '{"percent":"100 %s"}', 20)
    assert task.start_at is not None
    assert abs(task.start_at - moment) < timedelta(milliseconds=1)
    assert orders(using) == 1
    assert enqueue(CALL, using=using, unique="k").id == answer.id


def test_without_a_transaction_around_it_it_commits_by_itself(world: World, using: str) -> None:
    answers = enqueue_many([CALL, "q", NewTask(queue="q", body_bytes=b"\x00\xff")] * 20, using=using)
    assert [answer.id for answer in answers] == sorted({answer.id for answer in answers})
    assert world.get(answers[2].id).body_bytes == b"\x00\xff"
    assert world.count() == 60


def test_a_task_that_is_refused_leaves_the_transaction_usable(world: World, using: str) -> None:
    with transaction.atomic(using=using):
        with pytest.raises(NodeNotFound):
            enqueue(CALL, using=using, node="nowhere")
        with pytest.raises(InvalidTask):
            enqueue("no spaces", using=using)
        order(using)
    assert (orders(using), world.count()) == (1, 0)


def test_an_error_of_the_database_is_djangos_error_and_undoes_the_transaction_around_it(
    world: World, using: str
) -> None:
    def broken() -> None:
        with transaction.atomic(using=using):
            order(using)
            assert enqueue(CALL, using=using, unique="k").created
            execute(using, "INSERT INTO tasks (queue) VALUES ('')")

    with pytest.raises(DatabaseError):
        broken()
    assert (world.count(), orders(using)) == (0, 0)
    execute(using, "ALTER TABLE tasks RENAME TO hidden")
    try:
        with pytest.raises(DatabaseError):
            enqueue(CALL, using=using)
    finally:
        execute(using, "ALTER TABLE hidden RENAME TO tasks")
    assert enqueue(CALL, using=using, unique="k").created


def test_the_nodes_are_rung_at_after_the_commit_and_not_after_a_rollback(
    world: World, using: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[Any] = []
    notifier = SimpleNamespace(ring=lambda *rings: rung.extend(rings))
    monkeypatch.setattr(settings, "PEERD_CLIENT", SimpleNamespace(notifier=notifier), raising=False)
    with transaction.atomic(using=using):
        enqueue(CALL, using=using)
        assert rung == []
    assert rung == [TasksAvailable(("q",))]
    with transaction.atomic(using=using):
        enqueue(CALL, using=using)
        transaction.set_rollback(True, using=using)
    assert rung == [TasksAvailable(("q",))]


GONE_AFTER = {
    "mysql": {"init_command": "SET wait_timeout = 1"},
    "postgresql": {"options": "-c idle_session_timeout=1s"},
}
"""Options with which a server closes an idle connection after a second."""
SESSIONS = {
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE id = %s",
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE pid = %s",
}
OWN_SESSION = {"mysql": "SELECT connection_id()", "postgresql": "SELECT pg_backend_pid()"}


@pytest.mark.every_database
@pytest.mark.parametrize("store", ["mariadb", "postgresql"], indirect=True)
def test_handlers_that_use_the_orm_have_a_connection_whatever_the_server_has_closed_meanwhile(
    using: str, world: World
) -> None:
    """Each attempt has a connection of its own, and closes it: a coroutine's stays with no thread that outlives it."""
    name, orm = world.store.name, Queue("orm")
    connections.settings[using]["OPTIONS"] = GONE_AFTER[name]

    def session() -> int:
        with connections[using].cursor() as cursor:
            cursor.execute(OWN_SESSION[name])
            return int(cursor.fetchone()[0])

    @orm.task
    async def coroutine() -> list[int]:
        return [await sync_to_async(session)() for _ in range(2)]

    @orm.task
    def plain() -> list[int]:
        return [session() for _ in range(2)]

    def is_gone(number: int) -> bool:
        with world.store.engine.connect() as connection:
            return not connection.exec_driver_sql(SESSIONS[name], (number,)).scalar_one()

    for handler in (coroutine, plain):
        for _ in range(2):
            ran = asyncio.run(run_inline(handler.with_args()))
            assert ran.status is Status.DONE, ran.error
            first, again = ran.result
            assert first == again
            eventually(partial(is_gone, first))
