"""A client that was used before its process forked, as gunicorn --preload, Celery and multiprocessing do."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.operate.client import Client
from peerd.store.database import Database

NUMBER = {"mysql": "SELECT connection_id()", "postgresql": "SELECT pg_backend_pid()"}
WITHIN = 30.0
FORK = multiprocessing.get_context("fork")


def session_of(connection: Connection) -> int | None:
    """The server's number of a connection; None on SQLite."""
    statement = NUMBER.get(connection.dialect.name)
    return None if statement is None else int(connection.exec_driver_sql(statement).scalar_one())


def in_fork(function: Callable[[], Any]) -> Any:
    """What a function returns in a forked process; it ends as Python ends, with all that is collected then."""
    theirs, ours = FORK.Pipe()
    child = FORK.Process(target=_answer, args=(theirs, function))
    child.start()
    try:
        assert ours.poll(WITHIN), "the forked process does not answer"
        answer = ours.recv()
        child.join(WITHIN)
        assert child.exitcode == 0
    finally:
        child.kill()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(theirs: Pipe, function: Callable[[], Any]) -> None:
    try:
        answer = function()
    except Exception as error:  # noqa: BLE001 - it is raised where it can be seen
        answer = RuntimeError(f"in the forked process: {error!r}")
    gc.collect()
    theirs.send(answer)


def use(client: Client) -> int:
    """Use all that a client has; how many tasks there are."""

    async def awaitably() -> int:
        await client.aio.enqueue("mail")
        return len(await client.aio.tasks.list(limit=100))

    client.enqueue("mail")
    return asyncio.run(awaitably())


def test_a_forked_process_has_connections_and_threads_of_its_own(client: Client) -> None:
    assert use(client) == 2
    sessions = {client.database.read(session_of), client.database.run(session_of)}

    def use_in_child() -> tuple[int, set[int | None]]:
        return use(client), {client.database.read(session_of), client.database.run(session_of)}

    count, its_sessions = in_fork(use_in_child)
    assert count == 4
    assert sessions == {None} or not its_sessions & sessions
    left = {client.database.read(session_of), client.database.run(session_of)}
    assert left == sessions, "the parent's connections were ended by its child"
    assert in_fork(lambda: in_fork(lambda: use(client))) == 6
    assert use(client) == 8


def test_processes_that_were_forked_work_beside_their_parent(client: Client) -> None:
    use(client)

    def enqueue() -> None:
        for _ in range(20):
            client.enqueue("mail")

    children = [FORK.Process(target=enqueue) for _ in range(3)]
    for child in children:
        child.start()
    enqueue()
    for child in children:
        child.join(WITHIN)
    assert [child.exitcode for child in children] == [0, 0, 0]
    [queue] = client.queues.list()
    assert queue.counts == {Status.PENDING: 2 + 80}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_fork_in_the_middle_of_another_threads_first_question_stops_nobody(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, go_on = threading.Event(), threading.Event()

    def look(_: Database) -> None:
        looks.set()
        go_on.wait(WITHIN)

    def use_in_child() -> int:
        monkeypatch.undo()
        return use(client)

    monkeypatch.setattr("peerd.operate.asking.require_newest", look)
    asking = threading.Thread(target=client.tasks.list)
    asking.start()
    try:
        assert looks.wait(WITHIN)
        assert in_fork(use_in_child) == 2
    finally:
        go_on.set()
        asking.join(WITHIN)
