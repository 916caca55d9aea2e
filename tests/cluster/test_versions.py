"""Two versions of the users' code in one cluster, as while it is deployed on one node after another."""

from __future__ import annotations

import json

import pytest

from peerd import Job, Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster
from tests.cluster.conftest import MakeCluster

pytestmark = pytest.mark.slow
KINDS = {"one": {"old": "1h", "hasty": "2s"}, "two": {"new": "1h", "strict": "4s"}}
"""Of each node, with old and new code: kinds of processes, and how long a handler may be unknown to them."""
VERSIONS = {"one": "old", "two": "new"}


def add_node(cluster: Cluster, name: str) -> None:
    worker = {**WORKER, "tasks": f"versions_{VERSIONS[name]}:mixed"}
    cluster.up(name, workers={kind: {**worker, "unknown_after": after} for kind, after in KINDS[name].items()})


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    """The cluster before new code is deployed: what a process has known is known for long."""
    cluster = module_cluster("postgresql")
    cluster.copy("versions_old.py", "versions_new.py")
    add_node(cluster, "one")
    return cluster


def run_only(cluster: Cluster, *kinds: str) -> None:
    """Let the cluster have one process of each of these kinds."""
    if set(KINDS["two"]) & set(kinds) and len(cluster.nodes) == 1:
        add_node(cluster, "two")
    for node in cluster.nodes:
        for kind in KINDS[node.name]:
            node.scale(kind, int(kind in kinds))


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


def test_what_only_old_code_knew_is_finished_by_it_while_it_is_there(cluster: Cluster) -> None:
    run_only(cluster, "new")
    job = enqueue(cluster, "goes")
    released(cluster, job)
    run_only(cluster, "old", "new")
    assert result(cluster, job) == "old"


def test_a_handler_that_no_process_knows_for_long_enough_makes_its_task_dead(cluster: Cluster) -> None:
    run_only(cluster, "hasty")
    job = enqueue(cluster, "stedy", n=1)
    assert "no handler named 'stedy'" in released(cluster, job)
    dead = cluster.wait_until(job, Status.DEAD)
    assert "none that does was there for 2s (unknown_after)" in str(dead.error)
    outcomes = [outcome for outcome, _ in cluster.outcomes(job)]
    assert (set(outcomes[:-1]), outcomes[-1]) == ({"unknown"}, "dead")


def test_a_body_that_is_wrong_is_dead_at_once_and_one_for_other_code_only_after_a_while(cluster: Cluster) -> None:
    run_only(cluster, "strict")
    wrong = [enqueue(cluster, "steady", n="seven"), cluster.client.enqueue("mixed", name="grows", text="[7]")]
    others = [enqueue(cluster, "grows", m=7), enqueue(cluster, "grows"), enqueue(cluster, "grows", n=7, of="x")]
    for job in others:
        assert "no process of the cluster takes these arguments: dead at" in released(cluster, job)
    for job in wrong:
        assert "unknown_after" not in str(cluster.wait_until(job, Status.DEAD, within=5.0).error)
    for job in others:
        assert "(unknown_after)" in str(cluster.wait_until(job, Status.DEAD).error)
    assert {cluster.client.tasks.get(job.id).attempts for job in (*wrong, *others)} == {1}
