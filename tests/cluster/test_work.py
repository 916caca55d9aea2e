"""Two nodes at work: sharing, pinning, draining, limits, moving, messages; and two versions of the users' code.

The second node's code of queue `mixed` is newer, as while it is deployed on one node after another.
"""

from __future__ import annotations

import json

import pytest

from peerd import Job
from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster
from tests.cluster.conftest import MakeCluster

LEAVER = {"worker": "jobs:Leaver", "update": "1s"}
WORKERS = {"jobs": {**WORKER, "processes": 2}, "off": {**LEAVER, "enabled": False}, "leaver": LEAVER}
KINDS = {"one": {"old": "1h", "hasty": "2s"}, "two": {"new": "1h"}}
"""Of each node, with old and new code: kinds of processes, and how long a handler may be unknown to them."""
VERSIONS = {"one": "old", "two": "new"}


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    """Both nodes, before the new code is deployed: its kinds are not enabled yet."""
    cluster = module_cluster("postgresql")
    cluster.copy("versions_old.py", "versions_new.py")
    for name, kinds in KINDS.items():
        code = {**WORKER, "tasks": f"versions_{VERSIONS[name]}:mixed", "enabled": False}
        mixed = {kind: {**code, "unknown_after": after} for kind, after in kinds.items()}
        cluster.node(name, workers=WORKERS | mixed, manager={"max_update": "60s"}).start()
    for node in cluster.nodes:
        node.wait_until_running()
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
    [ended] = eventually(lambda: [line for line in node.log_text().splitlines() if "process ended" in line])
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


def test_a_handler_writes_to_the_handlers_of_the_nodes_other_processes(cluster: Cluster) -> None:
    listening = [cluster.enqueue("hears", node="one") for _ in range(5)]
    for job in listening:
        cluster.wait_for(job, "listens")
    reply = cluster.enqueue("tells", node="one", body={"data": "it rains"}).result(timeout=WITHIN)
    assert reply["reached"] == 2
    received = [job.result(timeout=WITHIN) for job in listening]
    assert {(one["data"], one["sender"]) for one in received} == {("it rains", reply["pid"])}
    assert {one["slot"] for one in received} == {"jobs-1", "jobs-2"}


def running(cluster: Cluster) -> set[int]:
    """The tasks whose handlers began an attempt and have not ended it."""
    latest = {one["task"]: one["event"] for one in cluster.notes() if one["event"] in ("began", "ended", "cancelled")}
    return {task for task, event in latest.items() if event == "began"}


def test_no_more_run_at_once_than_a_limit_allows_and_no_fewer(cluster: Cluster) -> None:
    cluster.client.limits.set("jobs", each_key=True, running=1)
    cluster.client.limits.set("jobs", key="b", running=2)
    allowed = {"a": 1, "b": 2}
    jobs = {job.id: job for job in (cluster.enqueue("gated", limit_key=key) for key in "aaaabbbb")}
    keys = dict(zip(jobs, "aaaabbbb", strict=True))
    left = set(jobs)
    while left:
        wanted = {key: min(most, sum(keys[task] == key for task in left)) for key, most in allowed.items()}

        def are_running(wanted: dict[str, int] = wanted) -> bool:
            return {key: sum(keys[task] == key for task in running(cluster) & left) for key in allowed} == wanted

        eventually(are_running, timeout=WITHIN, message=cluster.describe)
        for task in running(cluster) & left:
            cluster.open(jobs[task])
            left.discard(task)
    most = dict.fromkeys(allowed, 0)
    now: list[str] = []
    for job in jobs.values():
        cluster.done(job)
    for event in cluster.notes():
        if event["event"] == "began":
            now.append(keys[event["task"]])
        elif event["event"] == "ended":
            now.remove(keys[event["task"]])
        most = {key: max(number, now.count(key)) for key, number in most.items()}
    assert most == allowed


# ---------------------------------------------------------------- two versions of the users' code


def run_only(cluster: Cluster, *kinds: str) -> None:
    """Let the cluster have one process of each of these kinds."""
    for node in cluster.nodes:
        before = text = node.config.read_text()
        for kind in KINDS[node.name]:
            head, section, rest = text.partition(f"[workers.{kind}]\n")
            values, options, tail = rest.partition("[workers.")
            values = values.replace("enabled = false", "enabled = true")
            if kind not in kinds:
                values = values.replace("enabled = true", "enabled = false")
            text = head + section + values + options + tail
        if text != before:
            node.config.write_text(text)
            node.reload(config_only=True)
            eventually(node.is_complete, timeout=WITHIN, message=node.log_text)


def enqueue(cluster: Cluster, name: str, **body: object) -> Job:
    return cluster.client.enqueue("mixed", name=name, body=body)


def result(cluster: Cluster, job: Job) -> str:
    return str(json.loads(cluster.done(job).result or ""))


def released(cluster: Cluster, job: Job, why: str = "") -> str:
    """Wait until a task was released for this reason; the whole error."""

    def error() -> str | None:
        task = cluster.client.tasks.get(job.id)
        return task.error if task.status is Status.SCHEDULED and why in (task.error or "") else None

    return str(eventually(error, timeout=WITHIN, message=cluster.describe))


@pytest.mark.slow
def test_what_only_new_code_knows_waits_for_it_and_is_not_counted(cluster: Cluster) -> None:
    run_only(cluster, "old")
    tasks = [enqueue(cluster, "comes", n=n) for n in range(3)]
    apart = enqueue(cluster, "comes_apart")
    for job in (*tasks, apart):
        why = released(cluster, job, "no process of the cluster knows it: dead at")
        assert "no handler named 'comes" in why
        assert "its handlers are: goes, grows, steady" in why
    [finding] = [one for one in cluster.client.examine() if one.subject == "unknown tasks" and "'comes'" in one.message]
    assert finding.message.startswith("3 tasks are waiting for code that knows handler 'comes' of queue mixed")
    assert "task released for other code" in cluster.nodes[0].log_text()
    run_only(cluster, "old", "new")
    grown = [enqueue(cluster, "grows", n=n, by=5) for n in range(20)]
    plain = [enqueue(cluster, "grows", n=n) for n in range(20)]
    assert [result(cluster, job) for job in tasks] == ["new 0", "new 1", "new 2"]
    assert result(cluster, apart) == "new"
    assert [result(cluster, job) for job in grown] == [f"new {n + 5}" for n in range(20)]
    assert {result(cluster, job).split()[0] for job in plain} <= {"old", "new"}
    for job in (*tasks, *grown):
        assert cluster.client.tasks.get(job.id).attempts == 0
        assert {outcome for outcome, _ in cluster.outcomes(job)} <= {"unknown", "released"}


@pytest.mark.slow
def test_a_handler_or_arguments_that_no_process_knows_for_long_enough_make_a_task_dead_and_a_wrong_body_at_once(
    cluster: Cluster,
) -> None:
    run_only(cluster, "hasty")
    unknown, unfit = enqueue(cluster, "stedy", n=1), enqueue(cluster, "grows", n=7, of="x")
    assert "no handler named 'stedy'" in released(cluster, unknown)
    assert "no process of the cluster takes these arguments: dead at" in released(cluster, unfit)
    wrong = enqueue(cluster, "steady", n="seven")
    assert "unknown_after" not in str(cluster.wait_until(wrong, Status.DEAD).error)
    assert "none that does was there for 2s (unknown_after)" in str(cluster.wait_until(unknown, Status.DEAD).error)
    assert "(unknown_after)" in str(cluster.wait_until(unfit, Status.DEAD).error)
    outcomes = [outcome for outcome, _ in cluster.outcomes(unknown)]
    assert (set(outcomes[:-1]), outcomes[-1]) == ({"unknown"}, "dead")
    assert {cluster.client.tasks.get(job.id).attempts for job in (wrong, unfit)} == {1}
