"""The real services of a node, made for a simulated process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from peerd.agent.service import AgentService
from peerd.config.settings import LoggingSettings, ManagerSettings, NodeSettings
from peerd.manager.service import ManagerService
from peerd.operate import operations
from peerd.operate.client import Client
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process import service as service_module
from peerd.runtime.process.service import Service
from peerd.work.claims import toucher
from peerd.work.services import TaskService
from peerd.work.task_worker import QueueWorker
from peerd.work.worker import EffectiveWorkerSettings
from tests.simulation.database import SimulatedDatabase
from tests.simulation.node import AGENT, MakeService
from tests.simulation.plan import SimulationPlan
from tests.simulation.process import SimulatedProcess
from tests.simulation.threads import SimulatedLock
from tests.simulation.versions import served_by

UPDATE: Final = 10.0
POLL_EVERY: Final = 20.0
PROGRESS_EVERY: Final = 5.0
MAX_UPDATE: Final = 60.0
INACTIVE_AFTER: Final = 30.0
MAX_COMPLETED: Final = 600.0
"""Seconds. The proportions are those of the defaults; the periods are longer, so that fewer calls are idle ones."""
NEVER: Final = 1e6
"""Seconds after its time-out in which code must end: a process that ends the hard way with it is not simulated."""


@contextmanager
def patched_for_simulation() -> Iterator[None]:
    """Fewer idle rounds of the touch threads; boots that fail are noted in the history, not on stderr; green locks."""
    with (
        patch.object(toucher, "PROGRESS_EVERY", PROGRESS_EVERY),
        patch.object(service_module, "log_exception", lambda error: None),
        patch.object(operations, "Lock", SimulatedLock),
    ):
        yield


def slots(plan: SimulationPlan) -> dict[str, MakeService]:
    """What runs on each node."""
    workers = {
        f"work-{number + 1}": lambda process: worker(process, plan.executor_slots) for number in range(plan.workers)
    }
    return {AGENT: agent, "manager": manager, **workers}


def agent(process: SimulatedProcess) -> Service:
    settings = NodeSettings(name=process.node.name, heartbeat_every=10.0)
    database = SimulatedDatabase(process.world.database, process)
    events, tick = _events(process), process.tick
    logging = LoggingSettings()
    return AgentService(settings, logging, process.node.incarnation, INACTIVE_AFTER, database, events, ticker=tick)


def manager(process: SimulatedProcess) -> Service:
    settings = ManagerSettings(
        every=20.0, max_update=MAX_UPDATE, max_completed=MAX_COMPLETED, inactive_after=INACTIVE_AFTER, batch=3
    )
    return ManagerService(settings, SimulatedDatabase(process.world.database, process), _events(process))


def worker(process: SimulatedProcess, executor_slots: int) -> Service:
    database = SimulatedDatabase(process.world.database, process)
    serves = QueueWorker(served_by(process))
    serves.settings = EffectiveWorkerSettings(
        queues=serves.queues,
        count=executor_slots,
        update=UPDATE,
        poll_every=POLL_EVERY,
        timeout_grace=NEVER,
        delay_ratio=20.0,
        max_attempts=4,
        options={"process": process},
    )
    serves.events = _events(process)
    client = Client(database)
    service = TaskService(serves, database, serves.events, client)
    service.ticker = process.tick
    return service


def _events(process: SimulatedProcess) -> EventBus:
    return EventBus(lambda event: process.world.note(f"{process} {event}") if process.alive else None)
