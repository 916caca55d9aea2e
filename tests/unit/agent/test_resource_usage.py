from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from peerd.agent.components import ComponentSupervisor
from peerd.agent.resource_usage import LimitMonitor, ResourceMonitor, ResourceUsage, UsageLimits, UsageMeter
from peerd.runtime.observability.events import EventBus
from peerd.testing import eventually, eventually_async
from tests.support.rows import rows

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


def test_a_process_is_measured_with_its_descendants(parent: subprocess.Popen[bytes]) -> None:
    meter = UsageMeter()
    first = meter.read([parent.pid, 2**22 + 1], time.monotonic())
    assert set(first) == {parent.pid}
    assert first[parent.pid].memory > 64 * 2**20
    assert first[parent.pid].cpu == 0.0
    eventually(lambda: meter.read([parent.pid], time.monotonic())[parent.pid].cpu > 0.05, every=0.3)


def test_a_limit_counts_from_the_start_for_each_process() -> None:
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

    async def request_limits(pid: int) -> Any:
        assert (pid, role) == (parent.pid, "worker"), "another program has the limits of its section"
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monitor = ResourceMonitor(request_limits, {"tunnel": UsageLimits(memory=2**20)}, every=0.01)
    monitor.receive({"type": "processes", "processes": [
        {"slot": "tunnel-1", "kind": "tunnel" if role == "command" else "video", "role": role, "pid": parent.pid,
         "generation": 1},
        {"slot": "agent", "kind": "agent", "role": "agent", "pid": os.getpid(), "generation": 1},
    ]})  # fmt: skip
    await monitor.start(Mock(send=sent.append), components)
    requests = await eventually_async(lambda: [one for one in sent if one["type"] == "replace"])
    assert (requests[0]["pid"], requests[0]["how"]) == (parent.pid, "memory-limit")
    assert "(recycle_memory = 1" in requests[0]["reason"]
    reports = [one["processes"] for one in sent if one["type"] == "samples"]
    assert set(reports[-1]) == {str(parent.pid), str(os.getpid())}
    await monitor.stop(0.0)
    assert components.names == []
