"""What a worker's process hears of the doorbell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_up_socket import WakeUpSender
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext
from peerd.testing import eventually_async
from peerd.work.claims import wake_ups
from peerd.work.claims.wake_ups import WakeUpReceiver
from peerd.work.settings import EffectiveWorkerSettings

AGENT = {"pid": 7, "slot": "agent", "kind": "agent", "role": "agent", "generation": 1}
WORKER = {"pid": 8, "slot": "jobs-2", "kind": "jobs", "role": "worker", "generation": 1}


class Place:
    node, slot, kind = "here", "jobs-1", "jobs"

    def send(self, message: Mapping[str, object]) -> None:
        """Nobody asks."""

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        raise AssertionError(reason)


class Runner:
    def __init__(self) -> None:
        self.rung = 0
        self.checked_claims: list[frozenset[int]] = []

    def ring(self) -> None:
        self.rung += 1

    async def check_claims(self, task_ids: frozenset[int]) -> None:
        self.checked_claims.append(task_ids)


class Ear:
    def __init__(self, *, may_lag: bool = True) -> None:
        self.runner = Runner()
        self.process = ProcessContext(Place(), EventBus())
        settings = EffectiveWorkerSettings(queues=("video", "mail"), poll_every=1.0, rung_poll_every=10.0)
        self.wake_ups = WakeUpReceiver(self.process, settings, may_lag=may_lag)
        self.wake_ups.set_target(self.runner)
        self.there_are(AGENT, WORKER)

    def there_are(self, *peers: Mapping[str, Any]) -> None:
        self.process.messenger.receive({"type": "processes", "processes": list(peers)})

    def hear(self, action: str, data: Any, sender: Mapping[str, Any] = AGENT) -> None:
        frame = {"type": "message", "action": action, "data": data, "from": dict(sender), "request": False, "id": 1}
        assert self.process.messenger.receive(frame)

    async def ring(self, ring: Ring, sender: Mapping[str, Any] = AGENT) -> None:
        self.hear(RING_ACTION, msgspec.json.decode(msgspec.json.encode(ring)), sender)
        await eventually_async(lambda: self.process.is_idle)


@pytest.fixture
async def ear() -> Ear:
    return Ear()


async def test_it_looks_for_its_own_queues_and_for_any(ear: Ear) -> None:
    await ear.ring(TasksAvailable(("others",)))
    assert ear.runner.rung == 0
    await ear.ring(TasksAvailable(("others", "mail")))
    assert ear.runner.rung == 1
    await ear.ring(TasksAvailable())
    assert ear.runner.rung == 2


async def test_its_agent_rings_at_its_ear(ear: Ear, tmp_path: Path) -> None:
    ear.wake_ups.listen(tmp_path)
    agent = WakeUpSender(tmp_path)
    agent.open()
    assert agent.send(os.getpid(), TasksAvailable(("others",)))
    assert agent.send(os.getpid(), TasksAvailable(("mail",)))
    await eventually_async(lambda: ear.runner.rung == 1)
    ear.wake_ups.close()
    assert not agent.send(os.getpid(), TasksAvailable(("mail",)))
    agent.close()


async def test_where_there_can_be_no_ear_messages_are_heard(ear: Ear, tmp_path: Path) -> None:
    ear.wake_ups.listen(tmp_path / "there is no such folder")
    await ear.ring(TasksAvailable(("mail",)))
    assert ear.runner.rung == 1
    ear.wake_ups.close()


async def test_where_there_is_one_server_it_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_ups, "SECOND_POLL_AFTER", 0.02)
    ear = Ear(may_lag=False)
    await ear.ring(TasksAvailable())
    await asyncio.sleep(0.1)
    assert ear.runner.rung == 1


async def test_where_servers_may_lag_it_looks_once_more(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_ups, "SECOND_POLL_AFTER", 0.02)
    for _ in range(5):
        await ear.ring(TasksAvailable())
    await eventually_async(lambda: ear.runner.rung > 5)
    assert ear.wake_ups._second_poll is None, "and no further look is to come"


async def test_tasks_that_were_taken_are_looked_at(ear: Ear) -> None:
    await ear.ring(ClaimRevoked((3, 5)))
    assert (ear.runner.checked_claims, ear.runner.rung) == ([frozenset({3, 5})], 0)


async def test_only_the_agent_is_listened_to(ear: Ear) -> None:
    await ear.ring(TasksAvailable(), sender=WORKER)
    ear.hear(DOORBELL_ACTION, {"works": True}, sender=WORKER)
    assert (ear.runner.rung, ear.wake_ups.poll_every()) == (0, 1.0)


async def test_it_polls_less_while_the_agent_that_said_that_the_bell_works_is_there(ear: Ear) -> None:
    assert ear.wake_ups.poll_every() == 1.0
    ear.hear(DOORBELL_ACTION, {"works": True})
    assert ear.wake_ups.poll_every() == 10.0
    ear.there_are(WORKER)
    assert ear.wake_ups.poll_every() == 1.0
    ear.there_are(WORKER, {**AGENT, "pid": 70, "generation": 2})
    assert ear.wake_ups.poll_every() == 1.0
    ear.hear(DOORBELL_ACTION, {"works": True}, sender={**AGENT, "pid": 70, "generation": 2})
    assert ear.wake_ups.poll_every() == 10.0


async def test_a_bell_that_does_not_work_any_more_ends_a_long_sleep(ear: Ear) -> None:
    ear.hear(DOORBELL_ACTION, {"works": True})
    assert ear.runner.rung == 0
    ear.hear(DOORBELL_ACTION, {"works": False})
    assert (ear.runner.rung, ear.wake_ups.poll_every()) == (1, 1.0)
