"""The context of a process: the interface of peerd for user code in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from peerd.domain.errors import PeerdError
from peerd.runtime.concurrency import BackgroundTasks, BackgroundWork
from peerd.runtime.messenger import FrameSender, Messenger
from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.runtime.observability.events import EventBus

if TYPE_CHECKING:
    from peerd.runtime.spans import AttemptTracer

LIMITS_ACTION: Final = "peerd.limits"
"""The agent's request for the memory and processor limits of a process."""
RING_ACTION: Final = "peerd.ring"
"""The agent's message with rings for the workers."""
STACK_ACTION: Final = "peerd.stack"
"""The agent's urgent request for the stack of a task that a process runs."""
DOORBELL_ACTION: Final = "peerd.doorbell"
"""The agent's message with the state of the doorbell; as a request to the agent, all its details."""
METRICS_ACTION: Final = "peerd.metrics"
"""The request to the agent for the metrics of the node."""
METRICS_REPORT_ACTION: Final = "peerd.metrics-report"
"""The message to the agent with what a process has counted."""


class ProcessLink(FrameSender, Protocol):
    """What a `ProcessContext` uses of the `Link` with the master."""

    node: str
    slot: str
    kind: str

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """See `Link.stuck`."""

    def take_largest_lag(self) -> float:
        """See `Link.take_largest_lag`."""


class NotAvailableInProcess(PeerdError, RuntimeError):
    """The process does not have this attribute; the text says which processes have it."""


class ProcessContext:
    """The process that code runs in: its identity, and its access to other processes. Made on its event loop.

    Workers have it as ``self.process``, handlers as ``ctx.process``, ASGI applications as ``scope["state"]["peerd"]``.

    Args:
        link: with the master.
        events: of the process.
        options: ``[workers.NAME.options]`` of peerd.toml, or those of the section of the process.
        client: a `Client` on the process's database.
    """

    def __init__(
        self,
        link: ProcessLink,
        events: EventBus,
        *,
        options: Mapping[str, Any] | None = None,
        client: Any = None,
    ) -> None:
        self.node = link.node
        self.slot = link.slot
        self.kind = link.kind
        self.events = events
        """What happens in the process; log lines, alerts and metrics are made of it."""
        self.options: Mapping[str, Any] = options or {}
        self.find_shared: Callable[..., Any] | None = None
        """Set by the assembly of the process for `shared`."""
        self.draining = asyncio.Event()
        """Set when the process stops, or another one takes its place: what is open for long is to be ended."""
        self.scheduled_runs = 0
        """Scheduled functions that run; a process is recycled after they have ended."""
        self.metrics = MetricsRegistry()
        """What the process counts; the assembly of the process sets the one that is reported."""
        self.tracer: AttemptTracer | None = None
        """Makes the spans of attempts; None while [telemetry] opentelemetry is false."""
        self._link = link
        self._finish_callbacks: list[Callable[[], object]] = []
        self._background_tasks = BackgroundTasks(events)
        self.messenger = Messenger(link, self._background_tasks, events)
        self._client = client

    @property
    def client(self) -> Any:
        """A `Client` on the process's database; in a coroutine use ``client.aio``.

        Raises:
            NotAvailableInProcess: the process has no database.
        """
        if self._client is None:
            raise NotAvailableInProcess("process.client exists only in processes that have a database")
        return self._client

    @property
    def shared(self) -> Callable[..., Any]:
        """Access to the instances that the processes of the node share in its agent.

        Raises:
            NotAvailableInProcess: the process is not one of a running node.
        """
        if self.find_shared is None:
            raise NotAvailableInProcess("process.shared exists only in the processes of a running node")
        return self.find_shared

    def run_in_background(self, work: BackgroundWork) -> None:
        """Run a coroutine in the background; from any thread.

        When the process stops, the work may use the rest of the grace, and is cancelled then. An exception in it is
        logged and does not affect the process.

        Args:
            work: a coroutine, as in ``run_in_background(refresh())``.

        Raises:
            ProcessStopping: the process stops, and starts no more work.
            TypeError: it is not a coroutine.
        """
        self._background_tasks.run(work)

    def report_stuck_code(self, reason: str) -> None:
        """Taint the process, because code in it does not end although its time is over.

        It takes no new work, finishes its running work within its grace, and is replaced. `reason` is for people.
        """
        self._link.stuck(None, reason)

    def take_largest_lag(self) -> float:
        """The largest delay of the event loop since the last call, in seconds."""
        return self._link.take_largest_lag()

    def on_finish(self, callback: Callable[[], object]) -> None:
        """Call a plain function when all background work has ended, while messages can still be sent."""
        self._finish_callbacks.append(callback)

    async def finish(self, grace: float) -> None:
        """Start no more background work, and let the running work end within `grace` seconds."""
        try:
            await self._background_tasks.finish(grace)
        finally:
            while self._finish_callbacks:
                self._finish_callbacks.pop()()
            self.messenger.close()

    @property
    def is_idle(self) -> bool:
        """Whether no background work runs, and no message is queued."""
        return self.messenger.is_idle and self._background_tasks.count == 0
