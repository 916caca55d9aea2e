"""The stack of a running task, by the kind of its handler, also while the event loop of its process is blocked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from peerd import Job
from peerd.domain.errors import NodeRequestFailed, TaskNotFound, TaskNotRunning
from peerd.domain.lifecycle import Status
from peerd.domain.task_stack import MAX_FRAMES, CallFrame, TaskStack
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode

STEERED = Path(__file__).parent / "steered.py"


def start(cluster: Cluster, name: str) -> Job:
    job = cluster.client.enqueue("steered", name=name)
    cluster.wait_until(job, Status.WORKING)
    return job


def functions(frames: list[CallFrame]) -> list[str]:
    return [frame.function.rpartition(".")[2] for frame in frames]


def read_until(cluster: Cluster, job: Job, function: str) -> TaskStack:
    """The stack once the handler has come to a function."""

    def arrived() -> TaskStack | None:
        try:
            stack = cluster.client.tasks.stack(job.id)
        except NodeRequestFailed:  # claimed, and not begun; or its process has just been started
            return None
        return stack if any(function in functions(call.frames) for call in stack.calls) else None

    found = eventually(arrived, timeout=WITHIN, message=cluster.describe)
    assert found is not None
    return found


@pytest.fixture
def node(cluster: Cluster) -> ClusterNode:
    shutil.copy(STEERED, cluster.folder / "steered.py")
    worker: dict[str, Any] = {**WORKER, "tasks": "steered:steered", "count": 20}
    [node] = cluster.up("one", workers={"steered": worker})
    return node


def test_each_kind_of_handler_shows_where_its_code_is(cluster: Cluster, node: ClusterNode) -> None:
    worker = node.pid("steered-1")

    stack = read_until(cluster, start(cluster, "awaits_deeply"), "innermost")
    assert (stack.node, stack.slot) == ("one", "steered-1")
    assert functions(stack.calls[0].frames) == [
        "awaits_deeply", *["deeper"] * 6, "numbers", "innermost", "sleep",
    ]  # fmt: skip
    innermost = stack.calls[0].frames[-2]
    assert (innermost.file, innermost.source) == (str(cluster.folder / "steered.py"), "await asyncio.sleep(0.05)")
    assert "hunter2" not in str(stack)
    assert stack.process is not None
    assert stack.process.pid == worker
    assert stack.process.memory > 1_000_000
    assert stack.process.threads > 1
    assert stack.since == cluster.client.tasks.get(stack.task_id).worker_started_at

    stack = read_until(cluster, start(cluster, "awaits_very_deeply"), "innermost")
    assert stack.is_cut
    assert sum(len(call.frames) for call in stack.calls) == MAX_FRAMES
    assert functions(stack.calls[0].frames)[-2:] == ["innermost", "sleep"]

    stack = read_until(cluster, start(cluster, "awaits_a_group"), "innermost")
    assert functions(stack.calls[0].frames) == ["awaits_a_group", "__aexit__"]
    names = {call.name: functions(call.frames) for call in stack.calls[1:]}
    assert names == {
        f"awaited task {which} of the group": ["member", "innermost", "sleep"] for which in ("first", "second")
    }

    stack = read_until(cluster, start(cluster, "awaits_gathered"), "innermost")
    assert functions(stack.calls[0].frames) == ["awaits_gathered"]
    assert [functions(call.frames) for call in stack.calls[1:]] == [["member", "innermost", "sleep"]] * 2

    stack = read_until(cluster, start(cluster, "in_a_thread"), "busy_loop")
    assert [(call.name, functions(call.frames)) for call in stack.calls] == [("thread", ["in_a_thread", "busy_loop"])]

    stack = read_until(cluster, start(cluster, "in_a_process"), "compute")
    assert (stack.calls[0].name, functions(stack.calls[0].frames)[:2]) == ("process", ["in_a_process", "compute"])
    assert stack.calls[0].frames[1].source.startswith(("sum(", "while not"))
    assert stack.process is not None
    assert stack.process.pid != worker
    assert stack.process.cpu > 0


def test_a_blocked_event_loop_shows_what_blocks_it(cluster: Cluster, node: ClusterNode) -> None:
    beside = start(cluster, "waits_beside")
    read_until(cluster, beside, "innermost")
    blocking = start(cluster, "blocks_the_loop")
    stack = read_until(cluster, blocking, "busy_loop")
    assert functions(stack.calls[-1].frames)[:2] == ["blocks_the_loop", "busy_loop"]
    assert stack.calls[-1].name == "event loop"
    stack = read_until(cluster, beside, "innermost")
    assert [(call.name, functions(call.frames)[:2]) for call in stack.calls] == [
        ("coroutine", ["waits_beside", "innermost"]),
        ("event loop", ["blocks_the_loop", "busy_loop"]),
    ]
    cluster.open(blocking)
    cluster.open(beside)
    cluster.done(blocking)


def test_a_task_that_does_not_run_has_no_stack(cluster: Cluster) -> None:
    job = cluster.enqueue("quick")
    with pytest.raises(TaskNotRunning, match="it is pending, not working"):
        cluster.client.tasks.stack(job.id)
    with pytest.raises(TaskNotFound):
        cluster.client.tasks.stack(job.id + 1)
