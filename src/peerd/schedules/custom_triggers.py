"""Schedules whose type is a class of the user: it decides when they tick, and who runs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from peerd.domain.backoff import Backoff
from peerd.domain.errors import PeerdError
from peerd.domain.schedule import RunStatus, Schedule
from peerd.runtime.observability.events import EventBus, ScheduleFailed
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.schedules.run_dispatcher import CUSTOM_ALL
from peerd.store.connection.database import DatabaseThreads
from peerd.store.schedule_runs import NodeIdentity
from peerd.store.schedules import CLUSTER_ROW, ScheduleSnapshot, fire_custom_tick

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before a class whose `run` has failed is begun again."""
MAX_ARGUMENTS_LENGTH: Final = 64 * 1024
"""Characters of JSON."""


class BadScheduleType(PeerdError):
    """The class that [schedules.NAME] type names is not there, or cannot be made."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"type {entry}: {problem}")


class CustomTrigger:
    """What a class of the user is made with: its schedule, and the ways to let it run.

    Attributes:
        name: the schedule's.
        schedule: its definition; ``interval`` and ``cron`` are the class's to read, if it likes.
        args: the schedule's own arguments.
        log: names the schedule in each line.
    """

    def __init__(self, schedule: Schedule, send: Callable[[str, str, str | None], Coroutine[Any, Any, bool]]) -> None:
        self.name = schedule.name
        self.schedule = schedule
        self.args = schedule.args
        self.log: structlog.stdlib.BoundLogger = structlog.get_logger("peerd.schedule").bind(schedule=schedule.name)
        self._send = send

    async def send_one(self, *args: object) -> bool:
        """Let one worker process of this node run it, or its task be enqueued.

        Args:
            args: instead of the schedule's own arguments; JSON values.

        Returns:
            whether it will run: not while it is disabled, nor where an earlier run goes on that it must not overlap.
        """
        return await self._send(self.name, "custom", _json(args))

    async def send_all(self, *args: object) -> bool:
        """Let every worker process of this node run it; as `send_one`."""
        return await self._send(self.name, CUSTOM_ALL, _json(args))


class CustomTriggers:
    """Keeps the objects of such classes going, on one node.

    Args:
        find: gives what an entry ``module:name`` names; called in a thread, for it imports.
        threads: of the database.
        identity: the node, and its life.
        events: what happens.
    """

    def __init__(
        self, find: Callable[[str], object], threads: DatabaseThreads, identity: NodeIdentity, events: EventBus
    ) -> None:
        self._find = find
        self._threads = threads
        self._identity = identity
        self._events = events
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._schedules: dict[str, Schedule] = {}
        self._disabled: set[str] = set()
        self.wake: Callable[[], None] = lambda: None
        """Called when something shall run."""

    async def start(self, schedule: Schedule) -> None:
        """Make the object of a schedule, in place of an earlier one, and begin its `run`, if it has one.

        Raises:
            BadScheduleType: its class is not there, or its constructor has raised an exception.
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
        """End the object of a schedule, if there is one."""
        self._schedules.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop_all(self) -> None:
        """End all of them."""
        for name in list(self._tasks):
            await self.stop(name)

    def update_disabled(self, snapshot: ScheduleSnapshot) -> None:
        """Learn which schedules are disabled by hand."""
        self._disabled = {
            name for (name, node_id), clock in snapshot.rows.items() if node_id == CLUSTER_ROW and clock.disabled
        }

    async def _send(self, name: str, origin: str, args: str | None) -> bool:
        schedule = self._schedules.get(name)
        if schedule is None or name in self._disabled:
            return False
        run = await self._threads.run(fire_custom_tick, schedule, self._identity, origin, args)
        self.wake()
        return run.status is RunStatus.WAITING

    async def _run_forever(self, name: str, run: Callable[[], Coroutine[Any, Any, object]]) -> None:
        pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        while True:
            try:
                await run()
            except Exception as error:  # noqa: BLE001 - the user's code; nothing ends the agent
                self._events.emit(ScheduleFailed(schedule=name, error=describe_exception(error)))
            else:
                return
            await asyncio.sleep(pauses.next())


def _json(args: tuple[object, ...]) -> str | None:
    if not args:
        return None
    text = json.dumps(args, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_ARGUMENTS_LENGTH:
        raise ValueError(f"the arguments are larger than {MAX_ARGUMENTS_LENGTH // 1024} KiB of JSON; give an address")
    return text
