"""Debian's Prometheus scrapes a cluster of two real nodes, and takes every expression of our dashboard and rules."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from peerd import __version__
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster
from tests.support.exposition import EVERY, free_port, scrape, series
from tests.support.monitoring_files import MONITORING, dashboard_expressions

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
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


def test_prometheus_reads_two_nodes_and_knows_every_series_of_the_dashboard(
    cluster: Cluster, start_prometheus: Callable[[list[str], str], str]
) -> None:
    metrics = {name: f"127.0.0.1:{free_port()}" for name in ("one", "two")}
    api = f"127.0.0.1:{free_port()}"
    for name, address in metrics.items():
        sections = {"web.metrics": {"app": "peerd.web:metrics_app", "bind": address}}
        if name == "one":
            sections["web.api"] = {"app": "peerd.web:app", "bind": api}
        cluster.node(name, count=1, sections=sections).start()
    for node in cluster.nodes:
        node.wait_until_running()
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
        ('peerd_queue_tasks{queue="jobs", status="done", job="peerd-cluster"} == 10', 1),
        ("peerd_node_active == 1", 2),
    ):
        eventually(partial(has_series, query, condition, count), WITHIN, EVERY, condition)
    api_port = int(api.rpartition(":")[2])
    assert scrape(api_port)[series("peerd_node_info", node="one", version=__version__)] == 1, "the API has it, too"
    for expression in dashboard_expressions():
        query(expression)
    rules = httpx.get(f"{prometheus}/rules").json()["data"]["groups"][0]["rules"]
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
