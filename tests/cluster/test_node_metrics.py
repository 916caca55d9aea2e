"""What a node tells about itself: its metrics, to Prometheus and to a command, and its events, to a client."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from peerd import Client, __version__
from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
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
from tests.support.monitoring_files import MONITORING, dashboard_expressions

FINISHED = "peerd_tasks_finished_total"
DONE = {"queue": "jobs", "name": "quick", "outcome": "done"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
METRICS = {"app": "peerd.web:metrics_app", "bind": "127.0.0.1:0"}
CONFIG = """\
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [RULES]
scrape_configs:
  - {job_name: peerd, static_configs: [{targets: NODES}]}
  - {job_name: peerd-cluster, metrics_path: /metrics/cluster, static_configs: [{targets: [CLUSTER]}]}
"""
Query = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[Callable[[list[str], str], str]]:
    """Start it for the addresses of nodes, and that of one for the cluster; return its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(nodes: list[str], cluster: str) -> str:
        address = f"127.0.0.1:{free_port()}"
        config = tmp_path / "prometheus.yml"
        rules = str(MONITORING / "alerts.yml")
        config.write_text(
            CONFIG.replace("RULES", rules).replace("NODES", json.dumps(nodes)).replace("CLUSTER", cluster)
        )
        arguments = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'series'}"]
        with (tmp_path / "prometheus.log").open("wb") as log:
            command = ["prometheus", *arguments, f"--web.listen-address={address}", "--log.level=warn"]
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return f"http://{address}/api/v1"

    yield start
    for process in started:
        process.terminate()
        process.wait(WITHIN)


def query_with(address: str) -> Query:
    def query(expression: str) -> list[dict[str, Any]]:
        try:
            response = httpx.get(f"{address}/query", params={"query": expression}, timeout=WITHIN)
        except httpx.TransportError as error:
            raise AssertionError("it is not up yet") from error
        assert response.status_code == 200, f"{expression}: {response.text}"
        found: list[dict[str, Any]] = response.json()["data"]["result"]
        return found

    return query


def has_series(query: Query, expression: str, count: int) -> bool:
    return len(query(expression)) == count


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("sqlite")
    sections = {
        "web.metrics": METRICS,
        "web.dashboard": {"app": "peerd.web:app", "bind": "unix:web.sock", "grace": "1s"},
        "access": {"mask": ["card"]},
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
    pid = node.signal_slot("jobs-1", signal.SIGTERM)
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
    with Client(f"unix:{socket['addresses'][0]}") as client:
        job = client.enqueue("video", name="transcode", unique="a")
        assert client.tasks.get(job.id) == cluster.client.tasks.get(job.id)
        paid = client.enqueue("video", body={"card": 4111})
        assert client.tasks.get(paid.id).json == {"card": "***"}, "the process has [access] of peerd.toml"
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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
def test_prometheus_reads_two_nodes_and_knows_every_series_of_the_dashboard(
    cluster: Cluster, node: ClusterNode, start_prometheus: Callable[[list[str], str], str]
) -> None:
    port, api = free_port(), f"127.0.0.1:{free_port()}"
    sections = {
        "web.metrics": {**METRICS, "bind": f"127.0.0.1:{port}"},
        "web.api": {"app": "peerd.web:app", "bind": api},
    }
    two = cluster.node("two", count=1, sections=sections).up()
    metrics = {"one": f"127.0.0.1:{node.port('127.0.0.1')}", "two": f"127.0.0.1:{port}"}
    before = len(cluster.client.tasks.list(queue="jobs", status="done", limit=1000))
    pid = node.kill("agent")  # it counts from 0
    eventually(node.replaced("agent", pid), WITHIN)
    prometheus = start_prometheus(list(metrics.values()), api)
    for job in [cluster.enqueue("fails_once") for _ in range(10)]:
        cluster.done(job)

    query = query_with(prometheus)
    finished = 'sum(peerd_tasks_finished_total{job="peerd", outcome="done"}) == 10'
    eventually(lambda: query(finished), WITHIN, EVERY, lambda: str(query("peerd_tasks_finished_total")))
    ready = eventually(lambda: query("peerd_node_info")[1:] and query("peerd_node_info"), WITHIN, EVERY)
    assert {one["metric"]["instance"]: one["metric"]["node"] for one in ready} == {
        address: name for name, address in metrics.items()
    }
    for condition, count in (
        ("peerd_database_operation_seconds_count{outcome='done'} > 0", 2),
        (f'peerd_queue_tasks{{queue="jobs", status="done", job="peerd-cluster"}} == {before + 10}', 1),
        ("peerd_node_active == 1", 2),
    ):
        eventually(partial(has_series, query, condition, count), WITHIN, EVERY, condition)
    api_port = int(api.rpartition(":")[2])
    assert scrape(api_port)[series("peerd_node_info", node="two", version=__version__)] == 1, "the API has it, too"
    for expression in dashboard_expressions():
        query(expression)
    rules = httpx.get(f"{prometheus}/rules").json()["data"]["groups"][0]["rules"]
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
    assert two.stop() == 0
    cluster.nodes.remove(two)
