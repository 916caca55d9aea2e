"""What a process of a node offers to the code of its user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from peerd.domain.errors import PeerdError
from peerd.runtime.concurrency.background_tasks import BackgroundTasks, BackgroundWork
from peerd.runtime.messages.messenger import Messenger
from peerd.runtime.observability.events import EventBus

LIMITS_ACTION: Final = "peerd.limits"
"""The message by which the agent asks a process for its limits of memory and processor."""

RING_ACTION: Final = "peerd.ring"
"""The message by which the agent passes on to the workers what was rung."""
DOORBELL_ACTION: Final = "peerd.doorbell"
"""The message by which the agent tells the workers whether the doorbell works; asked, it says all it knows of it."""


class ProcessLink(Protocol):
    """Where a process stands, and its way to the master: a `Link`."""

    @property
    def node(self) -> str:
        """Name of the node."""
        ...

    @property
    def slot(self) -> str:
        """Name of the slot."""
        ...

    @property
    def kind(self) -> str:
        """Name of the config section, or `agent`."""
        ...

    def send(self, message: Mapping[str, object]) -> None:
        """Send a frame to the master; never waits."""
        ...

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Say that code does not end although its time is over, so that the process must end with it."""
        ...


class NotAvailableInProcess(PeerdError, RuntimeError):
    """Something was asked for that this process does not have.

    Args:
        what: that was asked for, such as `process.client`.
        where: it can be had.
    """

    def __init__(self, what: str, where: str) -> None:
        self.what = what
        super().__init__(f"{what} {where}")


class ProcessContext:
    """The process that code runs in: who it is, and its ways to the others. Made on its event loop.

    Workers have it as ``self.process``, handlers as ``ctx.process``, ASGI applications as ``scope["state"]["peerd"]``.

    Args:
        link: its link with the master.
        events: what happens.
        options: ``[workers.NAME.options]`` of peerd.toml, or those of the section that the process belongs to.
        client: a `Client` on the process's database.
    """

    def __init__(
        self, link: ProcessLink, events: EventBus, *, options: Mapping[str, Any] | None = None, client: Any = None
    ) -> None:
        self.node = link.node
        self.slot = link.slot
        self.kind = link.kind
        self.options: Mapping[str, Any] = options or {}
        self.find_shared: Callable[..., Any] | None = None
        """What is behind `shared`; given by whoever puts the process together."""
        self.scheduled_runs = 0
        """Scheduled functions that run; a process that is recycled lets them end."""
        self._link = link
        self._background_tasks = BackgroundTasks(events)
        self.messenger = Messenger(link, self._background_tasks, events)
        self._client = client

    @property
    def client(self) -> Any:
        """A `Client` on the process's database; in a coroutine use what is below ``client.aio``.

        Raises:
            NotAvailableInProcess: it has no database.
        """
        if self._client is None:
            raise NotAvailableInProcess("process.client", "is there only in processes that have a database")
        return self._client

    @property
    def shared(self) -> Callable[..., Any]:
        """The way to what the processes of the node share in its agent.

        Raises:
            NotAvailableInProcess: there is none.
        """
        if self.find_shared is None:
            raise NotAvailableInProcess("process.shared", "is there only in the processes of a running node")
        return self.find_shared

    def run_in_background(self, work: BackgroundWork) -> None:
        """Let a coroutine run beside everything else; from any thread.

        When the process stops, the work has what is left of its grace to end, and is cancelled then. An exception in
        it is logged and does no harm to the process.

        Args:
            work: a coroutine, as in ``run_in_background(refresh())``.

        Raises:
            ProcessStopping: the process stops and begins nothing more.
            TypeError: it is not a coroutine.
        """
        self._background_tasks.run(work)

    def report_stuck_code(self, reason: str) -> None:
        """Have the process replaced, because code in it does not end although its time is over.

        It takes no new work, finishes what it has within its grace, and ends.

        Args:
            reason: for people.
        """
        self._link.stuck(None, reason)

    async def finish(self, grace: float) -> None:
        """Let what runs in the background end within `grace` seconds, and begin nothing more."""
        try:
            await self._background_tasks.finish(grace)
        finally:
            self.messenger.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs in the background, and no message waits."""
        return self.messenger.is_idle and self._background_tasks.count == 0
