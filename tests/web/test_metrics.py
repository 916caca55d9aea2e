"""Metrics of the cluster, as Prometheus reads them, and its alerts."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from peerd import Client
from peerd.domain.alert import AlertReport
from peerd.store.alerts import ReportAge, record_alert
from peerd.web import metrics
from tests.web.access_world import bearer

HOSTILE = "a(b)/c;$@"


def read(address: str, **headers: str) -> dict[tuple[str, ...], float]:
    response = httpx.get(f"{address}/metrics/cluster", headers=headers)
    format_: Any = openmetrics_parser if "openmetrics" in response.headers["content-type"] else parser
    families = format_.text_string_to_metric_families(response.text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_queues_and_alerts_are_shown_read_once_however_many_ask_in_the_format_that_is_asked_for(
    address: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "KEEP", 3600.0)
    client.enqueue(HOSTILE)
    client.queues.pause("mail")
    for queue in ("a", "b"):
        late = AlertReport(kind="backlog", subject=queue, node="one", text="late")
        client.database.run(record_alert, late, ReportAge())
    found = read(address)
    assert (found["peerd_alerts_on", "backlog"], found["peerd_alerts_on", "inactive-nodes"]) == (2, 0)
    assert (found["peerd_queue_tasks", "video", "pending"], found["peerd_queue_tasks", "mail", "canceled"]) == (5, 1)
    assert found["peerd_queue_tasks", "video", "dead"] == 0, "a series that ends at 0 would be missed by its alert"
    assert found["peerd_queue_tasks", HOSTILE, "pending"] == 1
    assert (found["peerd_queue_paused", "mail"], found["peerd_queue_paused", "video"]) == (1, 0)
    assert found["peerd_queue_oldest_seconds", "video"] >= 0
    assert found["peerd_cluster_read_seconds",] > 0
    assert [found["peerd_findings", level] for level in ("problem", "warning", "note")] == [0, 3, 1]
    assert found["peerd_verdict",] == 1, "no node is active, two backlogs; and a pause"
    client.enqueue("video")
    assert read(address) == found
    assert read(address, accept="application/openmetrics-text; version=1.0.0").keys() == found.keys()
    monkeypatch.setattr(metrics, "KEEP", 0.0)
    assert read(address)["peerd_queue_tasks", "video", "pending"] == 6


def test_alerts_are_shown_page_by_page_and_to_a_token_of_a_queue_its_own(http: httpx.Client, client: Client) -> None:
    for kind, subject in (("backlog", "video"), ("hung", "video-1"), ("dead-tasks", "mail")):
        report = AlertReport(kind=kind, subject=subject, node="one", text="it is so", data={"seconds": 7})
        client.database.run(record_alert, report, ReportAge())
    first = http.get("/alerts?limit=2").json()
    shown = [(one["kind"], one["state"], one["queue"]) for one in first["items"]]
    assert shown == [("dead-tasks", "recent", "mail"), ("hung", "recent", None)]
    rest = http.get(f"/alerts?after={first['next']}").json()
    [backlog] = rest["items"]
    assert (backlog["subject"], backlog["data"], backlog["times"], rest["next"]) == ("video", {"seconds": 7}, 1, None)
    assert http.get("/alerts?on=true").json() == rest
    assert http.get("/alerts?kind=hung&kind=backlog&since=1h&on=false").json()["items"] == first["items"][1:]
    secret = client.tokens.create("t", ["view"], queues=["mail"]).secret
    assert http.get("/alerts", headers=bearer(secret)).json()["items"] == first["items"][:1]
