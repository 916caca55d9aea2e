from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.schedule import Schedule
from peerd.runtime.observability.events import Event, EventBus
from peerd.runtime.process.process_context import ProcessContext
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.run_executor import ScheduleRunExecutor
from peerd.schedules.scheduler import Scheduler
from peerd.store import nodes, schedule_runs, schedules
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun
from peerd.store.schema.tables import schedules as table
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually_async
from tests.unit.schedules import functions
from tests.unit.schedules.functions import CALLS, GATES

SILENCE = 5.0
AGENT = 1


class FakeLink:
    def __init__(self, fake: FakeNode, pid: int, slot: str, kind: str, role: str) -> None:
        self.node, self.slot, self.kind, self.role, self.pid = fake.name, slot, kind, role, pid
        self._fake = fake

    def send(self, message: Mapping[str, object]) -> None:
        self._fake.route(self, json.loads(json.dumps(message)))

    def stuck(self, attempt: object, reason: str) -> None:
        self._fake.stuck.append(reason)

    def take_largest_lag(self) -> float:
        return 0.0


class FakeNode:
    def __init__(self, database: Database, *given: Schedule, name: str = "a") -> None:
        self.name = name
        self.database = database
        self.emitted: list[Event] = []
        self.stuck: list[str] = []
        self.events = EventBus(self.emitted.append)
        incarnation = nodes.new_incarnation()
        seen = database.read(nodes.find_node, name)
        node_id = database.run(
            nodes.register_incarnation, name, incarnation, replaces=seen.incarnation if seen else None
        )
        assert node_id is not None
        self.identity = NodeIdentity(node_id, incarnation)
        self._loop = asyncio.get_running_loop()
        self._ends: dict[int, tuple[FakeLink, ProcessContext]] = {}
        self._next_pid = 10
        self.registry = ScheduleRegistry(given)
        self.threads = DatabaseThreads(database, 2)
        self._ticking: asyncio.Task[None] | None = None
        self.replace_agent()

    def replace_agent(self, registry: ScheduleRegistry | None = None) -> None:
        self.registry = registry or self.registry
        context = self._join(FakeLink(self, AGENT, "agent", "agent", "agent"))
        self.agent = context
        self.clock = Scheduler(self.registry, functions.find, incarnation=self.identity.incarnation, silence=SILENCE)
        self.clock.attach(context, self.threads, self.identity.node_id, self.events)
        self.custom = self.clock._custom

    def add_worker(
        self, kind: str = "w", *, role: str = "worker", runs: bool = True, timeout_grace: float = 30.0
    ) -> ProcessContext:
        self._next_pid += 1
        pid = self._next_pid
        context = self._join(FakeLink(self, pid, f"{kind}-{pid}", kind, role))
        if runs:
            ScheduleRunExecutor(context, functions.find, self.events, timeout_grace=timeout_grace)
        return context

    def kill_worker(self, process: ProcessContext) -> int:
        pid = self.remove_worker(process)
        self.clock.on_process_death(pid, "killed by SIGKILL")
        return pid

    def remove_worker(self, process: ProcessContext, *, announce: bool = True) -> int:
        pid = next(pid for pid, (_, context) in self._ends.items() if context is process)
        del self._ends[pid]
        if announce:
            self.announce_processes()
        return pid

    def _join(self, end: FakeLink) -> ProcessContext:
        context = ProcessContext(end, self.events)
        self._ends[end.pid] = end, context
        self.announce_processes()
        return context

    def announce_processes(self) -> None:
        peers = [_peer(end) for end, _ in self._ends.values()]
        for _, context in self._ends.values():
            context.messenger.receive({"type": "processes", "processes": peers})

    def route(self, sender: FakeLink, frame: dict[str, Any]) -> None:
        self._loop.call_soon(self._deliver, sender, frame)

    def _deliver(self, sender: FakeLink, frame: dict[str, Any]) -> None:
        if sender.pid not in self._ends:
            return
        to = frame.get("to", {})
        pid = AGENT if to.get("role") == "agent" else to.get("pid")
        reached = self._ends.get(pid)
        match frame["type"]:
            case "message" if reached is not None:
                reached[1].messenger.receive({**frame, "from": _peer(sender)})
                if not frame["request"]:
                    self._receive(sender, {"type": "delivery", "id": frame["id"], "delivered": 1, "error": None})
            case "message" if frame["request"]:
                answer = {"type": "reply", "id": frame["id"], "error": "it is not there", "reason": "undeliverable"}
                self._receive(sender, answer)
            case "reply" if reached is not None:
                reason = {"reason": "handler"} if "error" in frame else {}
                reached[1].messenger.receive({**frame, **reason})

    def _receive(self, end: FakeLink, frame: dict[str, Any]) -> None:
        self._ends[end.pid][1].messenger.receive(frame)

    def start(self) -> None:
        self._ticking = asyncio.create_task(self.clock.run())

    async def stop(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
        await self.custom.stop_all()
        for _, context in list(self._ends.values()):
            await context.finish(0.0)
        self.threads.close()

    def runs(self) -> list[ScheduleRun]:
        """The oldest first."""
        return self.database.read(schedule_runs.list_runs)[::-1]

    def statuses(self) -> list[str]:
        return [str(run.status) for run in self.runs()]

    async def until(self, *statuses: str, steps: bool = True) -> list[ScheduleRun]:
        """Wait for runs of these statuses, in their order; with or without polls of the scheduler."""

        async def find() -> list[ScheduleRun] | None:
            if steps and self._ticking is None:
                await self.clock.step()
            found = await self.threads.read(schedule_runs.list_runs)
            return found[::-1] if [str(run.status) for run in found[::-1]] == list(statuses) else None

        found = await eventually_async(find, message=lambda: str((self.runs(), self.emitted)))
        assert found is not None
        return found

    def make_due(self, name: str = "s", seconds: float = 0.0) -> None:
        self.database.run(_make_due, name, seconds)

    def request(self, name: str = "s", args: str | None = None) -> ScheduleRun:
        return self.database.run(schedule_runs.request_run, name, args)

    def disable(self, name: str = "s", *, disabled: bool = True) -> None:
        self.database.run(schedules.set_schedule_disabled, name, disabled=disabled)


def _peer(end: FakeLink) -> dict[str, Any]:
    return {key: getattr(end, key) for key in ("pid", "slot", "kind", "role")} | {"generation": 1}


def _make_due(connection: Any, name: str, seconds: float) -> None:
    ticking = sa.and_(table.c.name == name, table.c.next_at.is_not(None))
    connection.execute(sa.update(table).where(ticking).values(next_at=seconds_from_now(-seconds)))


def schedule(function: str = "works", **given: Any) -> Schedule:
    """A schedule that runs a function of `functions`, each hour by default."""
    when = {} if {"interval", "cron", "immediate"} & set(given) else {"interval": 3600.0}
    what = {} if "queue" in given else {"run": f"m:{function}"}
    return Schedule(**{"name": "s", **what, **when, **given})


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{shutil.copy(migrated_file, tmp_path)}")
    yield database
    database.close()


@pytest.fixture(autouse=True)
async def gate() -> AsyncIterator[asyncio.Event]:
    CALLS.clear()
    functions.Falters.times = 0
    GATES["gate"] = asyncio.Event()
    yield GATES["gate"]
    GATES["gate"].set()


@pytest.fixture
async def node(database: Database) -> AsyncIterator[Any]:
    """Make a node that has schedules."""
    made: list[FakeNode] = []

    def make(*given: Schedule, name: str = "a") -> FakeNode:
        made.append(FakeNode(database, *given, name=name))
        return made[-1]

    yield make
    for fake in made:
        await fake.stop()
