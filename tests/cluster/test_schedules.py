"""Schedules on real nodes: which process runs a tick, and how the run ends when agents, workers and nodes die."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.cluster.conftest import MakeCluster

NOTES: dict[str, Any] = {"run": "scheduled:notes", "interval": "300ms"}
GATED: dict[str, Any] = {"run": "scheduled:gated", "interval": "1h"}
HERE = {"run": "scheduled:notes", "immediate": True}
SCHEDULES: dict[str, dict[str, Any]] = {
    "everywhere": {**NOTES, "type": "all"},
    "each": {**NOTES, "type": "worker"},
    "once": {"run": "scheduled:notes", "cron": "* * * * * *"},
    "task": {"queue": "jobs", "task": "quick", "interval": "300ms"},
    "bad": {"run": "scheduled:fails", "interval": "200ms"},
    "report": {"run": "scheduled:notes", "cron": "0 0 1 1 *", "enabled": False},
    "dies": GATED,
    "lost": {**GATED, "interval": "3s", "misfire": "run_once"},
}
SKIPPING = {"run": "scheduled:gated", "interval": "200ms", "type": "worker"}
OF_ONE: dict[str, dict[str, Any]] = {
    **{policy: {**SKIPPING, "overlap": policy} for policy in ("skip", "queue", "allow")},
    "some": {"run": "scheduled:fails_in_some", "interval": "1h", "type": "all"},
    "every": {"run": "scheduled:notes", "interval": "1h", "type": "all"},
    "unwanted": {**NOTES, "immediate": True},
    "slow": {**GATED, "immediate": True, "type": "worker"},
    "deaf": {"run": "scheduled:deaf", "interval": "1h", "type": "worker", "timeout": "200ms"},
    "tide": {"run": "scheduled:notes", "overlap": "allow", "type": "scheduled:Tide", "args": ["Husum"]},
    "dry": {"run": "scheduled:notes", "overlap": "allow", "type": "scheduled:Dry"},
    "far": {**HERE, "interval": "100d", "type": "all"},
    "first": HERE,
    "here": {**HERE, "environments": ["testing", "staging"]},
    "elsewhere": {**HERE, "interval": "300ms", "environments": ["production"]},
}
"""In addition, and only on the first node."""
TICKING = ("everywhere", "each", "once", "task", "bad", "lost", "skip", "queue", "allow")
"""They are disabled by hand until a test wants them."""


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("sqlite")
    patient = {"inactive_after": "10s"}  # an agent that boots slowly has not fallen silent
    common: dict[str, Any] = {"processes": 2, "timeout_grace": "300ms", "grace": "500ms", "manager": patient}
    one = cluster.node(
        "one",
        **common,
        schedules=SCHEDULES | OF_ONE,
        node={"environment": "production"},
        sections={"agent": {"setup": "scheduled:setup"}},
    )
    one.environment["PEERD_NODE_ENVIRONMENT"] = "testing"  # which counts before the file
    one.up()
    eventually(lambda: set(TICKING) <= {one.name for one in cluster.client.schedules.list()}, timeout=WITHIN)
    for name in TICKING:
        cluster.client.schedules.disable(name)
        (cluster.folder / "gates" / name).touch()
    cluster.up("two", **common, schedules=SCHEDULES)
    eventually(lambda: not [run for name in TICKING for run in runs(cluster, name) if run.is_open], timeout=WITHIN)
    return cluster


@contextmanager
def enabled(cluster: Cluster, *names: str) -> Iterator[None]:
    """Schedules tick as long as the block runs."""
    for name in names:
        cluster.client.schedules.enable(name)
    yield
    for name in names:
        cluster.client.schedules.disable(name)


def ran(cluster: Cluster, schedule: str, *, ever: bool = False) -> list[dict[str, Any]]:
    return [event for event in cluster.notes(event="scheduled", ever=ever) if event["schedule"] == schedule]


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


def test_a_killed_agent_repeats_no_immediate_run_and_the_next_one_receives_its_end(
    cluster: Cluster, node: ClusterNode
) -> None:
    until_runs(cluster, "slow", "running")
    agent = node.kill("agent")
    eventually(node.replaced("agent", agent), timeout=WITHIN, message=node.log_text)
    (cluster.folder / "gates" / "slow").touch()
    until_runs(cluster, "slow", "done")
    assert len(ran(cluster, "slow", ever=True)) == 1


def test_each_type_of_schedule_is_run_by_those_that_it_is_for(cluster: Cluster) -> None:
    enough = {"everywhere": 12, "each": 6, "once": 3}
    with enabled(cluster, *enough, "task"):
        eventually(
            lambda: all(len(ran(cluster, name)) >= count for name, count in enough.items()),
            timeout=WITHIN,
            message=cluster.describe,
        )
        eventually(lambda: cluster.notes(event="ran"), timeout=WITHIN)
    processes = {name: {(event["node"], event["slot"]) for event in ran(cluster, name)} for name in enough}
    assert processes["everywhere"] == {(node, slot) for node in ("one", "two") for slot in ("jobs-1", "jobs-2")}
    assert {node for node, _ in processes["each"]} == {"one", "two"}
    per_tick = Counter(event["tick"] for event in ran(cluster, "once"))
    assert set(per_tick.values()) == {1}, "a tick of the cluster is run once"
    tasks = [run.task_id for run in runs(cluster, "task") if run.status is RunStatus.ENQUEUED]
    assert len(tasks) == len(set(tasks)) > 0


def test_a_killed_worker_ends_its_run_with_the_cause(cluster: Cluster) -> None:
    cluster.client.schedules.run("dies")
    [event] = eventually(lambda: ran(cluster, "dies"), timeout=WITHIN, message=cluster.describe) or []
    os.kill(event["pid"], signal.SIGKILL)
    [run] = until_runs(cluster, "dies", "died")
    assert "SIGKILL" in (run.error or "")


def test_what_fails_is_logged_and_ticks_again_until_it_is_disabled(cluster: Cluster, node: ClusterNode) -> None:
    pids = [slot["pid"] for one in cluster.nodes for slot in one.slots("jobs")]
    with enabled(cluster, "bad"):
        eventually(lambda: len(ran(cluster, "bad")) >= 3, timeout=WITHIN, message=cluster.describe)
    assert "OSError: no disk" in "".join(one.log_text() for one in cluster.nodes)

    def has_no_new_runs() -> bool:
        """No tick has come for longer than the agent needs to notice the change."""
        latest = runs(cluster, "bad")[-1]
        return not latest.is_open and (cluster.client.now() - latest.created_at).total_seconds() > 2

    eventually(has_no_new_runs, timeout=WITHIN)
    assert pids == [slot["pid"] for one in cluster.nodes for slot in one.slots("jobs")], "it does them no harm"
    count = len(runs(cluster, "bad"))
    by_hand = node.peerd("schedules", "run", "bad", "--json")
    assert by_hand.returncode == 1
    assert json.loads(by_hand.stdout)["error"] == "OSError: no disk"
    assert len(runs(cluster, "bad")) == count + 1


def test_a_run_by_hand_is_waited_for_and_its_arguments_arrive(cluster: Cluster, node: ClusterNode) -> None:
    done = node.peerd("schedules", "run", "report", '{"day": 3}')
    assert done.returncode == 0, done.stderr
    assert "done in jobs-" in done.stdout
    assert [event["args"] for event in ran(cluster, "report")] == [[{"day": 3}]]
    missing = node.peerd("schedules", "run", "unknown")
    assert (missing.returncode, "unknown" in missing.stderr) == (1, True)


@pytest.mark.slow
def test_a_run_by_hand_in_all_processes_has_failed_where_one_of_them_has(node: ClusterNode) -> None:
    answer = node.peerd("schedules", "run", "some")
    assert answer.returncode == 1, answer
    assert "failed in 1 of 2 processes" in answer.stdout
    assert "failed in jobs-2: OSError: no disk in jobs-2" in answer.stdout
    answer = node.peerd("schedules", "run", "some", "--json")
    assert answer.returncode == 1
    result = json.loads(answer.stdout)
    assert (result["status"], result["failed"]) == ("failed", ["jobs-2"])
    processes = sorted((one["slot"], one["status"]) for one in result["processes"])
    assert processes == [("jobs-1", "done"), ("jobs-2", "failed")]
    answer = node.peerd("schedules", "run", "every")
    assert answer.returncode == 0, answer
    assert "done in 2 processes" in answer.stdout


@pytest.mark.slow
def test_the_agents_setup_registers_schedules(cluster: Cluster, node: ClusterNode) -> None:
    until_runs(cluster, "registered", "done")
    assert not runs(cluster, "unwanted"), "it was taken out again"
    pid = node.kill("agent")
    eventually(node.replaced("agent", pid), timeout=WITHIN, message=node.log_text)
    assert node.peerd("schedules", "run", "registered").returncode == 0
    assert [run.origin for run in runs(cluster, "registered")] == ["start", "hand"]


@pytest.mark.slow
def test_a_type_of_the_users_decides_by_itself_and_one_that_cannot_be_made_disturbs_no_other(
    cluster: Cluster, node: ClusterNode
) -> None:
    eventually(lambda: [run.status for run in runs(cluster, "tide")][:3] == [RunStatus.DONE] * 3, timeout=WITHIN)
    until_runs(cluster, "far", *["done"] * 2)
    until_runs(cluster, "first", "done")
    until_runs(cluster, "here", "done")
    tides = ran(cluster, "tide", ever=True)[:3]  # a new agent begins anew
    sent = sorted((event["args"][1], event["slot"]) for event in tides)
    assert sent[:2] == [("all", "jobs-1"), ("all", "jobs-2")]
    assert sent[2][0] == "one"
    assert {event["args"][0] for event in tides} == {"Husum"}
    assert "there is no sea" in node.peerd("schedules", "list", "--json").stdout
    assert not runs(cluster, "elsewhere")


@pytest.mark.slow
def test_runs_that_overlap_are_skipped_queued_or_allowed(cluster: Cluster) -> None:
    policies = {"skip": RunStatus.SKIPPED, "queue": RunStatus.WAITING, "allow": RunStatus.RUNNING}
    last = {name: runs(cluster, name)[-1].id if runs(cluster, name) else 0 for name in policies}
    with enabled(cluster, *policies):
        eventually(lambda: len(ran(cluster, "allow")) >= 3, timeout=WITHIN, message=cluster.describe)
        for name, status in policies.items():
            eventually(
                lambda: status in {run.status for run in runs(cluster, name) if run.id > last[name]},  # noqa: B023 - at once
                timeout=WITHIN,
            )
        assert (len(ran(cluster, "skip")), len(ran(cluster, "queue"))) == (1, 1)
        (cluster.folder / "gates" / "queue").touch()
        eventually(lambda: len(ran(cluster, "queue")) >= 2, timeout=WITHIN, message=cluster.describe)
    for name in policies:
        (cluster.folder / "gates" / name).touch()
    eventually(lambda: not [run for name in policies for run in runs(cluster, name) if run.is_open], timeout=WITHIN)


@pytest.mark.slow
def test_a_function_that_does_not_return_after_its_timeout_ends_with_its_process(
    cluster: Cluster, node: ClusterNode
) -> None:
    cluster.client.schedules.run("deaf")
    [event] = eventually(lambda: ran(cluster, "deaf"), timeout=WITHIN, message=cluster.describe) or []
    [run] = until_runs(cluster, "deaf", "died")
    reason = f"schedule deaf (run {run.id}) did not return within 300ms after its timeout of 200ms"
    assert run.error == f"its process died: tainted (exit status 70): {reason}"
    assert not psutil.pid_exists(event["pid"])
    eventually(lambda: f"is tainted: {reason}" in node.log_text(), timeout=WITHIN, message=node.log_text)
    assert " in deaf" in node.log_text(), "it shows where it was"
    cluster.done(cluster.enqueue("quick", node="one"))
    (cluster.folder / "gates" / "deaf").touch()
    assert node.peerd("schedules", "run", "deaf").returncode == 0, "it runs again in the replacement"


def test_a_schedule_of_peerd_toml_is_not_created_or_deleted_at_run_time(cluster: Cluster) -> None:
    schedules = cluster.client.schedules
    with pytest.raises(ScheduleNameTaken, match=r"in peerd\.toml of (one|two)"):
        schedules.create("report", queue="jobs", interval="10s")
    with pytest.raises(ScheduleNotStored):
        schedules.delete("report")
    row = sa.insert(stored_schedules).values(
        name="report", definition='{"name":"report","queue":"forbidden","task":"quick","interval":0.2}'
    )
    cluster.client.database.run(lambda connection: connection.execute(row).rowcount)  # past the check
    cluster.client.notifier.ring(SchedulesChanged())
    eventually(
        lambda: "peerd.toml of this node has this name too" in cluster.nodes[0].log_text(),
        timeout=WITHIN,
        message=cluster.describe,
    )
    assert cluster.client.tasks.list(queue="forbidden") == []
    cluster.client.database.run(lambda connection: connection.execute(sa.delete(stored_schedules)).rowcount)


@pytest.mark.slow
def test_a_schedule_that_is_created_at_run_time_ticks_once_in_the_cluster_until_it_is_deleted(
    cluster: Cluster,
) -> None:
    schedules = cluster.client.schedules
    every = {"queue": "jobs", "task": "quick", "interval": "500ms", "overlap": "allow"}
    schedules.create("tidy", **every, body={"n": 3})  # type: ignore[arg-type]

    def ticks() -> int:
        return len([run for run in runs(cluster, "tidy") if run.status is RunStatus.ENQUEUED])

    def known_to() -> set[str]:
        return {node.node for node in schedules.get("tidy").nodes}

    eventually(lambda: ticks() >= 3 and known_to() == {"one", "two"}, timeout=WITHIN, message=cluster.describe)
    state = schedules.get("tidy")
    assert (state.is_stored, state.state) == (True, "on")
    two = cluster.nodes[1]
    two.stop()
    two.up()
    before = ticks()
    eventually(lambda: ticks() >= before + 3 and known_to() == {"one", "two"}, WITHIN, message=cluster.describe)
    assert max(Counter(run.tick_at for run in runs(cluster, "tidy")).values()) == 1

    schedules.delete("tidy")
    assert "tidy" not in {one.name for one in schedules.list()}
    ended = len(runs(cluster, "tidy"))
    schedules.create("other", **every)  # type: ignore[arg-type]
    eventually(lambda: len(runs(cluster, "other")) > 2, timeout=WITHIN, message=cluster.describe)
    assert len(runs(cluster, "tidy")) == ended
    schedules.create("tidy", **every)  # type: ignore[arg-type] # of the same name
    eventually(lambda: len(runs(cluster, "tidy")) > ended, timeout=WITHIN, message=cluster.describe)
    for name in ("tidy", "other"):
        schedules.delete(name)


@pytest.mark.slow
def test_a_run_of_a_lost_node_is_run_again_by_another(cluster: Cluster) -> None:
    with enabled(cluster, "lost"):
        [event] = eventually(lambda: ran(cluster, "lost"), timeout=WITHIN, message=cluster.describe) or []
        next(node for node in cluster.nodes if node.name == event["node"]).kill_all()
        (cluster.folder / "gates" / "lost").touch()

        def is_done_again() -> bool:
            return any((run.origin, run.status) == ("again", RunStatus.DONE) for run in runs(cluster, "lost"))

        eventually(is_done_again, timeout=WITHIN, message=cluster.describe)
    [lost] = [run for run in runs(cluster, "lost") if run.status is RunStatus.LOST]
    [again] = [run for run in runs(cluster, "lost") if run.origin == "again"]
    assert (again.number, again.tick_at) == (2, lost.tick_at)
