"""The user's code of the nodes: each run writes when it began and ended, into one file outside of the database."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from peerd import Context, Queue

jobs = Queue("jobs")


def note(ctx: Context, event: str) -> None:
    line = {"event": event, "task": ctx.task.id, "lease": ctx.lease, "pid": os.getpid(), "node": ctx.node}
    with Path(ctx.options["events"]).open("a") as file:
        file.write(json.dumps({**line, "at": time.monotonic()}) + "\n")


@jobs.task
async def work(ctx: Context, seconds: float = 0.0) -> None:
    note(ctx, "began")
    await asyncio.sleep(seconds)
    note(ctx, "ended")


@jobs.task
def threaded(ctx: Context, seconds: float = 0.0) -> None:
    note(ctx, "began")
    time.sleep(seconds)
    note(ctx, "ended")
