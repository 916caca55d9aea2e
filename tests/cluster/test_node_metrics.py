"""The metrics of a node: every process counts, and the agent adds it up."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from peerd import __version__
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.support.exposition import (
    EVERY,
    Scraped,
    by_series,
    free_port,
    has_counted,
    has_reported,
    parse_text,
    scrape,
    series,
)

FINISHED = "peerd_tasks_finished_total"
DONE = {"queue": "jobs", "name": "quick", "outcome": "done"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def node_with_metrics(cluster: Cluster, port: int, **sections: dict[str, Any]) -> ClusterNode:
    web = {"web.metrics": {"app": "peerd.web:metrics_app", "bind": f"127.0.0.1:{port}"}}
    return cluster.node("one", sections={**web, **sections}).up()


@pytest.mark.one_database
def test_a_node_counts_what_its_processes_do(each_cluster: Cluster) -> None:
    cluster, port = each_cluster, free_port()
    node = node_with_metrics(cluster, port, **{"gateway.tubes": {"bind": "unix:tubes.sock"}})
    for job in (*[cluster.enqueue("quick") for _ in range(5)], cluster.enqueue("fails_once")):
        cluster.done(job)
    eventually(
        has_counted(port, FINISHED, queue="jobs", name="fails_once", outcome="done"), WITHIN, EVERY, node.log_text
    )
    found = eventually(has_reported(port, "peerd_gateway_clients", kind="tubes"), WITHIN, EVERY, node.log_text)
    assert found is not None
    assert found[series(FINISHED, **DONE)] == 5
    assert found[series(FINISHED, queue="jobs", name="fails_once", outcome="failure")] == 1
    assert found[series("peerd_task_run_seconds_count", queue="jobs", name="quick")] == 5
    assert found[series("peerd_task_wait_seconds_bucket", queue="jobs", name="quick", le="+Inf")] == 5
    assert found["peerd_claimed_tasks_total{}"] == 7
    assert found[series("peerd_slots", kind="jobs", state="free")] == 4
    assert found[series("peerd_slots", kind="jobs", state="busy")] == 0
    assert found[series("peerd_database_operation_seconds_count", outcome="done")] > 10
    assert found[series("peerd_database_connections", state="idle")] > 0
    assert 0 <= found[series("peerd_loop_lag_seconds", kind="jobs")] < 60
    assert found[series("peerd_node_info", node="one", version=__version__)] == 1
    assert found[series("peerd_gateway_clients", kind="tubes")] == 0
    assert found[series("peerd_deaths_total", cause="signal")] == 0, "the first death would be missed by its alert"

    condition = has_counted(port, "peerd_web_request_seconds_count", kind="metrics", status="2xx")
    later = eventually(condition, WITHIN, EVERY)
    assert later is not None
    assert scrape(port, accept=OPENMETRICS).keys() >= later.keys()


def test_the_counts_of_a_killed_process_stay_and_its_gauges_go(cluster: Cluster) -> None:
    port = free_port()
    node = node_with_metrics(cluster, port)
    cluster.done(cluster.enqueue("quick"))
    eventually(has_counted(port, FINISHED, **DONE), WITHIN, EVERY)
    held = cluster.enqueue("first_hangs")
    cluster.wait_for(held, "began")
    pid = node.kill("jobs-1")
    eventually(node.replaced("jobs-1", pid), WITHIN)
    cluster.done(held)
    eventually(has_counted(port, FINISHED, queue="jobs", name="first_hangs", outcome="done"), WITHIN, EVERY)
    eventually(has_counted(port, "peerd_restarts_total", role="worker"), WITHIN, EVERY)
    found = eventually(has_counted(port, "peerd_rescues_total"), WITHIN, EVERY, node.log_text)
    assert found is not None
    assert found[series(FINISHED, **DONE)] == 1
    assert found["peerd_rescues_total{}"] == 1
    assert found[series("peerd_deaths_total", cause="signal")] == 1
    assert found[series("peerd_restarts_total", role="worker")] == 1
    slots = [found[series("peerd_slots", kind="jobs", state=state)] for state in ("busy", "free")]
    assert sum(slots) == 4, "the killed process has none"


def test_a_process_that_ends_reports_what_it_has_counted_since_its_last_report(cluster: Cluster) -> None:
    port = free_port()
    node = node_with_metrics(cluster, port)
    for job in [cluster.enqueue("quick") for _ in range(5)]:
        cluster.done(job)
    pid = node.signal_slot("jobs-1", signal.SIGTERM)
    eventually(node.replaced("jobs-1", pid), WITHIN)
    eventually(lambda: scrape(port).get(series(FINISHED, **DONE)) == 5, WITHIN, EVERY)


def test_a_new_agent_counts_from_0_and_no_process_reports_twice(cluster: Cluster) -> None:
    port = free_port()
    node = node_with_metrics(cluster, port)
    cluster.done(cluster.enqueue("quick"))
    eventually(has_counted(port, FINISHED, **DONE), WITHIN, EVERY)
    pid = node.kill("agent")
    eventually(node.replaced("agent", pid), WITHIN)
    cluster.done(cluster.enqueue("fails_once"))
    condition = has_counted(port, FINISHED, queue="jobs", name="fails_once", outcome="done")
    found = eventually(condition, WITHIN, EVERY, node.log_text)
    assert found is not None
    assert series(FINISHED, **DONE) not in found, "Prometheus would count it again"
    assert found[series("peerd_slots", kind="jobs", state="free")] == 4, "gauges are reported again"


def test_the_command_prints_the_same_without_a_web_process(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.up("one")[0]
    cluster.done(cluster.enqueue("quick"))
    command = [*cluster.command, "metrics", "--config", str(node.config)]

    def printed() -> Scraped | None:
        run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=cluster.folder)
        found = by_series(parse_text(run.stdout))
        return found if found.get("peerd_claimed_tasks_total{}") else None

    found = eventually(printed, WITHIN, EVERY)
    assert found is not None
    folder = tmp_path / "collector"
    folder.mkdir()
    subprocess.run([*command, "--output", str(folder / "peerd.prom")], check=True, cwd=cluster.folder)
    (file,) = folder.iterdir()
    assert by_series(parse_text(file.read_text())).keys() >= found.keys()


def test_metrics_can_be_switched_off(cluster: Cluster) -> None:
    node = cluster.node("one", sections={"telemetry": {"metrics": False}}).up()
    command = [*cluster.command, "metrics", "--config", str(node.config)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cluster.folder)
    assert run.returncode == 1
    assert "set [telemetry] metrics = true" in run.stderr
