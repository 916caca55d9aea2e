"""User code that logs, for clusters under test."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

from peerd import Context, Queue

talking = Queue("talking")
log = logging.getLogger("talking")
HERE = Path(__file__).parent


@talking.task
async def coroutine(ctx: Context) -> None:
    print(f"printed by a coroutine of task {ctx.task.id}")  # noqa: T201
    log.warning("logged by a coroutine")
    ctx.log.info("bound", by="a coroutine")


@talking.task
def thread(ctx: Context) -> None:
    print(f"printed by a thread of task {ctx.task.id}")  # noqa: T201


@talking.task(process=True)
def process(ctx: Context) -> None:
    print(f"printed by a process of task {ctx.task.id}")  # noqa: T201
    ctx.log.info("bound", by="a process")


@talking.task(max_attempts=1)
async def is_killed(ctx: Context) -> None:
    print("long before")  # noqa: T201
    while not (HERE / "gate").exists():  # noqa: ASYNC110 - the test makes it
        await asyncio.sleep(0.02)
    ctx.log.error("the last words", of="the process")
    os.kill(os.getpid(), signal.SIGKILL)


@talking.task
async def stops(ctx: Context) -> None:
    for number in range(1000):
        print(f"line {number}")  # noqa: T201
        await asyncio.sleep(0.01)
