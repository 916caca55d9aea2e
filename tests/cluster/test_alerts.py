"""Alerts of real nodes are in the table: a backlog, also beyond the manager that found it, and a silent node."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from peerd.domain.alert_record import AlertState
from peerd.store.alerts.reading import AlertRecord
from peerd.store.schema.tables import tasks
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster


def alert_of(cluster: Cluster, kind: str, state: AlertState) -> AlertRecord | None:
    found = [alert for alert in cluster.client.alerts.list(kinds=[kind]).items if alert.state is state]
    assert len(found) <= 1, found
    return found[0] if found else None


@pytest.mark.one_database
def test_a_backlog_is_on_until_it_is_over_although_the_manager_that_found_it_has_died(each_cluster: Cluster) -> None:
    cluster = each_cluster
    cluster.client.queues.pause("later")
    cluster.client.queues.resume("later")
    job = cluster.client.enqueue("later")
    two_hours_ago = cluster.client.now() - timedelta(hours=2)
    back = sa.update(tasks).where(tasks.c.id == job.id).values(created_at=two_hours_ago)
    cluster.client.database.run(lambda connection: connection.execute(back).close())
    [node] = cluster.up("one")
    on = eventually(lambda: alert_of(cluster, "backlog", AlertState.ON), timeout=WITHIN, message=node.log_text)
    assert on is not None
    assert (on.subject, on.node, on.slot, on.times, on.data["queue"]) == ("later", "one", "manager", 1, "later")
    cluster.client.tasks.delete(job.id)
    pid = node.kill("manager")
    ended = eventually(lambda: alert_of(cluster, "backlog", AlertState.ENDED), timeout=WITHIN, message=node.log_text)
    assert ended is not None
    assert (ended.id, ended.times, node.pid("manager") != pid) == (on.id, 1, True)
    assert cluster.client.alerts.list(on=True).items == []


def test_a_killed_node_is_an_alert_that_is_on(cluster: Cluster) -> None:
    one, two = cluster.up("one", "two")
    two.kill_all()
    on = eventually(lambda: alert_of(cluster, "inactive-nodes", AlertState.ON), timeout=WITHIN, message=one.log_text)
    assert on is not None
    assert (on.subject, on.node, on.text) == ("two", "one", "two fell silent")
