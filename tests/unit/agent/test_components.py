from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from peerd.agent import components as module
from peerd.agent.components import ComponentNameTaken, ComponentSupervisor
from peerd.agent.database_health import OutageReporter
from peerd.agent.resource_usage import LimitMonitor, ResourceMonitor, ResourceUsage, UsageLimits, UsageMeter
from peerd.runtime.observability import events as e
from peerd.runtime.observability.events import ComponentFailed, Event, EventBus
from peerd.runtime.observability.log_messages import component_ended
from peerd.runtime.process.process_context import LIMITS_ACTION
from peerd.testing import eventually, eventually_async
from tests.support.rows import rows


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
async def components(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ComponentSupervisor]:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    components = ComponentSupervisor(EventBus(events.append))
    yield components
    await components.stop(components.names, within=5.0)


def failing(times: int, error: Callable[[], BaseException]) -> tuple[list[int], Callable[[], object]]:
    """Runs that fail so many times, and then run; the numbers of the runs."""
    starts: list[int] = []

    async def run() -> None:
        starts.append(len(starts))
        if len(starts) <= times:
            raise error()
        await asyncio.Event().wait()

    return starts, run


@rows("error", [ValueError, SystemExit, asyncio.CancelledError])
async def test_a_component_that_raises_is_restarted_and_nothing_else_ends(
    components: ComponentSupervisor, events: list[Event], error: type[BaseException]
) -> None:
    _, neighbour = failing(0, ValueError)
    starts, run = failing(3, lambda: error("again"))
    components.start("neighbour", neighbour)  # type: ignore[arg-type]
    components.start("failing", run)  # type: ignore[arg-type]
    await eventually_async(lambda: len(starts) == 4)
    states = {one["name"]: (one["state"], one["failures"], one["restarts"]) for one in components.to_json()}
    assert states == {"neighbour": ("running", 0, 0), "failing": ("running", 3, 3)}
    failures = [event for event in events if isinstance(event, ComponentFailed)]
    assert [event.failures for event in failures] == [1, 2, 3]
    assert failures[-1].again_in > 2 * failures[0].again_in
    components.start("short", lambda: asyncio.sleep(0))
    await eventually_async(lambda: events[-1] == component_ended("short"))
    assert components.to_json()[-1]["state"] == "ended", "one that returns is not restarted"
    await components.stop(components.names, within=5.0)
    events.clear()


async def test_components_are_stopped_in_reverse_order_and_free_their_names(components: ComponentSupervisor) -> None:
    ended = []

    async def until_the_end(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    for name in ("one", "two", "three"):
        components.start(name, lambda name=name: until_the_end(name))  # type: ignore[misc]
    with pytest.raises(ComponentNameTaken, match="two"):
        components.start("two", lambda: until_the_end("two"))
    await asyncio.sleep(0)
    await components.stop(["one", "three"], within=5.0)
    assert (ended, components.names) == (["three", "one"], ["two"])


async def test_a_component_that_ignores_its_cancellation_or_fails_in_its_end_does_not_block_the_stop(
    components: ComponentSupervisor, events: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async def failing_at_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in its end")

    components.start("failing-at-end", failing_at_end)
    components.start("stubborn", stubborn)
    await asyncio.sleep(0)
    await components.stop(["failing-at-end"], within=5.0)
    assert (components.names, events) == (["stubborn"], []), "it is not restarted"
    assert "in its end" in capsys.readouterr().err
    await components.stop(["stubborn"], within=0.01)
    assert components.to_json()[0]["state"] == "stopped"
    let_go.set()


BUSY = "import sys; x = bytearray(64 * 2**20); sys.stdout.write('go'); sys.stdout.flush()\nwhile True: pass"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """An idle process with a busy and large child."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, process_group=0) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"go"
        yield process
        os.killpg(process.pid, 9)


def test_processes_are_measured_with_their_descendants_and_limits_count_from_the_start(
    parent: subprocess.Popen[bytes],
) -> None:
    meter = UsageMeter()
    first = meter.read([parent.pid, 2**22 + 1], time.monotonic())
    assert set(first) == {parent.pid}
    assert first[parent.pid].memory > 64 * 2**20
    assert first[parent.pid].cpu == 0.0
    eventually(lambda: meter.read([parent.pid], time.monotonic())[parent.pid].cpu > 0.05, every=0.3)
    monitor = LimitMonitor()
    limits = {1: UsageLimits(cpu=0.9, memory=100), 2: UsageLimits(cpu=0.9, memory=100), 3: UsageLimits()}
    over, under = ResourceUsage(50, 2.0), ResourceUsage(50, 0.1)
    rounds = [{1: over, 2: over, 3: over}, {1: over, 2: under, 3: over}, {1: over, 2: over, 3: over}]
    assert [[exceeded.pid for exceeded in monitor.check(limits, samples)] for samples in rounds] == [[], [], [1]]
    assert monitor.check({}, {}) == []
    assert monitor.check(limits, rounds[0]) == []


@rows("role", ["worker", "command"])
async def test_the_master_gets_all_samples_and_requests_to_replace_processes_above_their_limit(
    parent: subprocess.Popen[bytes], role: str
) -> None:
    sent: list[Any] = []
    components = ComponentSupervisor(EventBus())
    answers: list[Any] = [TimeoutError("busy"), {"memory": 2**20, "cpu": None}]

    async def request(pid: int, action: str, **_: float) -> Any:
        assert action == LIMITS_ACTION
        assert (pid, role) == (parent.pid, "worker"), "another program has the limits of its section"
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monitor = ResourceMonitor({"tunnel": UsageLimits(memory=2**20)}, every=0.01)
    monitor.receive({"type": "processes", "processes": [
        {"slot": "tunnel-1", "kind": "tunnel" if role == "command" else "video", "role": role, "pid": parent.pid,
         "generation": 1},
        {"slot": "agent", "kind": "agent", "role": "agent", "pid": os.getpid(), "generation": 1},
    ]})  # fmt: skip
    await monitor.start(Mock(link=Mock(send=sent.append), process=Mock(messenger=Mock(request=request))), components)
    requests = await eventually_async(lambda: [one for one in sent if one["type"] == "replace"])
    assert (requests[0]["pid"], requests[0]["how"]) == (parent.pid, "memory-limit")
    assert "(recycle_memory = 1" in requests[0]["reason"]
    reports = [one["processes"] for one in sent if one["type"] == "samples"]
    assert set(reports[-1]) == {str(parent.pid), str(os.getpid())}
    await monitor.stop(0.0)
    assert components.names == []


Reports = list[e.Event]


def listen(after: float) -> tuple[e.EventBus, Reports]:
    reports: Reports = []
    events = e.EventBus()
    events.listen(lambda event: reports.append(event) if isinstance(event, e.DatabaseAway | e.DatabaseBack) else None)
    events.listen(OutageReporter(events, after))
    return events, reports


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_an_outage_that_lasts_is_reported_once_with_its_end_and_a_short_one_is_not() -> None:
    events, reports = listen(after=60.0)
    events.emit(e.DatabaseOutageStarted(reason="gone"))
    await settle()
    events.emit(e.DatabaseOutageEnded(seconds=3.0))
    await settle()
    assert reports == []
    events, reports = listen(after=0.0)
    for _ in range(2):
        threading.Thread(target=events.emit, args=(e.DatabaseOutageStarted(reason="gone"),)).start()
    await eventually_async(lambda: reports)
    await settle()
    assert reports == [e.DatabaseAway(seconds=0.0, reason="gone")]
    events.emit(e.DatabaseOutageEnded(seconds=40.0))
    await settle()
    assert reports[1:] == [e.DatabaseBack(seconds=40.0)]
    events.emit(e.DatabaseOutageStarted(reason="again"))
    await eventually_async(lambda: len(reports) == 3)
    assert reports[2] == e.DatabaseAway(seconds=0.0, reason="again")
