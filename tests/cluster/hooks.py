"""All hooks of a project that run at the end of a node. Each hook appends a line to a file when it has finished."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from peerd import Agent, Task, TaskWorker, Worker

HERE = Path(__file__).parent


async def note(process_name: str) -> None:
    """It takes a while, as closing a connection does."""
    await asyncio.sleep(0.2)
    with (HERE / "hooks").open("a") as file:
        file.write(f"{process_name}\n")


def setup(agent: Agent) -> None:
    agent.log.info("good evening", guests=3)
    agent.on_stop(lambda: note("agent"))
    agent.on_stop(fail)


async def fail() -> None:
    raise OSError("the connection was closed already")


class Periodic(Worker):
    sleep = 0.05

    async def loop(self) -> None:
        pass

    async def teardown(self) -> None:
        await note("periodic")


class Careless(Periodic):
    async def teardown(self) -> None:
        raise LookupError("there is nothing to close")


class Rows(TaskWorker):
    queues = ("rows",)

    async def handle_task(self, task: Task) -> None:
        pass

    async def teardown(self) -> None:
        await note("rows")


async def app(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await note("site")
    await send({"type": "lifespan.shutdown.complete"})
