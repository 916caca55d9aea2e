"""Metrics of the cluster, as Prometheus reads them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from peerd import Client
from peerd.domain.alert_record import AlertReport
from peerd.store.alerts.recording import ReportAge, record_alert
from peerd.web import metrics

parse: Any = parser.text_string_to_metric_families
parse_openmetrics: Any = openmetrics_parser.text_string_to_metric_families
HOSTILE = "a(b)/c;$@"


def read(address: str, **headers: str) -> dict[tuple[str, ...], float]:
    response = httpx.get(f"{address}/metrics/cluster", headers=headers)
    assert response.status_code == 200
    families: Any = (
        parse_openmetrics(response.text) if "openmetrics" in response.headers["content-type"] else parse(response.text)
    )
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_queues_nodes_and_processes_are_shown(address: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "KEEP", 0.0)
    client.enqueue(HOSTILE)
    client.queues.pause("mail")
    for queue in ("a", "b"):
        late = AlertReport(kind="backlog", subject=queue, node="one", text="late")
        client.database.run(record_alert, late, ReportAge())
    found = read(address)
    assert (found["peerd_alerts_on", "backlog"], found["peerd_alerts_on", "inactive-nodes"]) == (2, 0)
    assert found["peerd_queue_tasks", "video", "pending"] == 5
    assert found["peerd_queue_tasks", "mail", "canceled"] == 1
    assert found["peerd_queue_tasks", "video", "dead"] == 0, "a series that ends at 0 would be missed by its alert"
    assert found["peerd_queue_tasks", HOSTILE, "pending"] == 1
    assert (found["peerd_queue_paused", "mail"], found["peerd_queue_paused", "video"]) == (1, 0)
    assert found["peerd_queue_oldest_seconds", "video"] >= 0
    assert found["peerd_cluster_read_seconds",] > 0
    client.enqueue("video")
    assert read(address)["peerd_queue_tasks", "video", "pending"] == 6


def test_they_are_read_once_however_many_ask_in_the_format_that_is_asked_for(
    address: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "KEEP", 3600.0)
    before = read(address)
    client.enqueue("video")
    assert read(address) == before
    assert read(address, accept="application/openmetrics-text; version=1.0.0").keys() == before.keys()
    monkeypatch.setattr(metrics, "KEEP", 0.0)
    assert read(address) != before
