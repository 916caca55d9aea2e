"""The handlers that are measured: they do nothing, compute for a millisecond, sleep, or say when they began."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any, Final

from peerd import Context, Queue, Worker

bench = Queue("bench")


@bench.task
async def noop(number: int) -> None:
    """Nothing."""


@bench.task
async def says(ctx: Context, number: int) -> None:
    """A line."""
    ctx.log.info("a line", number=number)


@bench.task
async def spin(number: int) -> None:  # noqa: ARG001 - the body has one
    """Compute for a millisecond of this thread's own time."""
    until = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < until:
        pass


@bench.task
async def note(ctx: Context, number: int) -> None:
    """Append this moment to the file of notes."""
    _note(ctx.options, number)


@bench.task
async def nap(ctx: Context, number: int) -> None:
    """Sleep for a second, and append the moments around it to the file of notes."""
    _note(ctx.options, number)
    await asyncio.sleep(NAP)
    _note(ctx.options, -number)


NAP: Final = 1.0
IDLE: Final = (2.0, 3.5)
"""Seconds of rest between two tasks, drawn evenly: the pauses between looks have grown to poll_every by then."""


class PeriodicEnqueuer(Worker):
    """On another node: enqueues `note` at odd moments, and appends its number and the moment to the file of askings."""

    sleep = 0

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    async def loop(self) -> None:
        """One task; none when there have been enough."""
        await asyncio.sleep(random.uniform(*IDLE))
        if self._number <= int(self.settings.options["times"]):
            _note({"notes": self.settings.options["askings"]}, self._number)
            await self.process.client.aio.enqueue(note.with_args(self._number))
            self._number += 1


def _note(options: Any, number: int) -> None:
    moment = time.monotonic_ns()
    file = os.open(str(options["notes"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number} {moment}\n".encode())
    os.close(file)


def notes_in(file: Path) -> dict[int, int]:
    """The numbers that were noted, each with its moment in nanoseconds by the machine's monotonic clock."""
    written = file.read_text() if file.exists() else ""
    whole = written[: written.rfind("\n") + 1].splitlines()
    return {int(number): int(moment) for number, _, moment in (line.partition(" ") for line in whole)}
