"""Run a function in a forked process, and list the server's numbers of a client's connections."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

import pytest
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
    theirs.close()
    try:
        if not ours.poll(FORK_TIMEOUT):
            os.kill(child.pid or 0, signal.SIGUSR1)
            child.join(1.0)
            pytest.fail("the forked process does not answer; its standard error says where it is")
        answer, problem = ours.recv()
        child.join(FORK_TIMEOUT)
        assert (child.exitcode, problem) == (0, None)
    except EOFError:
        child.join(FORK_TIMEOUT)
        pytest.fail(f"the forked process ended with {child.exitcode} before it answered")
    finally:
        child.kill()
    return answer


def _run_and_send(theirs: Pipe, function: Callable[[], Any]) -> None:
    answer: tuple[Any, str | None]
    faulthandler.register(signal.SIGUSR1, file=2)
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
