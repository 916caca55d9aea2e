"""Schedules on real nodes: which process runs a tick, and how the run ends when agents, workers and nodes die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from peerd.domain.errors import ScheduleNameTaken, ScheduleNotStored
from peerd.domain.ring import SchedulesChanged
from peerd.domain.schedule import RunStatus
from peerd.store.schedule_runs import ScheduleRun
from peerd.store.schema.tables import stored_schedules
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode

NOTES = {"run": "scheduled:notes", "interval": "300ms"}
GATED = {"run": "scheduled:gated", "interval": "1h", "immediate": True}


def ran(cluster: Cluster, schedule: str | None = None) -> list[dict[str, Any]]:
    return [event for event in cluster.notes(event="scheduled") if schedule in (None, event["schedule"])]


def runs(cluster: Cluster, schedule: str) -> list[ScheduleRun]:
    """The oldest first."""
    return cluster.client.schedules.runs(schedule, limit=1000)[::-1]


def until_runs(cluster: Cluster, schedule: str, *statuses: str) -> list[ScheduleRun]:
    def runs_with_statuses() -> list[ScheduleRun] | None:
        found = runs(cluster, schedule)
        return found if [str(run.status) for run in found] == list(statuses) else None

    found = eventually(
        runs_with_statuses, timeout=WITHIN, message=lambda: f"{runs(cluster, schedule)} {cluster.describe()}"
    )
    assert found is not None
    return found


def peerd(node: ClusterNode, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peerd", *words, "--config", str(node.config)]
    return subprocess.run(
        command,
        cwd=node.cluster.folder,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
        env={**os.environ},
    )


def test_each_type_of_schedule_is_run_by_those_that_it_is_for(cluster: Cluster) -> None:
    schedules = {
        "everywhere": {**NOTES, "type": "all"},
        "each": {**NOTES, "type": "worker"},
        "once": {**NOTES, "cron": "* * * * * *"},
        "task": {"queue": "jobs", "task": "quick", "interval": "300ms"},
    }
    del schedules["once"]["interval"]
    cluster.up("one", "two", processes=2, schedules=schedules)
    enough = {"everywhere": 12, "each": 6, "once": 3}
    eventually(
        lambda: all(len(ran(cluster, name)) >= count for name, count in enough.items()),
        timeout=WITHIN,
        message=cluster.describe,
    )
    processes = {name: {(event["node"], event["slot"]) for event in ran(cluster, name)} for name in enough}
    everyone = {(node, slot) for node in ("one", "two") for slot in ("jobs-1", "jobs-2")}
    assert processes["everywhere"] == everyone
    assert {node for node, _ in processes["each"]} == {"one", "two"}
    per_tick = Counter(event["tick"] for event in ran(cluster, "once"))
    assert set(per_tick.values()) == {1}, "a tick of the cluster is run once"
    tasks = [run.task_id for run in runs(cluster, "task") if run.status is RunStatus.ENQUEUED]
    assert len(tasks) == len(set(tasks)) > 0
    eventually(lambda: cluster.notes(event="ran"), timeout=WITHIN)


def test_a_killed_agent_repeats_no_immediate_run_and_the_next_one_receives_its_end(cluster: Cluster) -> None:
    [node] = cluster.up(
        "one",
        manager={"inactive_after": "60s"},  # however slowly the next agent boots, the node has not fallen silent
        schedules={"slow": {**GATED, "type": "worker"}},
    )
    until_runs(cluster, "slow", "running")
    eventually(lambda: ran(cluster), timeout=WITHIN)
    agent = node.kill("agent")
    eventually(node.replaced("agent", agent), timeout=WITHIN, message=node.log_text)
    (cluster.folder / "gates" / "slow").touch()
    until_runs(cluster, "slow", "done")
    assert len(ran(cluster)) == 1


def test_a_killed_worker_ends_its_run_with_the_cause(cluster: Cluster) -> None:
    [node] = cluster.up("one", schedules={"slow": GATED})
    eventually(lambda: ran(cluster), timeout=WITHIN, message=cluster.describe)
    node.kill("jobs-1")
    [run] = until_runs(cluster, "slow", "died")
    assert "SIGKILL" in (run.error or "")


def test_a_stopping_node_lets_its_run_end_within_the_grace_and_cancels_it_beyond(cluster: Cluster) -> None:
    [node] = cluster.up("one", node={"grace": "500ms"}, schedules={"slow": GATED})
    eventually(lambda: ran(cluster), timeout=WITHIN, message=cluster.describe)
    assert node.stop() == 0
    [run] = runs(cluster, "slow")
    assert run.status is RunStatus.CANCELED


@pytest.mark.slow
def test_a_run_of_a_lost_node_is_run_again_by_another(cluster: Cluster) -> None:
    schedules = {"slow": {**GATED, "misfire": "run_once"}}
    first = cluster.node("one", schedules=schedules).up()
    eventually(lambda: ran(cluster), timeout=WITHIN, message=cluster.describe)
    cluster.node("two", schedules=schedules).up()
    first.kill_all()
    (cluster.folder / "gates" / "slow").touch()
    lost, again = until_runs(cluster, "slow", "lost", "done")
    assert (again.origin, again.number, again.tick_at) == ("again", 2, lost.tick_at)
    assert [event["node"] for event in ran(cluster)] == ["one", "two"]


def test_what_fails_is_logged_and_ticks_again_until_it_is_disabled(cluster: Cluster) -> None:
    [node] = cluster.up("one", schedules={"bad": {"run": "scheduled:fails", "interval": "200ms"}})
    eventually(lambda: len(ran(cluster)) >= 3, timeout=WITHIN, message=cluster.describe)
    assert "OSError: no disk" in node.log_text()
    pid = node.pid("jobs-1")
    cluster.client.schedules.disable("bad")

    def has_no_new_runs() -> bool:
        """No tick has come for longer than the agent needs to notice the change."""
        latest = runs(cluster, "bad")[-1]
        return latest.status is RunStatus.FAILED and (cluster.client.now() - latest.created_at).total_seconds() > 2

    eventually(has_no_new_runs, timeout=WITHIN)
    assert node.pid("jobs-1") == pid, "it does its process no harm"
    count = len(runs(cluster, "bad"))
    by_hand = peerd(node, "schedules", "run", "bad", "--json")
    assert by_hand.returncode == 1
    assert json.loads(by_hand.stdout)["error"] == "OSError: no disk"
    assert len(runs(cluster, "bad")) == count + 1


def test_a_run_by_hand_is_waited_for_and_its_arguments_arrive(cluster: Cluster) -> None:
    schedules = {"report": {"run": "scheduled:notes", "cron": "0 0 1 1 *", "enabled": False}}
    [node] = cluster.up("one", schedules=schedules)
    done = peerd(node, "schedules", "run", "report", '{"day": 3}')
    assert done.returncode == 0, done.stderr
    assert "done in jobs-1" in done.stdout
    assert [event["args"] for event in ran(cluster)] == [[{"day": 3}]]


def test_the_agents_setup_registers_schedules(cluster: Cluster) -> None:
    unwanted = {"unwanted": {**NOTES, "immediate": True}}
    [node] = cluster.up("one", sections={"agent": {"setup": "scheduled:setup"}}, schedules=unwanted)
    until_runs(cluster, "registered", "done")
    assert not runs(cluster, "unwanted"), "it was taken out again"
    pid = node.signal_slot("agent", signal.SIGKILL)
    eventually(node.replaced("agent", pid), timeout=WITHIN, message=node.log_text)
    assert peerd(node, "schedules", "run", "registered").returncode == 0
    assert [run.origin for run in runs(cluster, "registered")] == ["start", "hand"]


def test_a_type_of_the_users_decides_by_itself_and_one_that_cannot_be_made_disturbs_no_other(cluster: Cluster) -> None:
    own = {"run": "scheduled:notes", "overlap": "allow"}
    schedules = {
        "tide": {**own, "type": "scheduled:Tide", "args": ["Husum"]},
        "dry": {**own, "type": "scheduled:Dry"},
        "far": {"run": "scheduled:notes", "interval": "100d", "immediate": True, "type": "all"},
        "once": {"run": "scheduled:notes", "immediate": True},
        "here": {"run": "scheduled:notes", "immediate": True, "environments": ["testing", "staging"]},
        "elsewhere": {**NOTES, "immediate": True, "environments": ["production"]},
    }
    cluster.environment["PEERD_NODE_ENVIRONMENT"] = "testing"  # which counts before the file
    [node] = cluster.up("one", processes=2, schedules=schedules, node={"environment": "production"})
    until_runs(cluster, "tide", *["done"] * 3)
    until_runs(cluster, "far", *["done"] * 2)
    until_runs(cluster, "once", "done")
    until_runs(cluster, "here", "done")
    sent = sorted((event["args"][1], event["slot"]) for event in ran(cluster, "tide"))
    assert sent[:2] == [("all", "jobs-1"), ("all", "jobs-2")]
    assert sent[2][0] == "one"
    assert {event["args"][0] for event in ran(cluster, "tide")} == {"Husum"}
    assert "there is no sea" in peerd(node, "schedules", "list", "--json").stdout
    assert not runs(cluster, "elsewhere")
    missing = peerd(node, "schedules", "run", "unknown")
    assert (missing.returncode, "unknown" in missing.stderr) == (1, True)
    assert node.stop() == 0


def test_runs_that_overlap_are_skipped_queued_or_allowed(cluster: Cluster) -> None:
    often = {"run": "scheduled:gated", "interval": "200ms", "type": "worker"}
    schedules = {policy: {**often, "overlap": policy} for policy in ("skip", "queue", "allow")}
    [node] = cluster.up("one", schedules=schedules)
    eventually(lambda: len(ran(cluster, "allow")) >= 3, timeout=WITHIN, message=cluster.describe)
    for name, status in {"skip": RunStatus.SKIPPED, "queue": RunStatus.WAITING}.items():
        eventually(lambda: status in {run.status for run in runs(cluster, name)}, timeout=WITHIN)  # noqa: B023 - at once
    assert (len(ran(cluster, "skip")), len(ran(cluster, "queue"))) == (1, 1)
    (cluster.folder / "gates" / "queue").touch()
    eventually(lambda: len(ran(cluster, "queue")) >= 2, timeout=WITHIN, message=cluster.describe)
    for name in ("skip", "allow"):
        (cluster.folder / "gates" / name).touch()
    assert node.stop() == 0


def test_a_function_that_does_not_return_after_its_timeout_ends_with_its_process(cluster: Cluster) -> None:
    [node] = cluster.up(
        "one",
        grace="500ms",
        timeout_grace="300ms",
        schedules={"report": {**GATED, "run": "scheduled:deaf", "type": "worker", "timeout": "200ms"}},
    )
    eventually(lambda: ran(cluster), timeout=WITHIN, message=cluster.describe)
    [event] = ran(cluster)
    [run] = until_runs(cluster, "report", "died")
    reason = f"schedule report (run {run.id}) did not return within 300ms after its timeout of 200ms"
    assert run.error == f"its process died: tainted (exit status 70): {reason}"
    assert not psutil.pid_exists(event["pid"])
    eventually(lambda: f"is tainted: {reason}" in node.log_text(), timeout=WITHIN, message=node.log_text)
    assert " in deaf" in node.log_text(), "it shows where it was"
    cluster.done(cluster.enqueue("quick"))
    (cluster.folder / "gates" / "report").touch()
    assert peerd(node, "schedules", "run", "report").returncode == 0, "it runs again in the replacement"
    assert node.stop() == 0


def test_a_run_by_hand_in_all_processes_has_failed_where_one_of_them_has(cluster: Cluster) -> None:
    some = {"run": "scheduled:fails_in_some", "interval": "1h", "type": "all"}
    every = {"run": "scheduled:notes", "interval": "1h", "type": "all"}
    [node] = cluster.up("one", processes=4, schedules={"some": some, "every": every})

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "peerd", "schedules", "run", *words, "--config", str(node.config)]
        return subprocess.run(command, cwd=cluster.folder, capture_output=True, text=True, timeout=WITHIN, check=False)

    log_text = run("some")
    assert log_text.returncode == 1, log_text
    assert "failed in 2 of 4 processes" in log_text.stdout
    for slot in ("jobs-2", "jobs-4"):
        assert f"failed in {slot}: OSError: no disk in {slot}" in log_text.stdout
    answer = run("some", "--json")
    assert answer.returncode == 1
    result = json.loads(answer.stdout)
    assert (result["status"], result["failed"]) == ("failed", ["jobs-2", "jobs-4"])
    assert sorted((one["slot"], one["status"]) for one in result["processes"]) == [
        ("jobs-1", "done"),
        ("jobs-2", "failed"),
        ("jobs-3", "done"),
        ("jobs-4", "failed"),
    ]
    log_text = run("every")
    assert log_text.returncode == 0, log_text
    assert "done in 4 processes" in log_text.stdout


@pytest.mark.timeout(300)
@pytest.mark.one_database
def test_a_schedule_that_is_created_at_run_time_ticks_once_in_the_cluster_until_it_is_deleted(
    each_cluster: Cluster,
) -> None:
    """Without a ring: the client has no secret, so the nodes find the change within ten seconds."""
    nodes = each_cluster.up("one", "two", sections={"cluster": {"secret": "a secret that all nodes share"}})
    schedules = each_cluster.client.schedules
    schedules.create("tidy", queue="jobs", task="quick", body={"n": 3}, interval="500ms", overlap="allow")

    def ticks() -> list[ScheduleRun]:
        return [run for run in runs(each_cluster, "tidy") if run.status is RunStatus.ENQUEUED]

    eventually(lambda: len(ticks()) >= 3, timeout=WITHIN, message=each_cluster.describe)
    eventually(lambda: {node.node for node in schedules.get("tidy").nodes} == {"one", "two"}, WITHIN, every=0.2)
    state = schedules.get("tidy")
    assert (state.is_stored, state.state) == (True, "on")
    for node in nodes:
        node.stop()
    before = len(ticks())
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_until_running()
    eventually(lambda: len(ticks()) >= before + 3, WITHIN, every=0.2, message=each_cluster.describe)
    assert max(Counter(run.tick_at for run in runs(each_cluster, "tidy")).values()) == 1

    schedules.delete("tidy")
    assert schedules.list() == []
    ended = len(runs(each_cluster, "tidy"))
    schedules.create("other", queue="jobs", task="quick", interval="500ms", overlap="allow")
    eventually(lambda: len(runs(each_cluster, "other")) > 2, timeout=WITHIN, message=each_cluster.describe)
    assert len(runs(each_cluster, "tidy")) == ended
    schedules.create("tidy", queue="jobs", task="quick", interval="500ms", overlap="allow")  # of the same name
    eventually(lambda: len(runs(each_cluster, "tidy")) > ended, timeout=WITHIN, message=each_cluster.describe)


def test_a_schedule_of_peerd_toml_is_not_created_or_deleted_at_run_time(cluster: Cluster) -> None:
    cluster.up("one", schedules={"refresh": NOTES})
    eventually(lambda: ran(cluster), timeout=WITHIN, message=cluster.describe)
    schedules = cluster.client.schedules
    with pytest.raises(ScheduleNameTaken, match=r"in peerd\.toml of one"):
        schedules.create("refresh", queue="jobs", interval="10s")
    with pytest.raises(ScheduleNotStored):
        schedules.delete("refresh")
    row = sa.insert(stored_schedules).values(
        name="refresh", definition='{"name":"refresh","queue":"jobs","task":"quick","interval":0.2}'
    )
    cluster.client.database.run(lambda connection: connection.execute(row).rowcount)  # past the check
    cluster.client.notifier.ring(SchedulesChanged())
    eventually(
        lambda: "peerd.toml of this node has this name too" in cluster.nodes[0].log_text(),
        timeout=WITHIN,
        message=cluster.describe,
    )
    assert cluster.client.tasks.list() == []
