"""Functions that the schedules of tests run, found by name instead of by import."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from typing import Any

from peerd.schedules.custom_triggers import CustomTrigger
from peerd.schedules.run_executor import ScheduleContext

CALLS: list[tuple[Any, ...]] = []
GATES: dict[str, asyncio.Event] = {}
THREADS_MAY_END = threading.Event()


def find(entry: str) -> object:
    name = entry.partition(":")[2]
    if name == "missing":
        raise ImportError("no module named 'missing'")
    return raising(RAISED[name]) if name in RAISED else globals()[name]


async def works(ctx: ScheduleContext, *args: object, **named: object) -> None:
    CALLS.append((ctx.schedule, ctx.origin, ctx.process.slot, args, named))


def plain() -> None:
    CALLS.append((threading.current_thread() is not threading.main_thread(),))


async def gated(ctx: ScheduleContext) -> None:
    CALLS.append((ctx.run_id,))
    await GATES["gate"].wait()


def waits_until_canceled(ctx: ScheduleContext) -> None:
    while not ctx.cancelled:
        THREADS_MAY_END.wait(0.01)
    CALLS.append(("canceled",))


def ignores_its_end() -> None:
    THREADS_MAY_END.wait(30)


async def swallows(ctx: ScheduleContext) -> None:
    while not THREADS_MAY_END.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


class Unprintable(Exception):
    def __str__(self) -> str:
        return "\ud800" + "x" * 100_000


RAISED = {
    "fails": OSError("no disk"), "leaves": SystemExit(3), "cancels_itself": asyncio.CancelledError(),
    "group": BaseExceptionGroup("many", [KeyError("a"), KeyboardInterrupt()]), "unprintable": Unprintable(),
}  # fmt: skip


def raising(error: BaseException) -> object:
    async def raises(ctx: ScheduleContext) -> None:
        raise error

    return raises


def leaves_in_a_thread() -> None:
    sys.exit(3)


not_a_function = 7


class Twice:
    def __init__(self, trigger: CustomTrigger) -> None:
        self.trigger = trigger

    async def run(self) -> None:
        CALLS.append(("one", await self.trigger.send_one("first", {"a": 1})))
        CALLS.append(("all", await self.trigger.send_all("all")))


class Inert:
    def __init__(self, trigger: CustomTrigger) -> None:
        CALLS.append(("made", trigger.name, trigger.args))


class Broken:
    def __init__(self, trigger: CustomTrigger) -> None:
        raise RuntimeError("no such disk")


class Falters:
    times = 0

    def __init__(self, trigger: CustomTrigger) -> None:
        self.trigger = trigger

    async def run(self) -> None:
        Falters.times += 1
        if Falters.times == 1:
            raise RuntimeError("at first")
        await self.trigger.send_one()
