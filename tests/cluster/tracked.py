"""User code that fails in every way, and a hook that notes each error in a file."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from peerd import Context, ErrorReport, Message, Queue, Retry, Worker

HERE = Path(__file__).parent
tracked = Queue("tracked")
refusing = Queue("refusing")


def note(report: ErrorReport) -> None:
    """The hook. In some processes it fails, or does not return."""
    if report.tags.get("slot") == "raising-1":
        raise ConnectionError("the error tracker is away")
    if report.tags.get("slot") == "hanging-1":
        (HERE / "hangs").touch()
        time.sleep(1000)
    raised = None if report.exception is None else type(report.exception).__name__
    line = {"raised": raised, "traceback": report.traceback, "error": report.error, **report.tags}
    with (HERE / "errors").open("a") as file:
        file.write(json.dumps(line) + "\n")


@tracked.task(max_attempts=1)
async def coroutine() -> None:
    raise LookupError("of a coroutine")


@tracked.task(max_attempts=1)
def thread() -> None:
    raise LookupError("of a thread")


@tracked.task(process=True, max_attempts=1)
def process() -> None:
    raise LookupError("of a process")


@tracked.task(timeout=0.2, max_attempts=1)
async def late() -> None:
    await asyncio.sleep(1000)


@tracked.task(timeout=0.2, max_attempts=1)
def stuck() -> None:
    time.sleep(1000)


@tracked.task
async def asks_for_another(ctx: Context) -> str:
    if not ctx.task.attempts:
        raise Retry(0, "not yet")
    return "done"


@tracked.task(max_attempts=1)
async def dies() -> None:
    os._exit(9)


@tracked.task
async def does_the_rest(ctx: Context) -> None:
    async def background() -> None:
        raise LookupError("of background work")

    ctx.run_in_background(background())


@tracked.task
async def leaves_uncaught() -> None:
    careless = threading.Thread(target=_raise, args=("of a careless thread",), name="careless")
    careless.start()
    careless.join()


class Finalized:
    def __del__(self) -> None:
        raise LookupError("of a finalizer")


@tracked.task
async def leaves_a_finalizer() -> None:
    Finalized()
    gc.collect()


@refusing.task
async def listens(ctx: Context) -> None:
    def on_news(message: Message) -> None:
        raise LookupError("of a message handler")

    ctx.messenger.once("news", on_news)
    await ctx.messenger.send_to(os.getpid(), "news")


@refusing.after_attempt
def fail_after(ctx: Context, outcome: object) -> None:
    raise LookupError("of a hook")


class Round(Worker):
    sleep = 1000

    async def loop(self) -> None:
        raise LookupError("of a round")


def scheduled() -> None:
    raise LookupError("of a schedule")


def _raise(text: str) -> None:
    raise LookupError(text)


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    else:
        raise LookupError("of a request")
