"""``peerd alerts list``, and the line of ``peerd status``."""

from __future__ import annotations

from peerd import Client
from peerd.domain.alert_record import AlertReport
from peerd.store.alerts.recording import ReportAge, end_condition, record_alert
from tests.cli.conftest import Peerd


def report(client: Client, kind: str, subject: str) -> None:
    found = AlertReport(
        kind=kind, subject=subject, node="one", text=f"{subject} \x1b[2J is late", data={"queue": subject}
    )
    client.database.run(record_alert, found, ReportAge())


def test_alerts_are_listed_and_the_status_says_how_many_are_on(peerd: Peerd, client: Client) -> None:
    assert peerd("alerts", "list").lines == ["there is no such alert"]
    assert "alerts" not in peerd("status").out
    for kind, subject in (
        ("backlog", "video"),
        ("dead-tasks", "mail"),
        ("unserved-queue", "viedo"),
        ("backlog", "mail"),
    ):
        report(client, kind, subject)
    client.database.run(end_condition, "backlog", "mail")
    page = peerd("alerts", "list").out
    assert "\x1b" not in page
    lines = [line.split()[:4] for line in page.splitlines()[1:]]
    assert lines == [
        ["4", "ended", "backlog", "mail"],
        ["3", "on", "unserved-queue", "viedo"],
        ["2", "recent", "dead-tasks", "mail"],
        ["1", "on", "backlog", "video"],
    ]
    assert [one["subject"] for one in peerd("alerts", "list", "--on", "--json").json["items"]] == ["viedo", "video"]
    first = peerd("alerts", "list", "--kind", "backlog", "--limit", "1")
    assert first.lines[-1].split() == ["more:", "--after", "4"]
    assert "on" in peerd("alerts", "list", "--kind", "backlog", "--after", "4").lines[-1]
    assert "is none of" in peerd("alerts", "list", "--kind", "fire", status=2).err
    assert "alerts 2 on: 1 backlog, 1 unserved-queue  (peerd alerts list --on)" in peerd("status").out
    assert len(peerd("status", "--json").json["cluster"]["alerts"]) == 2
