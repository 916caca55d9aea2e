"""Schedules on real nodes: which process runs a tick, and how the run ends when agents, workers and nodes die."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
    "report": {"run": "scheduled:notes", "cron": "0 0 1 1 *", "enabled": False},
    "dies": GATED,
    "lost": {**GATED, "interval": "3s", "misfire": "run_once"},
}
OF_ONE: dict[str, dict[str, Any]] = {
    "some": {"run": "scheduled:fails_in_some", "interval": "1h", "type": "all"},
    "unwanted": {**NOTES, "immediate": True},
    "slow": {**GATED, "immediate": True, "type": "worker"},
    "tide": {"run": "scheduled:notes", "overlap": "allow", "type": "scheduled:Tide", "args": ["Husum"]},
    "here": {**HERE, "environments": ["testing", "staging"]},
    "elsewhere": {**HERE, "interval": "300ms", "environments": ["production"]},
}
"""In addition, and only on the first node."""
TICKING = ("everywhere", "each", "once", "task", "lost")
"""They are disabled by hand until a test wants them."""


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("sqlite")
    patient = {"inactive_after": "10s"}  # an agent that boots slowly has not fallen silent
    common: dict[str, Any] = {"processes": 2, "grace": "500ms", "manager": patient}
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
    def runs_with_statuses() -> list[ScheduleRun]:
        found = runs(cluster, schedule)
        assert [str(run.status) for run in found] == list(statuses), cluster.describe()
        return found

    return eventually(runs_with_statuses, timeout=WITHIN)


def test_a_killed_agent_repeats_no_immediate_run_and_the_next_one_receives_its_end(
    cluster: Cluster, node: ClusterNode
) -> None:
    assert node.doorbell()["address"].startswith("127.0.0.1:"), "on SQLite, nothing needs to be configured"
    node.wait_for_doorbell()
    until_runs(cluster, "slow", "running")
    agent = node.kill("agent")
    eventually(node.replaced("agent", agent), timeout=WITHIN, message=node.log_text)
    (cluster.folder / "gates" / "slow").touch()
    until_runs(cluster, "slow", "done")
    assert len(ran(cluster, "slow", ever=True)) == 1


def test_each_type_of_schedule_is_run_by_those_that_it_is_for(cluster: Cluster) -> None:
    enough = {"everywhere": 12, "each": 6, "once": 3}

    def have_run() -> bool:
        return all(len(ran(cluster, name)) >= count for name, count in enough.items())

    with enabled(cluster, *enough, "task"):
        eventually(lambda: have_run() and cluster.notes(event="ran"), timeout=WITHIN, message=cluster.describe)
    processes = {name: {(event["node"], event["slot"]) for event in ran(cluster, name)} for name in enough}
    assert processes["everywhere"] == {(node, slot) for node in ("one", "two") for slot in ("jobs-1", "jobs-2")}
    assert {node for node, _ in processes["each"]} == {"one", "two"}
    per_tick = Counter(event["tick"] for event in ran(cluster, "once"))
    assert set(per_tick.values()) == {1}, "a tick of the cluster is run once"
    tasks = [run.task_id for run in runs(cluster, "task") if run.status is RunStatus.ENQUEUED]
    assert len(tasks) == len(set(tasks)) > 0


def test_a_killed_worker_ends_its_run_with_the_cause(cluster: Cluster) -> None:
    cluster.client.schedules.run("dies")
    [event] = eventually(lambda: ran(cluster, "dies"), timeout=WITHIN, message=cluster.describe)
    os.kill(event["pid"], signal.SIGKILL)
    [run] = until_runs(cluster, "dies", "died")
    assert "SIGKILL" in (run.error or "")


def test_a_run_by_hand_is_waited_for_its_arguments_arrive_and_it_has_failed_where_one_process_has(
    cluster: Cluster, node: ClusterNode
) -> None:
    done = node.peerd("schedules", "run", "report", '{"day": 3}')
    assert done.returncode == 0, done.stderr
    assert "done in jobs-" in done.stdout
    assert [event["args"] for event in ran(cluster, "report")] == [[{"day": 3}]]
    answer = node.peerd("schedules", "run", "some")
    assert answer.returncode == 1, answer
    assert "failed in 1 of 2 processes" in answer.stdout
    assert "failed in jobs-2: OSError: no disk in jobs-2" in answer.stdout
    answer = node.peerd("schedules", "run", "some", "--json")
    result = json.loads(answer.stdout)
    assert (answer.returncode, result["status"], result["failed"]) == (1, "failed", ["jobs-2"])
    processes = sorted((one["slot"], one["status"]) for one in result["processes"])
    assert processes == [("jobs-1", "done"), ("jobs-2", "failed")]


@pytest.mark.slow
def test_the_agents_setup_registers_schedules_and_a_type_of_the_users_decides_by_itself(
    cluster: Cluster, node: ClusterNode
) -> None:
    until_runs(cluster, "registered", "done")
    until_runs(cluster, "here", "done")
    assert not runs(cluster, "unwanted"), "it was taken out again"
    assert not runs(cluster, "elsewhere")
    assert node.peerd("schedules", "run", "registered").returncode == 0
    assert [run.origin for run in runs(cluster, "registered")] == ["start", "hand"]
    eventually(lambda: [run.status for run in runs(cluster, "tide")][:3] == [RunStatus.DONE] * 3, timeout=WITHIN)
    tides = ran(cluster, "tide", ever=True)[:3]  # a new agent begins anew
    sent = sorted((event["args"][1], event["slot"]) for event in tides)
    assert sent[:2] == [("all", "jobs-1"), ("all", "jobs-2")]
    assert sent[2][0] == "one"
    assert {event["args"][0] for event in tides} == {"Husum"}


def test_a_schedule_of_peerd_toml_is_not_created_or_deleted_at_run_time(cluster: Cluster) -> None:
    schedules = cluster.client.schedules
    with pytest.raises(ScheduleNameTaken, match=r"in peerd\.toml of (one|two)"):
        schedules.create("report", queue="jobs", interval="10s")
    with pytest.raises(ScheduleNotStored):
        schedules.delete("report")
    definition = '{"name":"report","queue":"forbidden","task":"quick","interval":0.2}'
    row = sa.insert(stored_schedules).values(name="report", definition=definition)
    cluster.client.database.run(lambda connection: connection.execute(row).rowcount)  # past the check
    cluster.client.notifier.ring(SchedulesChanged())
    said = "peerd.toml of this node has this name too"
    eventually(lambda: said in cluster.nodes[0].log_text(), timeout=WITHIN, message=cluster.describe)
    assert cluster.client.tasks.list(queue="forbidden") == []
    cluster.client.database.run(lambda connection: connection.execute(sa.delete(stored_schedules)).rowcount)


@pytest.mark.slow
def test_a_schedule_that_is_created_at_run_time_ticks_once_in_the_cluster_until_it_is_deleted(
    cluster: Cluster,
) -> None:
    schedules = cluster.client.schedules
    every: dict[str, Any] = {"queue": "jobs", "task": "quick", "interval": "500ms", "overlap": "allow"}
    schedules.create("tidy", **every, body={"n": 3})

    def is_known_to_all_and_ticks() -> bool:
        ticks = [run for run in runs(cluster, "tidy") if run.status is RunStatus.ENQUEUED]
        return len(ticks) > 2 and {node.node for node in schedules.get("tidy").nodes} == {"one", "two"}

    eventually(is_known_to_all_and_ticks, timeout=WITHIN, message=cluster.describe)
    assert max(Counter(run.tick_at for run in runs(cluster, "tidy")).values()) == 1
    schedules.delete("tidy")
    assert "tidy" not in {one.name for one in schedules.list()}
    ended = len(runs(cluster, "tidy"))
    schedules.create("other", **every)
    eventually(lambda: len(runs(cluster, "other")) > 2, timeout=WITHIN, message=cluster.describe)
    assert len(runs(cluster, "tidy")) == ended
    schedules.delete("other")


@pytest.mark.slow
def test_a_run_of_a_lost_node_is_run_again_by_another(cluster: Cluster) -> None:
    with enabled(cluster, "lost"):
        [event] = eventually(lambda: ran(cluster, "lost"), timeout=WITHIN, message=cluster.describe)
        next(node for node in cluster.nodes if node.name == event["node"]).kill_all()
        (cluster.folder / "gates" / "lost").touch()

        def is_done_again() -> bool:
            return any((run.origin, run.status) == ("again", RunStatus.DONE) for run in runs(cluster, "lost"))

        eventually(is_done_again, timeout=WITHIN, message=cluster.describe)
    [lost] = [run for run in runs(cluster, "lost") if run.status is RunStatus.LOST]
    [again] = [run for run in runs(cluster, "lost") if run.origin == "again"]
    assert (again.number, again.tick_at) == (2, lost.tick_at)
