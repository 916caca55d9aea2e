"""Two nodes at work: sharing, pinning, draining, limits, moving, messages, what is enabled."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peerd import Job
from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster
from tests.cluster.conftest import MakeCluster

LEAVER = {"worker": "jobs:Leaver", "update": "1s"}
WORKERS = {"jobs": {**WORKER, "processes": 2}, "off": {**LEAVER, "enabled": False}, "leaver": LEAVER}


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("postgresql")
    cluster.up("one", "two", workers=WORKERS, manager={"max_update": "60s"})
    return cluster


def nodes_of(cluster: Cluster, jobs: list[Job], event: str = "ran") -> set[str]:
    """The nodes that have run some tasks, after their end."""
    for job in jobs:
        cluster.done(job)
    return {cluster.notes(job, event)[0]["node"] for job in jobs}


def test_two_nodes_with_several_processes_share_the_tasks_and_run_each_once(cluster: Cluster) -> None:
    gated = [cluster.enqueue("gated") for _ in range(16)]
    for job in gated:
        cluster.wait_for(job, "began")
    began = [cluster.notes(job, "began") for job in gated]
    assert {len(notes) for notes in began} == {1}
    pids = [notes[0]["pid"] for notes in began]
    assert {pids.count(pid) for pid in pids} == {4}
    assert len({notes[0]["node"] for notes in began}) == 2
    for job in gated:
        cluster.open(job)
    jobs = [cluster.enqueue("quick", body={"n": n}) for n in range(40)]
    assert [cluster.done(job).attempts for job in [*gated, *jobs]] == [0] * 56
    assert sorted(event["task"] for event in cluster.notes(event="ran")) == [job.id for job in jobs]


def test_a_pinned_task_runs_on_its_node_and_a_drained_node_finishes_what_it_has(cluster: Cluster) -> None:
    assert nodes_of(cluster, [cluster.enqueue("quick", node="two") for _ in range(10)]) == {"two"}
    held = cluster.enqueue("gated", node="one")
    cluster.wait_for(held, "began")
    cluster.client.nodes.drain("one")
    assert nodes_of(cluster, [cluster.enqueue("quick") for _ in range(10)]) == {"two"}
    cluster.open(held)
    assert cluster.done(held).attempts == 0
    pinned = cluster.enqueue("quick", node="one")
    cluster.client.nodes.undrain("one")
    assert nodes_of(cluster, [pinned]) == {"one"}


def test_a_worker_that_is_not_enabled_is_not_started_and_one_that_leaves_is_not_restarted(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    eventually(lambda: node.slot("leaver-1")["state"] == "EXITED", timeout=WITHIN, message=node.log_text)
    running = ["agent", "jobs-1", "jobs-2", "manager"] * 2
    eventually(
        lambda: sorted(process.slot for process in cluster.client.nodes.processes()) == sorted(running), timeout=WITHIN
    )
    [ended] = eventually(lambda: [line for line in node.log_text().splitlines() if "process ended" in line]) or []
    assert "info" in ended, "it is no error to leave"
    assert "exit status 0" in ended
    assert node.slot("leaver-1")["state"] == "EXITED"


def test_a_running_task_moves_to_another_node_at_once(cluster: Cluster) -> None:
    job = cluster.enqueue("first_hangs", node="one")
    cluster.wait_for(job, "began")
    cluster.client.tasks.move(job.id, "two")
    assert cluster.done(job).attempts == 0
    assert job.refresh().result()["node"] == "two"
    assert cluster.wait_for(job, "cancelled")["node"] == "one"


def test_a_task_that_nobody_rings_for_is_found_by_the_poll(cluster: Cluster) -> None:
    with cluster.client.database.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', 'quick', '{}')"))
    [task, *_] = cluster.client.tasks.list(queue="jobs")
    eventually(lambda: cluster.client.tasks.get(task.id).status is Status.DONE, message=cluster.describe)


def test_a_handler_writes_to_the_handlers_of_the_nodes_other_processes(cluster: Cluster) -> None:
    listening = [cluster.enqueue("hears", node="one") for _ in range(5)]
    for job in listening:
        cluster.wait_for(job, "listens")
    reply = cluster.enqueue("tells", node="one", body={"data": "it rains"}).result(timeout=WITHIN)
    assert reply["reached"] == 2
    received = [job.result(timeout=WITHIN) for job in listening]
    assert {one["data"] for one in received} == {"it rains"}
    assert {one["sender"] for one in received} == {reply["pid"]}
    assert {one["slot"] for one in received} == {"jobs-1", "jobs-2"}


# ---------------------------------------------------------------- limits


def running(cluster: Cluster) -> set[int]:
    """The tasks whose handlers began an attempt and have not ended it."""
    latest = {
        event["task"]: event["event"] for event in cluster.notes() if event["event"] in ("began", "ended", "cancelled")
    }
    return {task for task, event in latest.items() if event == "began"}


@pytest.mark.parametrize("limit_of", ["each key", "the queue"])
def test_no_more_run_at_once_than_a_limit_allows_and_no_fewer(cluster: Cluster, limit_of: str) -> None:
    limits = cluster.client.limits
    if limit_of == "each key":
        limits.set("jobs", each_key=True, running=1)
        limits.set("jobs", key="b", running=2)
        allowed = {"a": 1, "b": 2}
        groups = {cluster.enqueue("gated", limit_key=key).id: key for key in "aaaabbbb"}
    else:
        limits.set("jobs", running=2)
        allowed = {"all": 2}
        groups = {cluster.enqueue("gated", limit_key=key).id: "all" for key in (None, "a", None, "b", "a", None)}
    left = set(groups)
    while left:
        wanted = {group: min(most, sum(groups[task] == group for task in left)) for group, most in allowed.items()}

        def counts(wanted: dict[str, int]) -> dict[str, int]:
            return {group: sum(groups[task] == group for task in running(cluster) & left) for group in wanted}

        eventually(lambda: counts(wanted) == wanted, timeout=WITHIN, message=cluster.describe)  # noqa: B023 - at once
        for task in running(cluster) & left:
            cluster.open(Job(task, created=True, find_task=lambda _: None))
            left.discard(task)
    for task in groups:
        cluster.done(Job(task, created=True, find_task=lambda _: None))
    most = dict.fromkeys(allowed, 0)
    now: list[str] = []
    for event in cluster.notes():
        if event["event"] == "began":
            now.append(groups[event["task"]])
        elif event["event"] == "ended":
            now.remove(groups[event["task"]])
        most = {group: max(number, now.count(group)) for group, number in most.items()}
    assert most == allowed


@pytest.mark.slow
def test_the_capacity_of_a_killed_holder_is_used_by_the_next_claim(cluster: Cluster) -> None:
    cluster.client.limits.set("jobs", each_key=True, running=1)
    first, second = [cluster.enqueue("gated", limit_key="file.mp4") for _ in range(2)]
    began = cluster.wait_for(first, "began")
    assert not cluster.notes(second, "began")
    for job in (second, first):
        cluster.open(job)
    node = next(node for node in cluster.nodes if node.name == began["node"])
    node.kill(next(slot["name"] for slot in node.slots("jobs") if slot["pid"] == began["pid"]))
    assert {cluster.done(job).status.value for job in (first, second)} == {"done"}
