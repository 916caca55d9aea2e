"""Which facts are alerts: a reader of events that tells them to the master, from whatever process they arise in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from peerd.domain.alert import AlertKind, Rate, RateLimit
from peerd.runtime.observability import events
from peerd.runtime.observability.events import Events, Fact
from peerd.runtime.process.link import Link
from peerd.runtime.process.service import Service

FROM_ONE_PROCESS: Final = Rate(1, 10.0)
"""Of each kind: a thousand tasks that die together are one message to the master, not a thousand."""

Found = tuple[AlertKind, str, dict[str, Any]]
"""Kind, text, data."""


class Send(Protocol):
    """`Link.alert`."""

    def __call__(self, alert: str, text: str, **data: object) -> None:
        """Tell a person."""
        ...


def alert_of(fact: Fact) -> Found | None:  # noqa: PLR0911 - a table
    """The alert that a fact is, if it is one.

    >>> alert_of(events.NodesSilent(nodes=("b",)))
    (<AlertKind.INACTIVE_NODES: 'inactive-nodes'>, 'b fell silent', {'nodes': ['b']})
    >>> alert_of(events.ChoreRan(chore="purge done", count=3))
    """
    match fact:
        case events.AttemptEnded() if _is_dead(fact):
            what = f"{fact.queue}/{fact.name}" if fact.name else fact.queue
            text = f"task {fact.task_id} ({what}) is dead: {fact.error}"
            return AlertKind.DEAD_TASKS, text, {"tasks": [fact.task_id], "queue": fact.queue, "handler": fact.name}
        case events.TasksTakenBack() if fact.dead:
            text = f"{_counted(fact.dead, 'task')} dead: no attempt was left after {fact.cause}"
            return AlertKind.DEAD_TASKS, text, {"among": list(fact.task_ids[:100]), "dead": fact.dead}
        case events.NodesSilent():
            return AlertKind.INACTIVE_NODES, f"{', '.join(fact.nodes)} fell silent", {"nodes": list(fact.nodes)}
        case events.PinnedStuck():
            text = f"{_counted(fact.count, 'task')} waiting for nodes that stay silent (pinned_policy is {fact.policy})"
            return AlertKind.PINNED_TASKS, text, {"count": fact.count}
        case events.ComponentFailed():
            text = f"{fact.component} failed: {fact.error}"
            return AlertKind.EXCEPTION, text, {"component": fact.component, "failures": fact.failures}
        case events.DatabaseSlowed():
            return AlertKind.LONG_READ_VIEW, f"{fact.subject}: {fact.message}; {fact.remedy}", {"subject": fact.subject}
        case _:
            return None


class AlertReader:
    """Tells the alerts among the facts; for `Events.listen`. Safe to use from several threads.

    Args:
        send: to the master.
        clock: monotonic, in seconds.
        later: calls something after so many seconds; from any thread.
    """

    def __init__(
        self,
        send: Send,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], object]], object] = lambda _, __: None,
    ) -> None:
        self._send = send
        self._clock = clock
        self._later = later
        self._held: dict[AlertKind, Found] = {}
        """The latest of each kind that was held back and has to be told yet."""
        self._lock = threading.Lock()
        self._limit = RateLimit(FROM_ONE_PROCESS)

    def hears(self, kind: type[Fact]) -> bool:
        """Whether facts of a kind can be alerts."""
        return kind not in events.FINE

    def __call__(self, fact: Fact) -> None:
        """Tell it, if it is one; what is too much of its kind is told together a moment later."""
        if type(fact) is events.AttemptEnded and fact.outcome == "done":
            return  # nearly all that happens
        found = alert_of(fact)
        if found is None:
            return
        kind = found[0]
        with self._lock:
            now = self._clock()
            others = self._limit.admit(kind, now)
            is_waited_for = self._held.pop(kind, None) is not None
            if others is None:
                self._held[kind] = found
        if others is not None:
            self._tell(found, others)
        elif not is_waited_for:
            self._later(self._limit.wait(kind, now), partial(self._tell_held, kind))

    def tell_what_is_held(self) -> None:
        """Tell what was held back now: there will be no later."""
        for kind in tuple(self._held):
            self._tell_held(kind)

    def _tell_held(self, kind: AlertKind) -> None:
        """Tell the latest of a kind that was held back, with the number of the others."""
        with self._lock:
            found = self._held.pop(kind, None)
            others = 0 if found is None else self._limit.release(kind, self._clock())
        if found is not None:
            self._tell(found, others)

    def _tell(self, found: Found, others: int) -> None:
        kind, text, data = found
        self._send(kind.value, f"{text}; and {others:,} more alike" if others else text, **data)


class Alerting:
    """A service whose events are read for alerts, as soon as it has a link to tell them on.

    Args:
        service: that does all the rest.
        events: of its process.
    """

    def __init__(self, service: Service, events: Events) -> None:
        self._service = service
        self._events = events

    async def start(self, link: Link) -> Mapping[str, object]:
        """Listen, and start the service."""
        loop = asyncio.get_running_loop()

        def later(seconds: float, call: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(loop.call_later, seconds, call)

        self._reader = AlertReader(link.alert, later=later)
        self._events.listen(self._reader)
        return await self._service.start(link)

    async def run(self) -> None:
        """The service's."""
        await self._service.run()

    async def receive(self, message: Mapping[str, object]) -> None:
        """The service's."""
        await self._service.receive(message)

    async def quiet(self) -> None:
        """The service's."""
        await self._service.quiet()

    async def stop(self, grace: float) -> None:
        """The service's; then what was held back is told, for there will be no later."""
        await self._service.stop(grace)
        self._reader.tell_what_is_held()


def _is_dead(fact: events.AttemptEnded) -> bool:
    return fact.retry_in is None and fact.outcome not in {"done", "snoozed", "released", "canceled"}


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{' is' if count == 1 else 's are'}"
