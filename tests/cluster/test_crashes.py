"""What dies, and what becomes of its tasks: processes, masters, whole nodes."""

from __future__ import annotations

import json
import time

import pytest

from peerd.cli.cluster.nodes import node_state
from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, Cluster


@pytest.mark.one_database
def test_a_killed_workers_task_is_finished_by_another_process_long_before_max_update(each_cluster: Cluster) -> None:
    max_update = 60.0
    [node] = each_cluster.up("one", processes=2, manager={"max_update": max_update})
    job = each_cluster.enqueue("first_hangs")
    began = each_cluster.wait_for(job, "began")
    slot = next(slot for slot in ("jobs-1", "jobs-2") if node.pid(slot) == began["pid"])
    killed = time.monotonic()
    pid = node.kill(slot)
    task = each_cluster.done(job)
    assert time.monotonic() - killed < max_update / 2
    assert task.attempts == 1
    assert task.crashes == 1
    assert each_cluster.outcomes(job) == [("crash", "killed by SIGKILL")]
    assert job.refresh().result()["pid"] != pid
    eventually(node.replaced(slot, pid), timeout=WITHIN, message=node.log_text)


def test_the_record_of_a_killed_process_shows_how_it_died(cluster: Cluster) -> None:
    [node] = cluster.up("one")
    before = {process.slot: process.id for process in cluster.client.nodes.processes()}
    pid = node.kill("jobs-1")
    eventually(node.replaced("jobs-1", pid), timeout=WITHIN)
    eventually(lambda: {p.slot: p.id for p in cluster.client.nodes.processes()}["jobs-1"] != before["jobs-1"])
    records = {process.id: process for process in cluster.client.nodes.processes(ended=True)}
    assert records[before["jobs-1"]].cause == "killed by SIGKILL"


@pytest.mark.one_database
def test_a_killed_master_leaves_no_process_behind_and_loses_no_task(each_cluster: Cluster) -> None:
    one, _ = each_cluster.up("one", "two", node={"grace": "1s"})
    jobs = [each_cluster.enqueue("first_hangs", node="one") for _ in range(3)]
    for job in jobs:
        each_cluster.wait_for(job, "began")
    others = set(each_cluster.processes())
    one.kill_master()
    mine = others - {one.master.pid if one.master else 0}
    for job in jobs:
        each_cluster.client.tasks.move(job.id, "two")
    for job in jobs:
        assert each_cluster.done(job).lease > 1
    two_alone = {"agent", "manager", "jobs-1"}
    eventually(lambda: len(each_cluster.processes()) == 1 + len(two_alone), timeout=WITHIN, message=str(mine))


def test_a_node_whose_master_was_killed_is_silent_at_once_and_an_alert_is_sent(cluster: Cluster) -> None:
    file = cluster.folder / "alerts"
    hook = {"command": ["sh", "-c", f"cat >> {file}; echo >> {file}"]}
    node = cluster.node("one", sections={"alerts.all": hook}, manager={"inactive_after": "60s"}).up()
    [agent] = [process.id for process in cluster.client.nodes.processes() if process.slot == "agent"]
    node.kill_master()
    eventually(lambda: not cluster.processes(), timeout=WITHIN)
    records = {process.id: process for process in cluster.client.nodes.processes(ended=True)}
    assert records[agent].cause == "its master died"
    [row] = cluster.client.nodes.list()
    assert node_state(row) == "silent"
    alerts = [json.loads(line) for line in file.read_text().splitlines() if line]
    assert [(one["alert"], one["text"]) for one in alerts] == [
        ("master-died", "the master of one has died: its processes end; none is restarted until the node is")
    ]
    assert "the master has died; this node ends" in node.log_text()
    node.up()  # it need not wait until the earlier life has been silent for long
    assert node.stop() == 0
    assert node_state(cluster.client.nodes.list()[0]) == "stopped"


@pytest.mark.one_database
def test_a_nodes_tasks_are_finished_by_the_others_when_it_has_been_silent_for_max_update(each_cluster: Cluster) -> None:
    cluster = each_cluster
    one, two = cluster.up("one", "two", count=6)
    jobs = [cluster.enqueue("first_hangs") for _ in range(6)]
    for job in jobs:
        cluster.wait_for(job, "began")
    on_one = [job for job in jobs if cluster.notes(job)[0]["node"] == "one"]
    if not on_one:  # the other one was quicker to all of them
        one, two, on_one = two, one, jobs
    one.kill_all()
    killed = time.monotonic()
    for job in on_one:
        task = cluster.done(job)
        assert cluster.outcomes(job)[0][0] == "rescued"
        assert task.attempts == 1
    assert time.monotonic() - killed > MAX_UPDATE - 1
    names = {node.name: node.active for node in cluster.client.nodes.list()}
    assert names == {one.name: False, two.name: True}


def test_a_node_started_again_after_a_power_cut_waits_out_the_silence_and_rescues_its_own_tasks(
    cluster: Cluster,
) -> None:
    [node] = cluster.up("one", manager={"inactive_after": "12s"})  # longer than a start
    job = cluster.enqueue("first_hangs")
    cluster.wait_for(job, "began")
    node.kill_all()
    node.up()
    assert "an earlier incarnation of this node may still run" in node.log_text()
    task = cluster.done(job)
    assert task.attempts == 1
    assert [outcome for outcome, _ in cluster.outcomes(job)] == ["rescued"]


@pytest.mark.one_database
def test_a_master_started_again_takes_nothing_from_workers_that_finish_for_the_killed_one(
    each_cluster: Cluster,
) -> None:
    [node] = each_cluster.up("one", node={"grace": "60s"})
    job = each_cluster.enqueue("gated")
    each_cluster.wait_for(job, "began")
    node.kill_master()
    node.up()
    assert each_cluster.client.tasks.get(job.id).status is Status.WORKING
    each_cluster.open(job)
    assert each_cluster.done(job).lease == 1
    assert each_cluster.outcomes(job) == []


def test_a_second_living_node_of_a_name_is_refused(cluster: Cluster) -> None:
    [node] = cluster.up("one")
    second = cluster.node("one", node={"run_directory": str(cluster.folder / "elsewhere")})
    log_text = len(second.log_text())
    assert second.start().master.wait(WITHIN) == 3  # type: ignore[union-attr]
    assert second.log_text()[log_text:].count("a node named 'one' is alive already") == 1, "in one line"
    assert "Traceback" not in second.log_text()[log_text:]
    assert node.state() == "running"
    cluster.done(cluster.enqueue("quick"))


def test_a_killed_agent_is_replaced_and_the_node_keeps_its_heartbeat_and_incarnation(cluster: Cluster) -> None:
    [node] = cluster.up("one")
    job = cluster.enqueue("gated")
    cluster.wait_for(job, "began")
    [before] = cluster.client.nodes.list()
    worker = node.pid("jobs-1")
    agent = node.kill("agent")
    eventually(node.replaced("agent", agent), timeout=WITHIN)
    seen = cluster.client.nodes.list()[0].checked_at
    after = eventually(lambda: [one for one in cluster.client.nodes.list() if one.checked_at != seen], timeout=WITHIN)
    assert after[0].incarnation == before.incarnation
    assert node.pid("jobs-1") == worker
    cluster.open(job)
    assert cluster.done(job).attempts == 0
    assert cluster.outcomes(job) == []


def test_a_death_that_no_agent_received_is_reported_to_the_next_one(cluster: Cluster) -> None:
    [node] = cluster.up("one", manager={"max_update": "60s"})
    job = cluster.enqueue("first_hangs")
    cluster.wait_for(job, "began")
    node.kill("agent")
    node.kill("jobs-1")
    cluster.done(job)
    assert cluster.outcomes(job) == [("crash", "killed by SIGKILL")]


def test_a_killed_manager_is_replaced_and_retries_go_on(cluster: Cluster) -> None:
    [node] = cluster.up("one")
    manager = node.kill("manager")
    later = cluster.enqueue("quick", start_in=0.5)
    eventually(node.replaced("manager", manager), timeout=WITHIN)
    cluster.done(later)


def test_a_process_frozen_beyond_max_update_can_change_nothing_when_it_thaws(cluster: Cluster) -> None:
    one, two = cluster.up("one", "two", count=1)
    job = cluster.enqueue("first_hangs")
    frozen = cluster.claiming_node(job)
    cluster.wait_for(job, "began")
    worker = frozen.pid("jobs-1")
    cluster.freeze([worker])
    try:
        task = cluster.done(job)
        assert cluster.outcomes(job) == [("rescued", f"the task was not touched for {MAX_UPDATE:g} s")]
        cluster.open(job)  # it would end, and write, as soon as it continues
    finally:
        cluster.thaw([worker])
    eventually(lambda: "the claim of a task was lost" in frozen.log_text(), timeout=WITHIN, message=frozen.log_text)
    assert cluster.client.tasks.get(job.id) == task
    assert job.refresh().result()["lease"] == 2
    assert {one.state(), two.state()} == {"running"}


def test_the_handler_of_a_thawed_process_is_cancelled(cluster: Cluster) -> None:
    cluster.up("one", "two", count=1)
    job = cluster.enqueue("first_hangs")
    frozen = cluster.claiming_node(job)
    cluster.wait_for(job, "began")
    worker = frozen.pid("jobs-1")
    cluster.freeze([worker])
    try:
        cluster.done(job)
    finally:
        cluster.thaw([worker])
    assert cluster.wait_for(job, "cancelled")["lease"] == 1
    assert cluster.client.tasks.get(job.id).status is Status.DONE


def test_a_task_that_keeps_killing_its_process_ends_as_dead_with_the_cause(cluster: Cluster) -> None:
    [node] = cluster.up("one", processes=2)
    job = cluster.enqueue("poison", body={"times": 100}, max_attempts=2)
    task = cluster.wait_until(job, Status.DEAD)
    assert task.crashes == 2
    assert cluster.outcomes(job) == [("crash", "killed by SIGKILL")] * 2
    assert "killed by SIGKILL" in (task.error or "")
    cluster.done(cluster.enqueue("quick"))
    assert node.state() == "running"
