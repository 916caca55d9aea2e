from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from peerd.config.settings import WorkSettings
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_ups import WakeUpSender
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import DOORBELL_ACTION, RING_ACTION, ProcessContext
from peerd.testing import eventually_async
from peerd.work import services
from peerd.work.services import RungPolling
from peerd.work.task_runner import Runner

AGENT = {"pid": 7, "slot": "agent", "kind": "agent", "role": "agent", "generation": 1}
WORKER = {"pid": 8, "slot": "jobs-2", "kind": "jobs", "role": "worker", "generation": 1}


class FakeLink:
    node, slot, kind = "here", "jobs-1", "jobs"

    def send(self, message: Mapping[str, object]) -> None:
        """Not needed."""

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        raise AssertionError(reason)

    def take_largest_lag(self) -> float:
        return 0.0


class FakeRunner:
    def __init__(self) -> None:
        self.rung = 0
        self.checked_claims: list[frozenset[int]] = []

    def ring(self) -> None:
        self.rung += 1

    async def check_claims(self, task_ids: frozenset[int]) -> None:
        self.checked_claims.append(task_ids)


class Harness:
    def __init__(self, *, may_lag: bool = True) -> None:
        self.runner = FakeRunner()
        self.process = ProcessContext(FakeLink(), EventBus())
        settings = WorkSettings(queues=("video", "mail"), poll_every=1.0, rung_poll_every=10.0)
        self.polling = RungPolling(self.process, settings, cast("Runner", self.runner), may_lag=may_lag)
        self.processes_are(AGENT, WORKER)

    def processes_are(self, *peers: Mapping[str, Any]) -> None:
        self.process.messenger.receive({"type": "processes", "processes": list(peers)})

    def receive(self, action: str, data: Any, sender: Mapping[str, Any] = AGENT) -> None:
        frame = {"type": "message", "action": action, "data": data, "from": dict(sender), "request": False, "id": 1}
        assert self.process.messenger.receive(frame)

    async def ring(self, ring: Ring, sender: Mapping[str, Any] = AGENT) -> None:
        self.receive(RING_ACTION, msgspec.json.decode(msgspec.json.encode(ring)), sender)
        await eventually_async(lambda: self.process.is_idle)


@pytest.fixture
async def harness() -> Harness:
    return Harness()


async def test_rings_come_by_the_socket_and_without_one_as_messages(harness: Harness, tmp_path: Path) -> None:
    harness.polling.rings.open(tmp_path)
    agent = WakeUpSender(tmp_path)
    agent.open()
    assert agent.send(os.getpid(), TasksAvailable(("others",)))
    assert agent.send(os.getpid(), TasksAvailable(("mail",)))
    await eventually_async(lambda: harness.runner.rung == 1)
    harness.polling.rings.close()
    assert not agent.send(os.getpid(), TasksAvailable(("mail",)))
    agent.close()
    without_socket = Harness()
    without_socket.polling.rings.open(tmp_path / "there is no such folder")
    await without_socket.ring(TasksAvailable(("mail",)))
    assert without_socket.runner.rung == 1
    without_socket.polling.rings.close()


async def test_with_servers_that_may_lag_it_polls_once_more(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "SECOND_POLL_AFTER", 0.02)
    with_one = Harness(may_lag=False)
    await with_one.ring(TasksAvailable())
    for _ in range(5):
        await harness.ring(TasksAvailable())
    await eventually_async(lambda: harness.runner.rung > 5)
    assert harness.polling._second_poll is None, "no further poll is scheduled"
    assert with_one.runner.rung == 1


async def test_rings_for_its_own_queues_cause_a_poll_and_revoked_claims_a_check(harness: Harness) -> None:
    for queues, rung in ((("others",), 0), (("others", "mail"), 1), ((), 2)):
        await harness.ring(TasksAvailable(queues))
        assert harness.runner.rung == rung
    await harness.ring(ClaimRevoked((3, 5)))
    assert (harness.runner.checked_claims, harness.runner.rung) == ([frozenset({3, 5})], 2)
    await harness.ring(TasksAvailable(), sender=WORKER)
    harness.receive(DOORBELL_ACTION, {"works": True}, sender=WORKER)
    assert (harness.runner.rung, harness.polling.poll_every()) == (2, 1.0)


async def test_it_polls_less_while_the_agent_that_reported_a_working_doorbell_lives(harness: Harness) -> None:
    assert harness.polling.poll_every() == 1.0
    harness.receive(DOORBELL_ACTION, {"works": True})
    assert (harness.runner.rung, harness.polling.poll_every()) == (0, 10.0)
    harness.receive(DOORBELL_ACTION, {"works": False})
    assert (harness.runner.rung, harness.polling.poll_every()) == (1, 1.0), "a long pause is ended"
    harness.receive(DOORBELL_ACTION, {"works": True})
    for peers in ((WORKER,), (WORKER, {**AGENT, "pid": 70, "generation": 2})):
        harness.processes_are(*peers)
        assert harness.polling.poll_every() == 1.0
    harness.receive(DOORBELL_ACTION, {"works": True}, sender={**AGENT, "pid": 70, "generation": 2})
    assert harness.polling.poll_every() == 10.0
