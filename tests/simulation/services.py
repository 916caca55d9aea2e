"""The real services of a node, in the shells of simulated processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from peerd.agent.service import AgentService
from peerd.config.settings import GatewaySettings, LoggingSettings, ManagerSettings, NodeSettings, WorkSettings
from peerd.domain.ring import Ring
from peerd.gateway import group_commit, reservation_ends
from peerd.gateway import service as gateway_service
from peerd.gateway.group_commit import Batch, GroupCommitter
from peerd.gateway.operations import Holder
from peerd.gateway.server import GatewayServer
from peerd.gateway.service import GatewayService
from peerd.manager.service import ManagerService
from peerd.operate.client import Client
from peerd.runtime import concurrency
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process import life
from peerd.shell import ProcessShell, Service
from peerd.work import active_claims
from peerd.work.services import TaskService
from peerd.work.task_worker import QueueWorker, TaskWorker
from tests.simulation.database import SimulatedDatabase
from tests.simulation.handlers import RowWorker, served_by
from tests.simulation.node import AGENT, MakeShell
from tests.simulation.plan import MAX_UPDATE, SimulationPlan
from tests.simulation.process import SimulatedProcess
from tests.simulation.threads import SimulatedLock


class SimulatedGroupCommitter(GroupCommitter):
    def __init__(
        self, database: SimulatedDatabase, holder: Holder, on_done: Callable[[Batch, Sequence[Sequence[Any]]], None]
    ) -> None:
        super().__init__(database, holder, on_done)
        self._process = database.process

    def start(self) -> None:
        """Do nothing: each batch has a thread of its own."""

    def submit(self, batch: Batch) -> None:
        self._process.begin(partial(self._execute, batch), partial(self._executed, batch))

    def close(self) -> None:
        """Do nothing: the engine has waited for its last batch."""

    def _executed(self, batch: Batch, results: Any, error: BaseException | None) -> None:
        assert error is None, error
        self._process.loop.call_soon(self._on_done, batch, results)


class SimulatedGatewayServer(GatewayServer):
    is_accepting = False

    def start(self, sockets: Sequence[Any]) -> None:
        self.is_accepting = True

    def stop_accepting(self, *, close_listeners: bool) -> None:
        self.is_accepting = False


class SimulatedNotifier:
    """A notifier whose rings are all lost: what follows must not need them."""

    def __init__(self, *_: object) -> None: ...
    def ring(self, *rings: Ring) -> None: ...
    def close(self) -> None: ...


UPDATE: Final = 10.0
POLL_EVERY: Final = 20.0
PROGRESS_EVERY: Final = 5.0
INACTIVE_AFTER: Final = 30.0
MAX_COMPLETED: Final = 600.0
CLIENT_POLL_EVERY: Final = 15.0
RECONCILE_EVERY: Final = 300.0
NO_FOLDER: Final = Path("/nonexistent/run")
"""The run directory of a gateway process: it has no socket for rings."""
NEVER: Final = 1e6
"""Seconds after its time-out in which code must end: a process that ends the hard way with it is not simulated."""


@contextmanager
def patched_for_simulation() -> Iterator[None]:
    """Fewer idle rounds of the touch threads; boots that fail are noted in the history, not on stderr; green locks."""
    with (
        patch.object(active_claims, "PROGRESS_EVERY", PROGRESS_EVERY),
        patch.object(life, "log_exception", lambda error: None),
        patch.object(life, "log_boot_failure", lambda error: None),
        patch.object(concurrency, "Lock", SimulatedLock),
        patch.object(group_commit, "GroupCommitter", SimulatedGroupCommitter),
        patch.object(gateway_service, "GatewayServer", SimulatedGatewayServer),
        patch.object(gateway_service, "Notifier", SimulatedNotifier),
        patch.object(gateway_service, "POLL_EVERY", CLIENT_POLL_EVERY),
        patch.object(reservation_ends, "RECONCILE_EVERY", RECONCILE_EVERY),
    ):
        yield


def slots(plan: SimulationPlan) -> dict[str, MakeShell]:
    kinds: dict[str, tuple[int, MakeShell]] = {
        "work": (plan.workers, lambda process: task_process(process, QueueWorker(served_by(process)))),
        "rows": (plan.row_workers, lambda process: task_process(process, RowWorker(), executor_slots=1)),
        "gateway": (plan.gateways, gateway),
    }
    several = {f"{kind}-{n + 1}": make for kind, (number, make) in kinds.items() for n in range(number)}
    return {AGENT: agent, "manager": manager, **several}


def agent(process: SimulatedProcess) -> ProcessShell:
    settings = NodeSettings(name=process.node.name, heartbeat_every=10.0)
    about = (settings, LoggingSettings(), process.node.incarnation, INACTIVE_AFTER)
    return _shell(process, AgentService(*about, ticker=process.tick))


def manager(process: SimulatedProcess) -> ProcessShell:
    settings = ManagerSettings(
        every=20.0, max_update=MAX_UPDATE, max_completed=MAX_COMPLETED, inactive_after=INACTIVE_AFTER, batch=3
    )
    return _shell(process, ManagerService(settings))


def gateway(process: SimulatedProcess) -> ProcessShell:
    return _shell(process, GatewayService(GatewaySettings(), {}, None, NO_FOLDER, MAX_UPDATE))


def task_process(process: SimulatedProcess, serves: TaskWorker, executor_slots: int | None = None) -> ProcessShell:
    serves.settings = WorkSettings(
        log_lines=False,  # a thread of its own writes them, and no claim depends on it
        queues=serves.queues,
        count=executor_slots or process.world.plan.executor_slots,
        update=UPDATE,
        poll_every=POLL_EVERY,
        timeout_grace=NEVER,
        delay_ratio=20.0,
        max_attempts=4,
        options={"process": process},
    )
    shell = _shell(process, TaskService(serves, ticker=process.tick))
    shell.client = Client(shell.database)
    serves.events = shell.events
    return shell


def _shell(process: SimulatedProcess, service: Service) -> ProcessShell:
    return ProcessShell(service, SimulatedDatabase(process.world.database, process), _events(process))


def _events(process: SimulatedProcess) -> EventBus:
    return EventBus(lambda event: process.world.note(f"{process} {event}") if process.alive else None)
