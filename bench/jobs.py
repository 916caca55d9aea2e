"""The handlers that are measured: they do nothing, or say when they began."""

from __future__ import annotations

import os
import time

from peerd import Context, Queue

bench = Queue("bench")


@bench.task
async def noop(number: int) -> None:
    """Nothing."""


@bench.task
async def note(ctx: Context, number: int) -> None:
    """Append this moment, by the machine's monotonic clock, to the file that the worker's options name."""
    began = time.monotonic_ns()
    file = os.open(str(ctx.options["notes"]), os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{number} {began}\n".encode())
    os.close(file)
