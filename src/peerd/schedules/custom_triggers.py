"""Schedules with a custom trigger: a class of the user that decides when they tick.

The class lives in the agent and not in a worker process, because its ``run`` must exist once per node and outlive the
workers' recycling; a failing class must not stop the other schedules. Both would be the user's task if custom triggers
were left to the agent's setup, so they are kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from peerd.domain.errors import PeerdError
from peerd.domain.pacing import Backoff
from peerd.domain.schedule import RunStatus, Schedule
from peerd.runtime.observability.events import EventBus, ScheduleFailed
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.run_dispatcher import CUSTOM_ALL
from peerd.store.connection.database import DatabaseThreads
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schedules import fire_custom_tick

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before a `run` that has failed is started again."""
MAX_ARGUMENTS_LENGTH: Final = 64 * 1024
"""Characters of JSON."""


class BadScheduleType(PeerdError):
    """The class that [schedules.NAME] type names is missing, or its constructor failed."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"type {entry}: {problem}")


class CustomTrigger:
    """The constructor argument of the user's class: its schedule, and methods that start runs.

    Attributes:
        name: the schedule's.
        schedule: its definition; ``interval`` and ``cron`` have no effect except what the class makes of them.
        args: the schedule's own arguments.
        log: a logger that adds the schedule to each line.
    """

    def __init__(
        self, schedule: Schedule, send: Callable[[Schedule, str, str | None], Coroutine[Any, Any, bool]]
    ) -> None:
        self.name = schedule.name
        self.schedule = schedule
        self.args = schedule.args
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger("peerd.schedule").bind(schedule=schedule.name)
        self._send = send

    async def send_one(self, *args: object) -> bool:
        """Run the schedule in one worker process of this node, or enqueue its task.

        Args:
            args: JSON values that replace the schedule's own arguments.

        Returns:
            whether it will run: not while it is disabled, nor when `overlap` skips it.
        """
        return await self._send(self.schedule, "custom", _to_json(args))

    async def send_all(self, *args: object) -> bool:
        """Run the schedule in every worker process of this node; as `send_one`."""
        return await self._send(self.schedule, CUSTOM_ALL, _to_json(args))


class CustomTriggers:
    """The custom triggers of one node. ``find`` returns the object of ``module:name``; it is called in a thread."""

    def __init__(
        self, find: Callable[[str], object], threads: DatabaseThreads, identity: NodeIdentity, events: EventBus
    ) -> None:
        self._find = find
        self._threads = threads
        self._identity = identity
        self._events = events
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._schedules: dict[str, Schedule] = {}
        self.wake: Callable[[], None] = lambda: None
        """Called when a run is waiting."""

    async def start(self, schedule: Schedule) -> None:
        """Create the trigger of a schedule in place of an earlier one, and start its `run`, if it has one.

        Raises:
            BadScheduleType: its class is missing, or its constructor failed.
        """
        await self.stop(schedule.name)
        if not schedule.enabled:
            return
        trigger_class = await asyncio.to_thread(self._find, schedule.type)
        if not isinstance(trigger_class, type):
            raise BadScheduleType(schedule.type, f"is a {type(trigger_class).__name__}, not a class")
        self._schedules[schedule.name] = schedule
        try:
            trigger = trigger_class(CustomTrigger(schedule, self._send))
        except Exception as error:
            raise BadScheduleType(schedule.type, f"cannot be made: {describe_exception(error)}") from error
        run = getattr(trigger, "run", None)
        if run is not None:
            self._tasks[schedule.name] = asyncio.create_task(self._run_forever(schedule.name, run), name=schedule.name)

    async def stop(self, name: str) -> None:
        """Stop the trigger of a schedule, if there is one."""
        self._schedules.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop_all(self) -> None:
        """Stop all triggers."""
        for name in list(self._tasks):
            await self.stop(name)

    async def _send(self, schedule: Schedule, origin: str, args: str | None) -> bool:
        if self._schedules.get(schedule.name) is not schedule:
            return False  # it was stopped
        run = await self._threads.run(fire_custom_tick, schedule, self._identity, origin, args)
        self.wake()
        return run is not None and run.status is RunStatus.WAITING

    async def _run_forever(self, name: str, run: Callable[[], Coroutine[Any, Any, object]]) -> None:
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        while True:
            try:
                await run()
            except Exception as error:  # noqa: BLE001 - the user's code; nothing ends the agent
                self._events.emit(ScheduleFailed(schedule=name, error=describe_exception(error)))
                await asyncio.sleep(pauses.next())
            else:
                return


def _to_json(args: tuple[object, ...]) -> str | None:
    if not args:
        return None
    text = json.dumps(args, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_ARGUMENTS_LENGTH:
        raise ValueError(f"the arguments are larger than {MAX_ARGUMENTS_LENGTH // 1024} KiB of JSON; give an address")
    return text
