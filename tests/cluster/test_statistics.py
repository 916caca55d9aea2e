"""Real processes write what they have done: each attempt once, up to their end; and one node samples the queues."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import depths, statistics
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster


def counted(cluster: Cluster) -> dict[int, int]:
    """Attempts that succeeded, by the process that counted them."""
    columns = (statistics.c.process_id, sa.func.sum(statistics.c.done))
    statement = sa.select(*columns).where(statistics.c.step == 60).group_by(statistics.c.process_id)
    rows = cluster.client.database.read(lambda connection: connection.execute(statement).all())
    return {process_id: int(done) for process_id, done in rows}


def run(cluster: Cluster, number: int) -> None:
    for job in [cluster.enqueue("quick") for _ in range(number)]:
        cluster.done(job)


@pytest.mark.one_database
def test_a_graceful_end_writes_the_counts_of_all_processes(each_cluster: Cluster) -> None:
    one, two = each_cluster.up("one", "two", processes=2)
    run(each_cluster, 30)
    failing = each_cluster.enqueue("fails_once")
    each_cluster.done(failing)
    one.stop()
    two.stop()
    assert sum(counted(each_cluster).values()) == 31
    rows = {row.name: row.figures for row in each_cluster.client.statistics.summary("10m", by="handler")}
    assert (rows["quick"].done, rows["fails_once"].done, rows["fails_once"].failed) == (30, 1, 1)
    assert rows["quick"].wait.count == rows["quick"].run.count == 30
    by_node = each_cluster.client.statistics.summary("10m", by="node")
    assert sum(row.figures.done for row in by_node) == 31
    assert {row.node for row in by_node} <= {"one", "two"}


def test_a_killed_process_loses_what_it_has_not_written_and_doubles_nothing(cluster: Cluster) -> None:
    cluster.environment["FLUSH_EVERY"] = "0.5"
    [node] = cluster.up("one")
    run(cluster, 10)
    eventually(lambda: sum(counted(cluster).values()) == 10, timeout=WITHIN, message=node.log_text)
    run(cluster, 5)
    pid = node.kill("jobs-1")
    eventually(node.replaced("jobs-1", pid), timeout=WITHIN, message=node.log_text)
    of_the_dead = sum(counted(cluster).values())
    assert 10 <= of_the_dead <= 15
    run(cluster, 10)
    eventually(lambda: sum(counted(cluster).values()) == of_the_dead + 10, timeout=WITHIN, message=node.log_text)
    assert len(counted(cluster)) == 2
    node.stop()
    assert sum(counted(cluster).values()) == of_the_dead + 10


def test_slots_are_busy_while_a_long_task_runs(cluster: Cluster) -> None:
    cluster.environment["FLUSH_EVERY"] = "0.5"
    [node] = cluster.up("one")
    job = cluster.enqueue("gated")
    began = time.monotonic()
    cluster.wait_for(job, "began")

    def busy_seconds() -> float:
        overview = cluster.client.statistics.overview()
        return sum(one.busy for one in overview.nodes) * overview.figures.seconds

    eventually(lambda: busy_seconds() > 1.0, timeout=WITHIN, message=node.log_text)
    assert busy_seconds() <= time.monotonic() - began + 1.0
    assert cluster.client.statistics.overview().slots == 4
    cluster.open(job)
    cluster.done(job)


@pytest.mark.one_database
def test_the_first_node_samples_the_queues_and_the_next_one_when_it_has_died(each_cluster: Cluster) -> None:
    each_cluster.client.enqueue("nobody", name="waits")  # before the first sample: the second may be minutes later
    [one] = each_cluster.up("one")  # the first to register
    [two] = each_cluster.up("two")

    def samples() -> list[datetime]:
        at = sa.select(depths.c.at).distinct().where(depths.c.step == 15).order_by(depths.c.at)
        return list(each_cluster.client.database.read(lambda connection: connection.execute(at).scalars().all()))

    eventually(lambda: each_cluster.client.statistics.overview().counts == {Status.PENDING: 1}, timeout=WITHIN)
    one.kill_all()
    before = samples()
    eventually(lambda: len(samples()) > len(before), timeout=WITHIN, message=two.log_text)
    overview = each_cluster.client.statistics.overview()
    assert {node.name: node.state for node in overview.nodes} == {"one": "silent", "two": "active"}
    assert any("one is silent" in problem for problem in overview.problems)
