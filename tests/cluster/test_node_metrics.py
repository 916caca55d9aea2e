"""What a node tells about itself: its metrics, to Prometheus and to a command, and its events, to a client."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from peerd import Client, __version__
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.support.exposition import EVERY, Scraped, by_series, has_counted, has_reported, parse_text, scrape, series

FINISHED = "peerd_tasks_finished_total"
DONE = {"queue": "jobs", "name": "quick", "outcome": "done"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("sqlite")
    sections = {
        "web.metrics": {"app": "peerd.web:metrics_app", "bind": "127.0.0.1:0"},
        "web.dashboard": {"app": "peerd.web:app", "bind": "unix:web.sock", "grace": "1s"},
        "gateway.tubes": {"bind": "unix:tubes.sock"},
    }
    cluster.up("one", sections=sections)
    return cluster


def test_a_node_counts_what_its_processes_do_and_what_becomes_of_them(cluster: Cluster, node: ClusterNode) -> None:
    port = node.port("127.0.0.1")
    for job in (*[cluster.enqueue("quick") for _ in range(5)], cluster.enqueue("fails_once")):
        cluster.done(job)
    retried = {"queue": "jobs", "name": "fails_once"}
    eventually(has_counted(port, FINISHED, **retried, outcome="done"), WITHIN, EVERY, node.log_text)
    found = eventually(has_reported(port, "peerd_gateway_clients", kind="tubes"), WITHIN, EVERY, node.log_text)
    assert found is not None
    expected = {
        series(FINISHED, **DONE): 5,
        series(FINISHED, **retried, outcome="failure"): 1,
        series("peerd_task_run_seconds_count", queue="jobs", name="quick"): 5,
        series("peerd_task_wait_seconds_bucket", queue="jobs", name="quick", le="+Inf"): 5,
        "peerd_claimed_tasks_total{}": 7,
        series("peerd_slots", kind="jobs", state="free"): 4,
        series("peerd_slots", kind="jobs", state="busy"): 0,
        series("peerd_node_info", node="one", version=__version__): 1,
        series("peerd_gateway_clients", kind="tubes"): 0,
        series("peerd_deaths_total", cause="signal"): 0,  # the first death would be missed by its alert
    }
    assert {name: found[name] for name in expected} == expected
    assert found[series("peerd_database_operation_seconds_count", outcome="done")] > 10
    assert found[series("peerd_database_connections", state="idle")] > 0
    assert 0 <= found[series("peerd_loop_lag_seconds", kind="jobs")] < 60
    condition = has_counted(port, "peerd_web_request_seconds_count", kind="metrics", status="2xx")
    later = eventually(condition, WITHIN, EVERY)
    assert later is not None
    assert scrape(port, accept=OPENMETRICS).keys() >= later.keys()

    # A process is killed: its counts stay, and its gauges go.
    held = cluster.enqueue("first_hangs")
    cluster.wait_for(held, "began")
    pid = node.kill("jobs-1")
    eventually(node.replaced("jobs-1", pid), WITHIN)
    cluster.done(held)
    eventually(has_counted(port, FINISHED, queue="jobs", name="first_hangs", outcome="done"), WITHIN, EVERY)
    eventually(has_counted(port, "peerd_restarts_total", role="worker"), WITHIN, EVERY)
    found = eventually(has_counted(port, "peerd_rescues_total"), WITHIN, EVERY, node.log_text)
    assert found is not None
    expected = {
        series(FINISHED, **DONE): 5,
        "peerd_rescues_total{}": 1,
        series("peerd_deaths_total", cause="signal"): 1,
        series("peerd_restarts_total", role="worker"): 1,
    }
    assert {name: found[name] for name in expected} == expected
    slots = [found[series("peerd_slots", kind="jobs", state=state)] for state in ("busy", "free")]
    assert sum(slots) == 4, "the killed process has none"

    # A process ends: it reports what it has counted since its last report.
    for job in [cluster.enqueue("quick") for _ in range(5)]:
        cluster.done(job)
    pid = node.kill("jobs-1", signal.SIGTERM)
    eventually(node.replaced("jobs-1", pid), WITHIN)
    eventually(lambda: scrape(port).get(series(FINISHED, **DONE)) == 10, WITHIN, EVERY)

    # A new agent counts from 0, and no process reports twice.
    pid = node.kill("agent")
    eventually(node.replaced("agent", pid), WITHIN)
    cluster.done(cluster.enqueue("fails_once"))
    found = eventually(has_counted(port, FINISHED, **retried, outcome="done"), WITHIN, EVERY, node.log_text)
    assert found is not None
    assert series(FINISHED, **DONE) not in found, "Prometheus would count it again"
    assert found[series("peerd_slots", kind="jobs", state="free")] == 4, "gauges are reported again"


@pytest.mark.slow
def test_the_command_prints_the_same_without_a_web_process(cluster: Cluster, node: ClusterNode, tmp_path: Path) -> None:
    cluster.done(cluster.enqueue("quick"))

    def printed() -> Scraped | None:
        run = node.peerd("metrics")
        assert run.returncode == 0, run.stderr
        found = by_series(parse_text(run.stdout))
        return found if found.get("peerd_claimed_tasks_total{}") else None

    found = eventually(printed, WITHIN, EVERY)
    assert found is not None
    assert node.peerd("metrics", "--output", str(tmp_path / "peerd.prom")).returncode == 0
    assert by_series(parse_text((tmp_path / "peerd.prom").read_text())).keys() >= found.keys()


@pytest.mark.slow
def test_a_client_of_a_node_works_and_its_events_go_on_when_the_process_is_replaced(
    cluster: Cluster, node: ClusterNode
) -> None:
    sockets = control_client.status(node.run_directory)["sockets"]
    [socket] = [one for one in sockets if "web.sock" in one["bind"]]
    token = cluster.client.tokens.create("test", ["operate", "enqueue"]).secret
    with Client(f"unix:{socket['addresses'][0]}", token=token) as client:
        job = client.enqueue("video", name="transcode", unique="a")
        assert client.tasks.get(job.id) == cluster.client.tasks.get(job.id)
        events = client.events("task", tasks=[job.id])
        assert [next(events).type for _ in range(2)] == ["reset", "task"]
        reloaded = client.nodes.reload("one", ["dashboard", "agent"])
        assert reloaded.kinds == {"dashboard": "done", "agent": "done"}, "the process that took the request has ended"
        assert next(events).type == "reset", "of the new process, because the old one said bye"
        assert next(events).data["status"] == "pending"
        client.tasks.cancel(job.id)
        while (status := next(events).data.get("status")) != "canceled":
            assert status in {None, "pending"}
        node.reload("dashboard")
        eventually(node.is_complete, timeout=WITHIN, message=node.log_text)
        assert not re.search(r"aborted.*requests=[1-9]", node.log_text()), (
            "no stream was cut off by the end of the grace"
        )
