"""Schedules of the clusters under test. Each run records an event in a file; a gate opens when its file is created."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from peerd.schedules.custom_triggers import CustomTrigger
from peerd.schedules.run_executor import ScheduleContext


def note(ctx: ScheduleContext, event: str, **more: Any) -> None:
    line = {
        "event": event,
        "task": None,
        "schedule": ctx.schedule,
        "tick": ctx.tick_at.isoformat(),
        "run": ctx.run_id,
        "slot": ctx.process.slot,
        "node": ctx.process.node,
        "pid": os.getpid(),
        **more,
    }
    with Path(ctx.process.options["events"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


async def notes(ctx: ScheduleContext, *args: Any) -> None:
    note(ctx, "scheduled", args=list(args))


async def gated(ctx: ScheduleContext) -> None:
    """Runs until the gate of its schedule is opened."""
    note(ctx, "scheduled")
    while not (Path(ctx.process.options["gates"]) / ctx.schedule).exists():  # noqa: ASYNC110 - it is a file
        await asyncio.sleep(0.02)


class Tide:
    """A custom trigger that sends its arguments to one process, and to all processes."""

    def __init__(self, trigger: CustomTrigger) -> None:
        self.trigger = trigger

    async def run(self) -> None:
        await self.trigger.send_one(*self.trigger.args, "one")
        await self.trigger.send_all(*self.trigger.args, "all")


def setup(agent: Any) -> None:
    """For [agent] setup."""
    agent.schedules.unregister("unwanted")
    agent.schedules.register("registered", run="scheduled:notes", immediate=True, type="worker")


async def fails_in_some(ctx: ScheduleContext) -> None:
    """Fails in the second process."""
    if ctx.process.slot.endswith("-2"):
        await asyncio.sleep(0.3)  # the other has ended by then
        raise OSError(f"no disk in {ctx.process.slot}")
