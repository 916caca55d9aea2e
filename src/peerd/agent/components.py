"""Components: long-lived coroutines of the agent, each restarted alone when it fails.

An exception in a component ends that component only. It is restarted after a pause that grows while it keeps failing,
for ever; its state, failures and last error can be queried. A `Subsystem` is a larger unit: a feature of the agent,
which starts its own components.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from peerd.domain.pacing import exponential_backoff
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.observability.log_messages import component_ended
from peerd.runtime.process.uncaught_exceptions import describe_exception, log_exception
from peerd.shell import ProcessShell

FIRST_PAUSE: Final = 0.2
MAX_PAUSE: Final = 30.0
"""Seconds between the failure of a component and its restart."""
STABLE_AFTER: Final = 60.0
"""Seconds of running after which earlier failures of a component no longer count."""

ComponentFunction = Callable[[], Awaitable[None]]


class ComponentState(StrEnum):
    """State of a component."""

    RUNNING = "running"
    BACKOFF = "backoff"  # it failed, and is restarted after a pause
    ENDED = "ended"  # it has returned, and is not restarted
    STOPPED = "stopped"


@dataclass(eq=False)
class Component:
    """A coroutine that is restarted when it fails.

    Args:
        run: returns only when its work is over for good.
    """

    name: str
    run: ComponentFunction
    events: EventBus

    def __post_init__(self) -> None:
        self.state = ComponentState.RUNNING
        self.failures = 0
        """In a row."""
        self.restarts = 0
        self.last_error: str | None = None
        self._since = datetime.now(UTC)
        self._now = asyncio.get_running_loop().time
        self._task = asyncio.create_task(self._run_until_done(), name=f"component {self.name}")

    async def stop(self, within: float) -> bool:
        """Cancel it and wait up to so many seconds for its end; return whether it has ended."""
        if self.state is not ComponentState.ENDED:
            self._set_state(ComponentState.STOPPED)
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=within)
        return self._task.done()

    def to_json(self) -> dict[str, object]:
        """The component as `peerd status` shows it."""
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
        """Run it once; return the pause before its restart, None for no restart."""
        began = self._now()
        try:
            await self.run()
        except BaseException as error:
            if _is_own_cancellation(error):
                raise
            if self.state is ComponentState.STOPPED:
                log_exception(error)
                return None
            return self._fail(error, self._now() - began)
        if self.state is not ComponentState.STOPPED:
            self._set_state(ComponentState.ENDED)
            self.events.emit(component_ended(self.name))
        return None

    def _fail(self, error: BaseException, ran_for: float) -> float:
        self.failures = 1 if ran_for >= STABLE_AFTER else self.failures + 1
        self.last_error = describe_exception(error)
        pause = exponential_backoff(self.failures, base=FIRST_PAUSE, maximum=MAX_PAUSE)
        self._set_state(ComponentState.BACKOFF)
        log_exception(error)
        self.events.emit(
            ComponentFailed(component=self.name, error=self.last_error, again_in=pause, failures=self.failures)
        )
        return pause

    def _set_state(self, state: ComponentState) -> None:
        self.state = state
        self._since = datetime.now(UTC)


def _is_own_cancellation(error: BaseException) -> bool:
    """Whether the component is being stopped: a CancelledError without a cancellation is a failure like others."""
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

    def start(self, name: str, run: ComponentFunction) -> None:
        """Start a component.

        Raises:
            ComponentNameTaken: there is one of this name.
        """
        if name in self._all:
            raise ComponentNameTaken(name)
        self._all[name] = Component(name, run, self._events)

    async def stop(self, names: Iterable[str], within: float) -> None:
        """Stop these, the latest first, each within so many seconds; the names of those that end are free again."""
        for name in reversed([name for name in self._all if name in set(names)]):
            if await self._all[name].stop(within):
                del self._all[name]

    @property
    def names(self) -> list[str]:
        return list(self._all)

    def to_json(self) -> list[dict[str, object]]:
        return [component.to_json() for component in self._all.values()]


class Subsystem(Protocol):
    """A feature of the agent beside its own duties, such as the doorbell or the alerts."""

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Start its components, after the node's registration; an exception fails the boot."""

    def receive(self, message: Mapping[str, Any]) -> None:
        """Handle a message of the master; ignored unless a subsystem overrides this."""
        return

    async def stop(self, grace: float) -> None:
        """End within so many seconds. May be cancelled and called again with less, and also after a failed start."""
