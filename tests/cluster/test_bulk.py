"""Bulk actions on a cluster whose managers and nodes are killed."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkAction, BulkRetry, BulkState
from peerd.operate.task_filter import TaskFilter
from peerd.store.schema.tables import tasks
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster

NUMBER = 700
SMALL_CHUNKS: dict[str, Any] = {"batch": 5}


@pytest.mark.one_database
def test_killed_managers_and_a_killed_node_leave_it_to_the_others_and_nothing_is_done_twice(
    each_cluster: Cluster,
) -> None:
    one, two = each_cluster.up("one", "two", manager=SMALL_CHUNKS)
    client = each_cluster.client
    rows = [{"queue": "nobody-serves-it", "status": "dead", "lease": number} for number in range(NUMBER)]
    client.database.run(lambda connection: connection.execute(sa.insert(tasks), rows).rowcount)
    bulk = client.bulk.create(BulkRetry(), TaskFilter(status="dead"))

    def progress() -> BulkAction:
        return client.bulk.get(bulk.id)

    def reach(done: int) -> None:
        eventually(lambda: progress().done >= done, timeout=WITHIN, message=each_cluster.describe)

    for done, node in ((50, one), (100, two), (150, one)):
        reach(done)
        node.kill("manager")
    reach(200)
    one.kill_all()
    killed_at = progress()
    assert killed_at.state is BulkState.RUNNING, "it was killed in the middle"
    assert killed_at.done < NUMBER
    eventually(lambda: progress().has_ended, timeout=WITHIN, message=each_cluster.describe)
    ended = progress()
    assert (ended.state, ended.done, ended.skipped, ended.failed) == (BulkState.DONE, NUMBER, 0, 0)
    found = client.tasks.list(queue="nobody-serves-it", limit=NUMBER)
    assert {str(task.status) for task in found} == {"pending"}
    assert sorted(task.lease for task in found) == [number + 1 for number in range(NUMBER)], "each was retried once"
    assert "a bulk action is done" in two.log_text()
