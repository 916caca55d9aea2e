"""Masters and whole nodes that die or freeze, and what becomes of their tasks. Two nodes for all."""

from __future__ import annotations

import json
import time

import pytest
import sqlalchemy as sa

from peerd.domain.alert import AlertState
from peerd.domain.bulk import BulkAction, BulkRetry, BulkState
from peerd.domain.lifecycle import Status
from peerd.operate.task_filter import TaskFilter
from peerd.store.schema.tables import tasks
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster

NUMBER = 500
"""Tasks of the bulk action."""
SMALL_CHUNKS = {"batch": 5, "inactive_after": "15s"}


def add_node(cluster: Cluster, name: str, **node: str) -> ClusterNode:
    workers = {"jobs": {**WORKER, "count": 6}, "held": cluster.worker("held", grace="60s")}
    alerts = {"alerts.all": {"command": ["sh", "-c", "cat >> alerts; echo >> alerts"]}}
    return cluster.node(name, workers=workers, node={"grace": "1s", **node}, manager=SMALL_CHUNKS, sections=alerts)


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("mysql")
    for name in ("one", "two"):
        add_node(cluster, name).up()
    return cluster


def test_a_process_frozen_beyond_max_update_can_change_nothing_when_it_thaws_and_its_handlers_are_canceled(
    cluster: Cluster,
) -> None:
    node = cluster.nodes[0]
    cluster.client.nodes.drain("two")
    ends, goes_on = [cluster.enqueue("first_hangs") for _ in range(2)]
    for job in (ends, goes_on):
        cluster.wait_for(job, "began")
    cluster.client.nodes.undrain("two")
    worker = node.pid("jobs-1")
    cluster.freeze([worker])
    try:
        found = {job: cluster.done(job) for job in (ends, goes_on)}
        for job in found:
            assert cluster.outcomes(job) == [("rescued", f"the task was not touched for {MAX_UPDATE:g} s")]
        cluster.open(ends)  # it would end, and write, as soon as it continues
    finally:
        cluster.thaw([worker])
    eventually(lambda: "the claim of a task was lost" in node.log_text(), timeout=WITHIN, message=node.log_text)
    assert cluster.wait_for(goes_on, "cancelled")["lease"] == 1
    for job, task in found.items():
        assert cluster.client.tasks.get(job.id) == task
        assert job.refresh().result()["lease"] == 2
    assert {one.state() for one in cluster.nodes} == {"running"}


def test_a_killed_master_leaves_no_process_behind_loses_no_task_and_is_reported_at_once(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    hanging = cluster.enqueue("first_hangs", node="one")
    held = cluster.enqueue("gated", "held", node="one")
    for job in (hanging, held):
        cluster.wait_for(job, "began")
    holder = cluster.notes(held)[0]["pid"]
    mine = set(node.all_pids())
    [agent] = [process.id for process in cluster.client.nodes.processes() if process.pid == node.pid("agent")]
    node.kill_master()
    cluster.client.tasks.move(hanging.id, "two")
    assert cluster.done(hanging).lease > 1
    eventually(lambda: mine & set(cluster.processes()) <= {holder}, timeout=WITHIN, message=cluster.describe)
    records = {process.id: process for process in cluster.client.nodes.processes(ended=True)}
    assert records[agent].cause == "its master died"

    def alerts() -> list[str]:
        file = cluster.folder / "alerts"
        lines = [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []
        return [one["text"] for one in lines if one["alert"] == "master-died"]

    told = "the master of one has died: its processes end; none is restarted until the node is"
    eventually(lambda: alerts() == [told], timeout=WITHIN, message=node.log_text)

    node.up()  # it need not wait until the earlier life has been silent for long
    assert cluster.client.tasks.get(held.id).status is Status.WORKING, "the worker finishes for the killed master"
    cluster.open(held)
    assert (cluster.done(held).lease, cluster.outcomes(held)) == (1, [])
    eventually(lambda: set(cluster.processes()) == {pid for one in cluster.nodes for pid in one.all_pids()}, WITHIN)


@pytest.mark.slow
def test_a_second_node_of_a_name_is_refused_while_the_first_lives_and_replaces_it_while_it_is_frozen(
    cluster: Cluster,
) -> None:
    old = cluster.nodes[1]
    new = add_node(cluster, "two", run_directory=str(cluster.folder / "elsewhere"))
    refused = new.start().master
    assert refused is not None
    assert refused.wait(WITHIN) == 3
    assert new.log_text().count("a node named 'two' is alive already") == 1, "in one line"
    assert "Traceback" not in new.log_text()
    assert old.state() == "running"

    job = cluster.enqueue("first_hangs", node="two")
    cluster.wait_for(job, "began")
    all_pids = old.all_pids()
    cluster.freeze(all_pids)
    try:
        new.up()
        task = cluster.done(job)
    finally:
        cluster.thaw(all_pids)
    assert old.master is not None
    assert old.master.wait(WITHIN) == 0
    assert "this node was replaced, and stops" in old.log_text()
    assert new.state() == "running"
    assert cluster.client.tasks.get(job.id) == task
    cluster.nodes.remove(old)


def test_what_a_node_without_power_had_begun_is_finished_by_the_other_and_nothing_is_done_twice(
    cluster: Cluster,
) -> None:
    one, two = cluster.nodes
    client = cluster.client
    client.nodes.drain("two")
    hanging = cluster.enqueue("first_hangs")
    cluster.wait_for(hanging, "began")
    client.nodes.undrain("two")
    of_two = cluster.enqueue("gated", "held", node="two")
    backlog = [cluster.enqueue("gated") for _ in range(20)]
    rows = [{"queue": "nobody-serves-it", "status": "dead", "lease": number} for number in range(NUMBER)]
    client.database.run(lambda connection: connection.execute(sa.insert(tasks), rows).rowcount)
    bulk = client.bulk.create(BulkRetry(), TaskFilter(status="dead"))

    def progress() -> BulkAction:
        return client.bulk.get(bulk.id)

    for done, node in ((50, one), (100, two), (150, None)):
        eventually(lambda done=done: progress().done >= done, timeout=WITHIN, message=cluster.describe)  # type: ignore[misc]
        if node:
            node.kill("manager")
    one.kill_all()
    killed = time.monotonic()
    assert progress().state is BulkState.RUNNING, "it was killed in the middle"
    cluster.wait_until(hanging, Status.PENDING)
    of_nodes = {job.id: note["node"] for job in backlog for note in cluster.notes(job, "began")}
    cluster.open(next(job for job in backlog if of_nodes.get(job.id) == "two"))
    assert cluster.done(hanging).attempts == 1, "it goes before the backlog, which takes each slot until it is opened"
    for job in backlog:
        cluster.open(job)
    assert [outcome for outcome, _ in cluster.outcomes(hanging)] == ["rescued"]
    assert time.monotonic() - killed > MAX_UPDATE - 1
    cluster.open(of_two)
    assert cluster.done(of_two).lease == 1

    eventually(lambda: progress().has_ended, timeout=WITHIN, message=cluster.describe)
    ended = progress()
    assert (ended.state, ended.done, ended.skipped, ended.failed) == (BulkState.DONE, NUMBER, 0, 0)
    retried = client.tasks.list(queue="nobody-serves-it", limit=NUMBER)
    assert {str(task.status) for task in retried} == {"pending"}
    assert sorted(task.lease for task in retried) == [number + 1 for number in range(NUMBER)], "each was retried once"

    def silence() -> list[tuple[str | None, str]]:
        alerts = client.alerts.list(kinds=["inactive-nodes"]).items
        return [(alert.node, alert.text) for alert in alerts if (alert.state, alert.subject) == (AlertState.ON, "one")]

    eventually(
        lambda: silence() == [("two", "one fell silent; see the machine and its log: others take its tasks")],
        timeout=WITHIN,
        message=two.log_text,
    )
    assert {node.name: node.state for node in client.statistics.overview().nodes} == {"one": "silent", "two": "active"}
