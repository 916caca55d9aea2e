"""Run a function in a forked process, and list the server's numbers of a client's connections."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from sqlalchemy.engine import Connection

from peerd.operate.client import Client

SESSION_ID_SQL = {"mysql": "SELECT connection_id()", "postgresql": "SELECT pg_backend_pid()"}
OPEN_SESSIONS_SQL = {
    "mysql": "SELECT id FROM information_schema.processlist",
    "postgresql": "SELECT pid FROM pg_stat_activity",
}
FORK_TIMEOUT = 60.0
FORK_CONTEXT = multiprocessing.get_context("fork")


def session_id(connection: Connection) -> int | None:
    statement = SESSION_ID_SQL.get(connection.dialect.name)
    return None if statement is None else int(connection.exec_driver_sql(statement).scalar_one())


def open_sessions(connection: Connection) -> set[int | None]:
    statement = OPEN_SESSIONS_SQL.get(connection.dialect.name)
    return {None} if statement is None else {int(number) for number in connection.exec_driver_sql(statement).scalars()}


def run_in_fork(function: Callable[[], Any]) -> Any:
    """What a function returns in a forked process; it ends as Python ends, with all that is collected then."""
    theirs, ours = FORK_CONTEXT.Pipe()
    child = FORK_CONTEXT.Process(target=_run_and_send, args=(theirs, function))
    child.start()
    try:
        assert ours.poll(FORK_TIMEOUT), "the forked process does not answer"
        answer, problem = ours.recv()
        child.join(FORK_TIMEOUT)
        assert (child.exitcode, problem) == (0, None)
    finally:
        child.kill()
    return answer


def _run_and_send(theirs: Pipe, function: Callable[[], Any]) -> None:
    answer: tuple[Any, str | None]
    try:
        answer = function(), None
    except Exception as error:  # noqa: BLE001 - the parent fails with it
        answer = None, repr(error)
    gc.collect()
    theirs.send(answer)


def use_client(client: Client) -> int:
    async def awaitably() -> int:
        await client.aio.enqueue("mail")
        return len(await client.aio.tasks.list(limit=100))

    client.enqueue("mail")
    return asyncio.run(awaitably())
