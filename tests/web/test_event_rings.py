"""What makes a reader of events read: rings of its queues, changes, and less and less often nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from peerd import Actor, Client, Right
from peerd.domain.ring import ClaimRevoked, NodeRequested, Ring, TasksAvailable
from peerd.doorbell.wake_ups import WakeUpSender
from peerd.runtime.observability.events import EventBus
from peerd.runtime.process.process_context import RING_ACTION, ProcessContext
from peerd.testing import eventually_async
from peerd.web.streams import hub as streams
from peerd.web.streams.events import EventFilter, EventViewer, watch_events
from peerd.web.streams.hub import REST, ReadingPauses, StreamHub
from peerd.web.streams.states import EventKind, EventMessage
from peerd.web_server.app_state import RingSubscriptions
from tests.unit.work.test_rung_polling import AGENT, WORKER, FakeLink

ME = os.getpid()
AN_HOUR = 3600.0


class Harness:
    """A hub in a process with rings; each reading that finds nothing new makes the pause an hour."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.process = ProcessContext(FakeLink(), EventBus())
        self.hub = StreamHub(interval=AN_HOUR)
        self.hub.attach(self.process, RingSubscriptions(self.process, folder))
        self.agent = WakeUpSender(folder)
        self.agent.open()

    async def watch(self, *kinds: EventKind, queues: frozenset[str] | None = None) -> EventViewer:
        """A viewer whose topics have been read until nothing was new."""
        actor = Actor(name="viewer", rights=frozenset({Right.VIEW}), queues=queues)
        viewer = await watch_events(self.hub, self.client.aio.acting_as(actor), EventFilter(frozenset(kinds)))
        read = list(self.hub.topics.values())
        await eventually_async(lambda: all(topic._pauses._pause >= AN_HOUR for topic in read))
        await taken(viewer, 0)
        return viewer


async def taken(viewer: EventViewer, within: float) -> list[EventMessage]:
    """The messages that are pending; none if nothing changes in this many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await viewer.news.wait()
    viewer.news.clear()
    return viewer.take_messages()


@pytest.fixture
async def harness(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    for name, value in (("SHORTEST_PAUSE", 0.01), ("REST", 0.0), ("GROWTH", 1e9)):
        monkeypatch.setattr(streams, name, value)
    harness = Harness(client, tmp_path)
    yield harness
    harness.process.draining.set()
    await eventually_async(lambda: harness.hub._draining)
    for viewer in list(harness.hub.viewers):
        harness.hub.leave(viewer)
    harness.agent.close()


async def test_a_ring_of_its_queues_makes_a_reader_of_tasks_read(harness: Harness) -> None:
    viewer = await harness.watch(EventKind.TASK, queues=frozenset({"video"}))
    job = harness.client.enqueue("video", name="new")
    assert harness.agent.send(ME, TasksAvailable(("mail",)))
    assert await taken(viewer, 0.2) == [], "of another queue"
    assert harness.agent.send(ME, TasksAvailable(("mail", "video")))
    assert [message.key for message in await taken(viewer, 20)] == [str(job.id)]


async def test_a_claim_that_was_revoked_makes_it_read_too(harness: Harness) -> None:
    def send(ring: Ring, sender: dict[str, Any]) -> None:
        head = {"type": "message", "action": RING_ACTION, "from": sender, "request": False, "id": 1}
        harness.process.messenger.receive({**head, "data": msgspec.to_builtins(ring)})

    viewer = await harness.watch(EventKind.TASK)
    harness.client.tasks.cancel(1)
    send(NodeRequested("here"), AGENT)
    send(ClaimRevoked((1,)), WORKER)
    assert await taken(viewer, 0.2) == [], "no news of tasks, or none of the agent"
    send(ClaimRevoked((1,)), AGENT)
    assert [message.status for message in await taken(viewer, 20)] == ["canceled"]


async def test_rings_come_only_while_somebody_watches_tasks(harness: Harness) -> None:
    await harness.watch(EventKind.QUEUE, EventKind.NODE)
    assert not harness.agent.send(ME, TasksAvailable())
    one, other = await harness.watch(EventKind.TASK), await harness.watch(EventKind.TASK)
    harness.hub.leave(one)
    assert harness.agent.send(ME, TasksAvailable())
    harness.hub.leave(other)
    assert not harness.agent.send(ME, TasksAvailable())


def test_pauses_are_short_after_a_change_or_a_ring_and_grow_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now))

    def read(pauses: ReadingPauses, *, seconds: float = 0.0, has_changed: bool = False, rings: bool = False) -> float:
        nonlocal now
        pauses.begin()
        now += seconds
        if rings:
            pauses.ring()
        pauses.end(has_changed=has_changed)
        return pauses._pause

    pauses = ReadingPauses(2.0)
    assert read(pauses, has_changed=True) == 0.25
    assert [read(pauses) for _ in range(4)] == [0.5, 1.0, 2.0, 2.0]
    pauses.ring()
    assert [read(pauses) for _ in range(2)] == [0.25, 0.5], "the ring counts once"
    assert [read(pauses, rings=True), read(pauses), read(pauses)] == [1.0, 0.25, 0.5], "it may have come too late"
    assert read(pauses, seconds=0.1, has_changed=True) == pytest.approx(REST * 0.1)
    assert read(pauses, seconds=1.0, has_changed=True) == 2.0
    crowded = ReadingPauses(1.0, lambda: 0.8)
    assert [read(crowded, has_changed=True), read(crowded)] == [0.8, 1.0]
