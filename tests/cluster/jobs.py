"""User code of the clusters under test. Attempts record events in a file; a gate opens when its file is created."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peerd import Context, Message, Queue, Task, TaskWorker, Worker, launch_command
from peerd.work import task_fetcher

jobs = Queue("jobs")
if "FIRST_PAUSE" in os.environ:  # a worker polls once, and then only after a ring
    assert task_fetcher.FIRST_PAUSE
    vars(task_fetcher).update(FIRST_PAUSE=float(os.environ["FIRST_PAUSE"]))
ENDLESS_ENCODING = ["ffmpeg", "-v", "error", "-re", "-f", "lavfi", "-i", "testsrc=size=64x64:rate=5", "-f", "null", "-"]


def note(ctx: Context, event: str, **more: Any) -> None:
    line = {"event": event, "task": ctx.task.id, "lease": ctx.lease, "pid": os.getpid(), "node": ctx.node, **more}
    with Path(ctx.options["events"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def gate(ctx: Context) -> Path:
    return Path(ctx.options["gates"]) / str(ctx.task.id)


@jobs.task
async def quick(ctx: Context, n: int = 0) -> dict[str, Any]:
    note(ctx, "ran")
    return {"n": n, "node": ctx.node}


@jobs.task
async def fails_once(ctx: Context) -> int:
    if not ctx.task.attempts:
        raise ValueError("not yet")
    return ctx.task.attempts


@jobs.task
async def gated(ctx: Context) -> dict[str, Any]:
    """Runs until its gate is opened."""
    note(ctx, "began")
    try:
        while not gate(ctx).exists():  # noqa: ASYNC110 - it is a file
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        note(ctx, "cancelled")
        raise
    note(ctx, "ended")
    return {"lease": ctx.lease, "node": ctx.node}


@jobs.task
async def first_hangs(ctx: Context) -> dict[str, Any]:
    """The first claim waits for its gate, every later one is done at once."""
    note(ctx, "began")
    while ctx.lease == 1 and not gate(ctx).exists():
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            note(ctx, "cancelled")
            raise
    return {"lease": ctx.lease, "node": ctx.node, "pid": os.getpid()}


@jobs.task
async def hears(ctx: Context) -> dict[str, Any]:
    """Runs until it receives a message of another process."""
    received: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    ctx.messenger.once("news", received.set_result)
    note(ctx, "listens")
    message = await received
    return {"data": message.data, "sender": message.sender.pid, "pid": os.getpid(), "slot": ctx.process.slot}


@jobs.task
async def tells(ctx: Context, data: str) -> dict[str, Any]:
    reached = await ctx.messenger.send_to_workers("news", data, kind="jobs")
    return {"reached": reached, "pid": os.getpid()}


@jobs.task
async def tells_all_nodes(ctx: Context, data: str) -> int:
    return await ctx.messenger.broadcast("news", data, cluster=True)


@jobs.task
async def leaves_work_behind(ctx: Context) -> str:
    """Its work in the background continues until its gate is opened."""

    async def work() -> None:
        while not gate(ctx).exists():  # noqa: ASYNC110 - it is a file
            await asyncio.sleep(0.02)
        note(ctx, "background ended")

    ctx.run_in_background(work())
    return "left"


@jobs.task
async def first_encodes(ctx: Context) -> int:
    """The first claim runs a program until its gate is opened; every later one is done at once."""
    note(ctx, "began")
    if ctx.lease == 1:
        encoder = await asyncio.create_subprocess_exec(*launch_command(ENDLESS_ENCODING), stdin=subprocess.DEVNULL)
        note(ctx, "encodes", program=encoder.pid)
        try:
            while not gate(ctx).exists():  # noqa: ASYNC110 - it is a file
                await asyncio.sleep(0.02)
        finally:
            encoder.kill()
            await encoder.wait()
    return ctx.lease


@jobs.task
def deaf(ctx: Context) -> str:
    """The first claim is a thread that ignores its cancellation; every later one is done at once."""
    note(ctx, "began")
    while ctx.lease == 1:
        time.sleep(0.02)
    return "done"


@jobs.task
def gated_thread(ctx: Context) -> bool:
    """A thread that runs until its gate is opened; returns whether it was cancelled meanwhile."""
    note(ctx, "began")
    while not gate(ctx).exists():
        time.sleep(0.02)
    return ctx._cancelled


@jobs.task
async def swallows(ctx: Context) -> str:
    """The first claim is a coroutine that swallows its cancellation; every later one is done at once."""
    note(ctx, "began")
    while ctx.lease == 1:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            note(ctx, "swallowed")
    return "done"


@jobs.task(process=True)
def program(ctx: Context) -> str:
    """A process of its own, with a child that would run for long."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    note(ctx, "began", child=child.pid)
    child.wait()
    return "never"


@jobs.task(process=True)
def forks(ctx: Context) -> str:
    """Its first claim has a child that holds all that it has inherited and would go on for long."""
    if ctx.lease == 1:
        child = os.fork()
        if not child:
            time.sleep(1000)
            os._exit(0)
        note(ctx, "began", child=child)
        time.sleep(1000)
    return "done"


@jobs.task
def prints(ctx: Context) -> str:
    print(f"task {ctx.task.id} prints", flush=True)  # noqa: T201
    return "done"


@jobs.task(process=True)
def prints_in_a_process(ctx: Context) -> str:
    print(f"task {ctx.task.id} prints", flush=True)  # noqa: T201
    return "done"


@jobs.task
def terminates_a_child(ctx: Context) -> int:
    """The status of a forked child that it terminates; of two threads, `multiprocessing` loses one's status."""
    child = os.fork()
    if not child:
        time.sleep(1000)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Leaver(Worker):
    """Ends its process in its first round, without an error."""

    sleep = 0.01

    async def loop(self) -> None:
        sys.exit(0)


class Endless(Worker):
    """Its round does not end."""

    async def loop(self) -> None:
        await asyncio.sleep(1000)

    async def teardown(self) -> None:
        await asyncio.sleep(0.05)


class Tubes(TaskWorker):
    """Handles whatever queue clients have put."""

    queues = ("handled",)

    async def handle_task(self, task: Task) -> None:
        ctx = self.context(task)
        body = task.body_bytes if task.body is None else task.body.encode()
        note(ctx, "handled", body=(body or b"").hex())
