"""The handlers that are measured: they do nothing, or say when they began."""

from __future__ import annotations

import os
import time

from peerd import Context, Queue

bench = Queue("bench")
feeding = Queue("feeding")


@bench.task
async def noop(number: int) -> None:
    """Nothing."""


@bench.task
async def note(ctx: Context, number: int) -> None:
    """Append this moment, by the machine's monotonic clock, to the file that the worker's options name."""
    _write(ctx, number, time.monotonic_ns())


@feeding.task
async def feed(ctx: Context, number: int) -> None:
    """Enqueue a `note` from this node's process, and append the moment at which that began, below minus its number."""
    began = time.monotonic_ns()
    await ctx.enqueue(note.with_args(number))
    _write(ctx, -number, began)


def _write(ctx: Context, number: int, moment: int) -> None:
    file = os.open(str(ctx.options["notes"]), os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{number} {moment}\n".encode())
    os.close(file)
