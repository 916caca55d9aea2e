"""The user's code of the nodes that are upgraded: it runs with every version of peerd since the first.

Each run writes when it began and when it ended, into one file outside of the database.
"""

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
async def work(ctx: Context, seconds: float = 0.0) -> str:
    note(ctx, "began")
    await asyncio.sleep(seconds)
    note(ctx, "ended")
    return ctx.node


@jobs.task
def threaded(ctx: Context, seconds: float = 0.0) -> str:
    note(ctx, "began")
    time.sleep(seconds)
    note(ctx, "ended")
    return ctx.node
