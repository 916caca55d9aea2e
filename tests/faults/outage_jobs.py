"""The user's code of a node whose database goes away: a task that reports its progress all the while, and a round."""

from __future__ import annotations

import asyncio
from pathlib import Path

from peerd import Context, Queue, Worker

busy, idle = Queue("busy"), Queue("idle")
PROGRESS_EVERY = 0.1
GATE = Path("gate")


@busy.task
async def reports_progress(ctx: Context) -> int:
    """Say how far it is until the gate is opened, a file in the node's folder."""
    step = 0
    while not GATE.exists():  # noqa: ASYNC240 - one check of a file
        step += 1
        await ctx.progress((step % 100) / 100, f"step {step}")
        await asyncio.sleep(PROGRESS_EVERY)
    return step


@idle.task
async def nothing() -> None:
    """Never enqueued."""


class OutagePeriodicWorker(Worker):
    """A periodic worker."""

    sleep = 1.0

    async def loop(self) -> None:
        """Nothing to do."""
