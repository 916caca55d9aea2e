"""Components: long-lived pieces of work in one process, each started again alone when it fails.

What one of them raises ends nothing but itself. It is begun again after a pause that grows while it keeps failing, and
is never given up; its state, failures and last error can be seen all the while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from peerd.domain.backoff import exponential_backoff
from peerd.runtime.observability.events import ComponentEnded, ComponentFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception, log_exception

FIRST_PAUSE: Final = 0.2
MAX_PAUSE: Final = 30.0
"""Seconds between the end of a component that failed and its next start."""
STABLE_AFTER: Final = 60.0
"""Seconds after which a component that runs has left its failures behind."""

ComponentFunction = Callable[[], Awaitable[None]]


class ComponentState(StrEnum):
    """How a component is."""

    RUNNING = "running"
    BACKOFF = "backoff"
    """It failed, and is started again after a pause."""
    ENDED = "ended"
    """It has returned by itself, and is not started again."""
    STOPPED = "stopped"


class Component:
    """One piece of work, kept going.

    Args:
        name: what people call it.
        run: the work; it returns only when there is nothing left to do, for good.
        events: where its failures and its end are told.
    """

    def __init__(self, name: str, run: ComponentFunction, events: EventBus) -> None:
        self.name = name
        self.state = ComponentState.RUNNING
        self.failures = 0
        """In a row."""
        self.restarts = 0
        self.last_error: str | None = None
        self._run = run
        self._events = events
        self._since = datetime.now(UTC)
        self._now = asyncio.get_running_loop().time
        self._task = asyncio.create_task(self._run_until_done(), name=f"component {name}")

    async def stop(self, within: float) -> bool:
        """Cancel it and wait for its end, for so many seconds at the most; return whether it has ended."""
        if self.state is not ComponentState.ENDED:
            self._set_state(ComponentState.STOPPED)
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=within)
        return self._task.done()

    def to_json(self) -> dict[str, object]:
        """What people see of it."""
        return {
            "name": self.name,
            "state": self.state.value,
            "since": self._since.isoformat(),
            "failures": self.failures,
            "restarts": self.restarts,
            "last_error": self.last_error,
        }

    async def _run_until_done(self) -> None:
        while (pause := await self._run_once()) is not None:
            await asyncio.sleep(pause)
            self.restarts += 1
            self._set_state(ComponentState.RUNNING)

    async def _run_once(self) -> float | None:
        """Run it once; the seconds until it is to be run again."""
        began = self._now()
        try:
            await self._run()
        except BaseException as error:
            if _is_own_cancellation(error):
                raise
            if self.state is ComponentState.STOPPED:
                log_exception(error)
                return None
            return self._fail(error, self._now() - began)
        if self.state is ComponentState.STOPPED:
            return None
        self._set_state(ComponentState.ENDED)
        self._events.emit(ComponentEnded(component=self.name))
        return None

    def _fail(self, error: BaseException, ran_for: float) -> float:
        self.failures = 1 if ran_for >= STABLE_AFTER else self.failures + 1
        self.last_error = describe_exception(error)
        pause = exponential_backoff(self.failures, base=FIRST_PAUSE, maximum=MAX_PAUSE)
        self._set_state(ComponentState.BACKOFF)
        log_exception(error)
        self._events.emit(
            ComponentFailed(component=self.name, error=self.last_error, again_in=pause, failures=self.failures)
        )
        return pause

    def _set_state(self, state: ComponentState) -> None:
        self.state = state
        self._since = datetime.now(UTC)


def _is_own_cancellation(error: BaseException) -> bool:
    """Whether the component is being stopped: a CancelledError that nobody has asked for is a failure like others."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class ComponentNameTaken(ValueError):
    """Two components of one process have the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a component named {name!r} already: give this one another name")


class ComponentSupervisor:
    """The components of a process, in the order of their start."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._all: dict[str, Component] = {}

    def start(self, name: str, run: ComponentFunction) -> Component:
        """Begin one.

        Raises:
            ComponentNameTaken: there is one of this name.
        """
        if name in self._all:
            raise ComponentNameTaken(name)
        self._all[name] = component = Component(name, run, self._events)
        return component

    async def stop(self, names: Iterable[str], within: float) -> None:
        """Stop these, the latest first, each within so many seconds; the names of those that end are free again."""
        for name in reversed([name for name in self._all if name in set(names)]):
            if await self._all[name].stop(within):
                del self._all[name]

    @property
    def names(self) -> list[str]:
        """Of all, in the order of their start."""
        return list(self._all)

    def to_json(self) -> list[dict[str, object]]:
        """What people see of them."""
        return [component.to_json() for component in self._all.values()]
