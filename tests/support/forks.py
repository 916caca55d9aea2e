"""A function in a forked process, and what a client's connections are called at the server."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from sqlalchemy.engine import Connection

from peerd.operate.client import Client

NUMBER = {"mysql": "SELECT connection_id()", "postgresql": "SELECT pg_backend_pid()"}
OPEN = {"mysql": "SELECT id FROM information_schema.processlist", "postgresql": "SELECT pid FROM pg_stat_activity"}
WITHIN = 30.0
FORK = multiprocessing.get_context("fork")


def session_of(connection: Connection) -> int | None:
    """The server's number of a connection; None on SQLite."""
    statement = NUMBER.get(connection.dialect.name)
    return None if statement is None else int(connection.exec_driver_sql(statement).scalar_one())


def open_sessions(connection: Connection) -> set[int | None]:
    """The numbers of the connections that the server has open; of SQLite None alone."""
    statement = OPEN.get(connection.dialect.name)
    return {None} if statement is None else {int(number) for number in connection.exec_driver_sql(statement).scalars()}


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
