"""The handlers of the load: every kind there is, each telling the history when it begins and how it ends.

A result is `{"lease": …, "pid": …}` and every error or reason says `lease N`, so that the row itself says which claim
wrote it. Nodes load them with what `tests.faults.versions` adds, and `tests.faults.jobs:RowWorker` for the queue of
whole rows.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa

from peerd import Cancel, Context, Dead, Queue, Retry, Snooze, Task, TaskWorker
from peerd.runtime.observability.events import Event
from tests.faults import history

work = Queue("work")
ROWS = "rows"
EXPECTED_ENDS: Final = {"gives_up": "dead", "withdraws": "canceled", "poison": "dead"}
"""How the tasks of a handler end; all others are done."""
TIMEOUTS: Final = {"stubborn": 0.5}
"""Seconds, of the handlers whose tasks have a timeout."""

Result = dict[str, int]


class PlannedFailure(Exception):
    """The failure that was ordered."""


OUTCOMES: dict[type[BaseException], str] = {
    Snooze: "snoozed",
    Cancel: "canceled",
    Dead: "dead",
    Retry: "failure",
    asyncio.CancelledError: "cancelled",
}


@contextmanager
def attempt(ctx: Context, handler: str, key: str, code: str = "") -> Iterator[None]:
    """One attempt in the history: its begin, and how its code ended. `code` is its version, where there are two."""
    task = ctx.task
    fields_of_claim = {
        "task": task.id,
        "lease": ctx.lease,
        "process_id": task.process_id,
        "node": ctx.node,
        "handler": handler,
    }
    history.record("began", **fields_of_claim, attempt=task.attempts + 1, crashes=task.crashes, key=key, code=code)
    outcome = "done"
    try:
        yield
    except BaseException as error:
        outcome = OUTCOMES.get(type(error), "failure")
        raise
    finally:
        history.record("ended", **fields_of_claim, outcome=outcome, saw_cancel=ctx.saw_cancelled)


def result(ctx: Context) -> Result:
    return {"lease": ctx.lease, "pid": os.getpid()}


def words(ctx: Context) -> str:
    return f"as ordered, at lease {ctx.lease}"


# -------------------------------------------------------------------- what succeeds


@work.task
async def short(ctx: Context, key: str, seconds: float) -> Result:
    with attempt(ctx, "short", key):
        await asyncio.sleep(seconds)
        return result(ctx)


@work.task
async def long(ctx: Context, key: str, seconds: float) -> Result:
    """It says how far it is."""
    with attempt(ctx, "long", key):
        for step in range(10):
            await ctx.progress(step / 10, f"step {step}")
            await asyncio.sleep(seconds / 10)
        return result(ctx)


@work.task
def thread(ctx: Context, key: str, seconds: float) -> Result:
    """A thread that checks for its cancellation."""
    with attempt(ctx, "thread", key):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if ctx.cancelled:
                raise PlannedFailure(words(ctx))
            time.sleep(min(0.05, seconds))
        return result(ctx)


@work.task
def deaf(ctx: Context, key: str, seconds: float) -> Result:
    """A thread that ignores its cancellation."""
    with attempt(ctx, "deaf", key):
        time.sleep(seconds)
        return result(ctx)


@work.task
def terminating(ctx: Context, key: str) -> Result:
    """It forks a child, and terminates it: neither may reach the process of the handler."""
    with attempt(ctx, "terminating", key):
        print(f"{key} forks a child", flush=True)  # noqa: T201
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(OUTLIVES,))
        child.start()
        child.terminate()
        child.join()
        if child.exitcode != -signal.SIGTERM:
            raise AssertionError(f"the child ended with {child.exitcode}")
        return result(ctx)


@work.task(process=True)
def program(ctx: Context, key: str, seconds: float) -> Result:
    with attempt(ctx, "program", key):
        time.sleep(seconds)
        return result(ctx)


@work.task
async def blocking(ctx: Context, key: str, seconds: float) -> Result:
    """It holds up the event loop of its process."""
    with attempt(ctx, "blocking", key):
        time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for
        return result(ctx)


class RowWorker(TaskWorker):
    """Whole rows; the body is JSON, and no handler's."""

    queues = (ROWS,)

    async def setup(self) -> None:
        """Listen to the events of the process, and fail at each."""

        def listen(event: Event) -> None:
            raise PlannedFailure(f"a listener of {type(event).__name__}")

        self.events.listen(listen)

    async def handle_task(self, task: Task) -> object:
        ctx, body = self.context(task), task.json
        assert isinstance(body, dict)
        with attempt(ctx, "rows", str(body["key"])):
            await asyncio.sleep(float(body["seconds"]))
            if task.attempts < int(body.get("times", 0)):
                raise PlannedFailure(words(ctx))
            return result(ctx)


# -------------------------------------------------------------------- what does not, or not at once


@work.task
async def failing(ctx: Context, key: str, times: int) -> Result:
    """It fails so many times before it succeeds."""
    with attempt(ctx, "failing", key):
        await asyncio.sleep(0.01)
        if ctx.task.attempts < times:
            raise PlannedFailure(words(ctx))
        return result(ctx)


@work.task(process=True)
def failing_program(ctx: Context, key: str, times: int) -> Result:
    with attempt(ctx, "failing_program", key):
        if ctx.task.attempts < times:
            raise Retry(0.1, words(ctx))
        return result(ctx)


@work.task
async def snoozing(ctx: Context, key: str, times: int) -> Result:
    """It snoozes in its first so many claims."""
    with attempt(ctx, "snoozing", key):
        if ctx.lease <= times:
            raise Snooze(0.2, words(ctx))
        return result(ctx)


@work.task
async def gives_up(ctx: Context, key: str) -> Result:
    with attempt(ctx, "gives_up", key):
        raise Dead(words(ctx))


@work.task
def withdraws(ctx: Context, key: str) -> Result:
    with attempt(ctx, "withdraws", key):
        raise Cancel(words(ctx))


@work.task
async def stubborn(ctx: Context, key: str, seconds: float, lingers: float) -> Result:
    """It ignores that it is cancelled for a while. Its row's timeout is shorter than its first attempt."""
    with attempt(ctx, "stubborn", key):
        if ctx.task.attempts:
            return result(ctx)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            until = time.monotonic() + lingers
            while time.monotonic() < until:
                try:
                    await asyncio.sleep(until - time.monotonic())
                except asyncio.CancelledError:
                    continue
            raise
        return result(ctx)


@work.task
async def poison(ctx: Context, key: str) -> Result:
    """It takes its process with it, each time."""
    with attempt(ctx, "poison", key):
        await asyncio.sleep(0.05)
        fields_of_claim: dict[str, Any] = {"task": ctx.task.id, "lease": ctx.lease, "process_id": ctx.task.process_id}
        history.record("ended", **fields_of_claim, handler="poison", outcome="crashing", saw_cancel=False)
        os.kill(os.getpid(), signal.SIGKILL)
        return result(ctx)


OUTLIVES: Final = 600.0
"""Seconds that the child of a handler continues."""


@work.task(process=True)
def forking(ctx: Context, key: str, times: int) -> Result:
    """In its first attempts it is killed, and leaves a child behind that holds all that it has inherited."""
    with attempt(ctx, "forking", key):
        if ctx.task.attempts < times:
            child = os.fork()
            if not child:
                time.sleep(OUTLIVES)
                os._exit(0)
            fields_of_claim: dict[str, Any] = {
                "task": ctx.task.id,
                "lease": ctx.lease,
                "process_id": ctx.task.process_id,
            }
            history.record("dying", **fields_of_claim, handler="forking", node=ctx.node, pids=[child])
            os.kill(os.getpid(), signal.SIGKILL)
        return result(ctx)


# -------------------------------------------------------------------- what enqueues


LEDGER = sa.Table(
    "ledger",
    sa.MetaData(),
    sa.Column("task", sa.BigInteger(), nullable=False),
    sa.Column("child_key", sa.String(100), primary_key=True),
)
"""Business data that are written together with a child task, in one transaction."""


@work.task
def parent(ctx: Context, key: str, children: int) -> Result:
    """It writes business data and enqueues its children in one transaction of its own, which commits or does not."""
    with attempt(ctx, "parent", key):
        keys = [f"{key}/{ctx.lease}/{number}" for number in range(children)]
        with ctx.client.database.engine.begin() as connection:
            for child in keys:
                connection.execute(sa.insert(LEDGER).values(task=ctx.task.id, child_key=child))
                ctx.client.enqueue_in(connection, short.with_args(key=child, seconds=0.01))
        return result(ctx)


@work.task
async def spawner(ctx: Context, key: str) -> Result:
    """Its child has a unique key, so that there is one however often this is run."""
    with attempt(ctx, "spawner", key):
        child = f"{key}/only"
        await ctx.enqueue(short.with_args(key=child, seconds=0.01), unique=child, unique_for="forever")
        return result(ctx)
