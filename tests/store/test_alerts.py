"""Alerts in their table: what is reported again is one row, on until its end, or until it is not seen again."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.access import Actor
from peerd.domain.alert import CONDITIONS, AlertReport, AlertState
from peerd.domain.errors import InvalidFilter
from peerd.store.alerts import (
    COALESCE_WITHIN,
    AlertPage,
    ReportAge,
    end_condition,
    follow_silent_nodes,
    purge_alerts,
    record_alert,
)
from peerd.store.connection.database import Database
from peerd.store.schema.tables import nodes
from tests.store.world import World, at_once


def report(
    store: Database,
    kind: str = "backlog",
    subject: str = "video",
    node: str = "a",
    *,
    ago: float = 0.0,
    text: str = "it is so",
) -> None:
    found = AlertReport(kind=kind, subject=subject, node=node, text=text, data={"queue": subject})
    store.run(record_alert, found, ReportAge(ago, ago))


def listed(store: Database, **wanted: object) -> list[tuple[str, str, str, int]]:
    page: AlertPage = Client(store).alerts.list(**wanted)  # type: ignore[arg-type]
    return [(one.kind, one.subject, one.state.value, one.times) for one in page.items]


def test_a_condition_is_one_row_of_the_cluster_until_its_end_and_another_one_later(world: World) -> None:
    store = world.store
    report(store, node="a", text="first")
    report(store, node="b", text="then")
    [alert] = Client(store).alerts.list(on=True).items
    assert (alert.times, alert.node, alert.text, alert.data) == (2, "b", "then", {"queue": "video"})
    assert alert.ended_at is None
    store.run(end_condition, "backlog", "mail")
    store.run(end_condition, "unserved-queue", "video")
    assert listed(store, on=True) == [("backlog", "video", "on", 2)]
    store.run(end_condition, "backlog", "video")
    assert listed(store, on=True) == []
    [ended] = Client(store).alerts.list(on=False).items
    assert (ended.state, ended.ended_at is None) == (AlertState.ENDED, False)
    report(store)
    assert listed(store) == [("backlog", "video", "on", 1), ("backlog", "video", "ended", 2)]
    report(store, subject="mail", ago=CONDITIONS["backlog"] + 60)
    assert ("backlog", "mail", "unseen", 1) in listed(store), "it was not reported again"
    report(store, subject="mail")
    assert [one[2:] for one in listed(store) if one[1] == "mail"] == [("on", 1), ("unseen", 1)]


def test_nodes_that_report_a_condition_at_the_same_moment_write_one_row(world: World) -> None:
    for queue in ("a", "b", "c"):
        at_once([partial(report, world.store, subject=queue, node=node) for node in "abcd"])
    assert sorted(listed(world.store)) == [("backlog", queue, "on", 4) for queue in ("a", "b", "c")]


def test_an_incident_is_counted_for_a_while_of_each_subject_and_node(world: World) -> None:
    store = world.store
    report(store, "dead-tasks", ago=7200.0)
    report(store, "dead-tasks", ago=COALESCE_WITHIN - 60)
    for node, queue in (("a", "video"), ("b", "video"), ("a", "mail"), ("a", "video")):
        report(store, "dead-tasks", queue, node)
    found = sorted(one[1:] for one in listed(store, on=False))
    assert found == [("mail", "recent", 1), ("video", "past", 1), ("video", "recent", 1), ("video", "recent", 3)]


def test_what_no_database_stores_is_escaped_and_what_is_too_large_is_cut(world: World) -> None:
    store = world.store
    text = "a\x00b\ud800" + "x" * 9_000
    odd = AlertReport(kind="exception", subject="ö" * 300, node="a", text=text, slot="s", data={"\ud800": "\x00"})
    large = AlertReport(kind="hung", subject="s", node="a", text="t", data={"all": ["y" * 1_000] * 20})
    for found in (odd, odd, large):
        store.run(record_alert, found, ReportAge())
    second, first = Client(store).alerts.list().items
    assert (first.times, first.text[:4], len(first.subject) <= 200, first.data) == (2, "a\\x0", True, {"?": "\x00"})
    assert second.data == {"is_cut": True}


def test_the_alert_of_a_silent_node_lasts_while_the_node_is_silent(world: World) -> None:
    store = world.store
    for node in ("silent", "back", "stopped"):
        world.node(node)
    for node in ("silent", "back", "stopped", "forgotten"):
        report(store, "inactive-nodes", node, ago=CONDITIONS["inactive-nodes"] * 0.6)
    for node, values in (("silent", {"active": False}), ("stopped", {"active": False, "incarnation": None})):
        change = sa.update(nodes).where(nodes.c.name == node).values(values)
        store.run(lambda connection, change=change: connection.execute(change).close())  # type: ignore[misc]
    assert store.run(follow_silent_nodes, 100) == 3
    [lasting] = Client(store).alerts.list(on=True).items
    assert lasting.subject == "silent"
    assert (lasting.last_seen_at - lasting.raised_at).total_seconds() > 600
    assert store.run(follow_silent_nodes, 100) == 0


def test_old_alerts_and_surplus_ones_are_deleted_in_batches(world: World) -> None:
    store = world.store
    for number in range(8):
        report(store, "dead-tasks", f"q{number}", ago=7200.0 if number < 3 else 0.0)
    assert store.run(purge_alerts, 100, 3600.0, 2) == 2
    assert store.run(purge_alerts, 100, 3600.0, 100) == 1
    assert store.run(purge_alerts, 2, 3600.0, 2) == 2
    assert store.run(purge_alerts, 2, 3600.0, 100) == 1
    assert [subject for _, subject, _, _ in listed(store)] == ["q7", "q6"]


def test_pages_and_filters(world: World) -> None:
    store, client = world.store, Client(world.store)
    for number in range(4):
        report(store, "dead-tasks", f"q{number}", ago=7200.0 if number == 0 else 0.0)
    report(store)
    first = client.alerts.list(limit=3)
    second = client.alerts.list(limit=3, after=first.next)
    subjects = [[one.subject for one in page.items] for page in (first, second)]
    assert (subjects, second.next) == ([["video", "q3", "q2"], ["q1", "q0"]], None)
    assert [subject for _, subject, _, _ in listed(store, since="1h", on=False)] == ["q3", "q2", "q1"]
    assert listed(store, kinds=["backlog"]) == [("backlog", "video", "on", 1)]
    for field, wrong in (("kinds", []), ("kinds", ["recovered"]), ("after", "x"), ("on", 1)):
        with pytest.raises(InvalidFilter, match=field):
            client.alerts.list(**{field: wrong})  # type: ignore[arg-type]


def test_an_actor_of_some_queues_gets_the_alerts_about_them_and_no_other(world: World) -> None:
    store = world.store
    for kind in ("backlog", "dead-tasks", "inactive-nodes", "hung", "failed-runs"):
        for subject in ("mail", "video", ""):
            report(store, kind, subject)
    viewer = Client(store).acting_as(Actor.with_role("ann", "viewer", queues=["video"]))
    found = viewer.alerts.list().items
    assert [(one.kind, one.queue) for one in found] == [("dead-tasks", "video"), ("backlog", "video")]
    assert viewer.alerts.list(kinds=["hung"]).items == []
    report(store, "dead-tasks", "masked", text="login failed: password=hunter2")
    masking = Client(store, mask=["password"]).acting_as(Actor.with_role("ann", "viewer", queues=["masked"]))
    assert [one.text for one in masking.alerts.list().items] == ["login failed: password=***"]


def test_an_alert_names_the_node_that_it_is_about_apart_from_the_one_that_noticed_it(world: World) -> None:
    about: list[tuple[str, str, dict[str, object], str | None]] = [
        ("inactive-nodes", "gamma", {"nodes": ["gamma"]}, "gamma"),
        ("disk-unusable", "2", {"disk": 2, "node": "beta"}, "beta"),
        ("files-unreadable", "", {"disks": [2]}, None),
        ("backlog", "video", {"queue": "video"}, None),
        ("crash-loop", "video-1", {}, "alpha"),
    ]
    for kind, subject, data, _ in about:
        found = AlertReport(kind=kind, subject=subject, node="alpha", text="it is so", data=data)
        world.store.run(record_alert, found, ReportAge(0.0, 0.0))
    found_nodes = {one.kind: (one.about_node, one.node) for one in Client(world.store).alerts.list().items}
    assert found_nodes == {kind: (node, "alpha") for kind, _, _, node in about}
