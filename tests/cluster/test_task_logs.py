"""Log lines of tasks on real nodes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from peerd import Job
from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode

TALKING = Path(__file__).parent / "talking.py"


def node_that_talks(cluster: Cluster, **settings: object) -> ClusterNode:
    shutil.copy(TALKING, cluster.folder / TALKING.name)
    return cluster.node("one", workers={"jobs": {**WORKER, "tasks": "talking:talking", **settings}}).up()


def messages(cluster: Cluster, job: Job) -> list[str]:
    return [line.message for line in cluster.client.tasks.logs(job.id, limit=1000).items]


def test_lines_of_every_kind_of_handler_are_kept_and_still_in_the_log_of_the_node(cluster: Cluster) -> None:
    node = node_that_talks(cluster)
    jobs = {name: cluster.client.enqueue("talking", name=name) for name in ("coroutine", "thread", "process")}
    for name, job in jobs.items():
        cluster.done(job)
        eventually(lambda job=job: messages(cluster, job), timeout=WITHIN)  # type: ignore[misc]
        assert messages(cluster, job)[0] == f"printed by a {name} of task {job.id}"
    assert messages(cluster, jobs["coroutine"])[1:] == ["logged by a coroutine", "bound"]
    assert messages(cluster, jobs["process"])[1:] == ["bound"]
    log = node.log_text()
    for name, job in jobs.items():
        assert log.count(f"printed by a {name} of task {job.id}") == 1
    assert log.count("logged by a coroutine") == 1
    assert log.count("bound  ") == 2
    assert "attempt_log" not in log


def test_a_killed_process_has_written_its_lines_but_those_of_the_last_seconds(cluster: Cluster) -> None:
    node = node_that_talks(cluster)
    job = cluster.client.enqueue("talking", name="is_killed")
    eventually(lambda: messages(cluster, job) == ["long before"], timeout=WITHIN)
    node.signal_slot("jobs-1", signal.SIGKILL)
    cluster.wait_until(job, Status.DEAD)
    assert messages(cluster, job) == ["long before"]


def test_a_stop_writes_the_lines_of_what_it_has_ended(cluster: Cluster) -> None:
    node = node_that_talks(cluster, grace=0)
    job = cluster.client.enqueue("talking", name="stops")
    eventually(lambda: "line 20\n" in node.log_text(), timeout=WITHIN)
    assert node.stop() == 0
    printed = [line for line in node.log_text().splitlines() if line.startswith("line ")]
    assert messages(cluster, job) == printed, "all of them"


def test_a_worker_can_keep_none(cluster: Cluster) -> None:
    node_that_talks(cluster, log_lines=False)
    job = cluster.client.enqueue("talking", name="coroutine")
    cluster.done(job)
    later = cluster.client.enqueue("talking", name="waits")
    cluster.done(later)
    assert messages(cluster, job) == []
