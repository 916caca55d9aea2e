"""``GET /alerts``: which are on, page by page, and to a token of some queues those about them alone."""

from __future__ import annotations

import httpx

from peerd import Client
from peerd.domain.alert_record import AlertReport
from peerd.store.alerts.recording import ReportAge, record_alert
from tests.web.access_world import bearer, problem


def test_alerts_are_shown_page_by_page(http: httpx.Client, client: Client) -> None:
    for kind, subject in (("backlog", "video"), ("hung", "video-1"), ("dead-tasks", "mail")):
        report = AlertReport(kind=kind, subject=subject, node="one", text="it is so", data={"seconds": 7})
        client.database.run(record_alert, report, ReportAge())
    first = http.get("/alerts", params={"limit": 2}).json()
    assert [(one["id"], one["kind"], one["state"], one["queue"]) for one in first["items"]] == [
        ("3", "dead-tasks", "recent", "mail"),
        ("2", "hung", "recent", None),
    ]
    second = http.get("/alerts", params={"after": first["next"]}).json()
    [backlog] = second["items"]
    assert (backlog["subject"], backlog["data"], backlog["times"], second["next"]) == ("video", {"seconds": 7}, 1, None)
    assert http.get("/alerts", params={"on": True}).json() == second
    assert http.get("/alerts", params={"kind": ["hung", "backlog"], "since": "1h", "on": False}).json()["items"] == [
        first["items"][1]
    ]
    assert problem(http.get("/alerts", params={"kind": "fire"})) == (422, "InvalidRequest")
    secret = client.tokens.create("t", ["view"], queues=["mail"]).secret
    shown = http.get("/alerts", headers=bearer(secret)).json()["items"]
    assert [one["id"] for one in shown] == ["3"]
