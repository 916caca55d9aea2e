"""Nodes at three servers of a Galera cluster, of which one dies and comes back: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store.enqueue import enqueue_many
from peerd.testing import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import MakeCluster
from tests.support.galera import Galera

TASKS = 3000
LONG = 240.0
HELD_TASKS = 6
PATIENT = {"max_update": 60, "inactive_after": "30s"}
"""Of a manager. The group accepts no commit until it has expelled the killed server: 5 s by its own setting
(`evs.suspect_timeout`), more on a busy machine. Nodes that give up a process earlier rescue tasks that are held."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_of_three_servers_is_killed_under_load_and_comes_back(
    private_galera: Galera, make_cluster: MakeCluster, record_line: Callable[[str, str], None]
) -> None:
    cluster = make_cluster(private_galera.multi_host_url("peerd"))
    nodes = []
    for index in (0, 2):
        url = private_galera.multi_host_url("peerd", first=index)
        nodes.append(cluster.node(f"n{index}", database={"url": url}, manager=PATIENT, count=20).start())
    for node in nodes:
        node.wait_until_running()
    held = [cluster.enqueue("gated") for _ in range(HELD_TASKS)]
    for job in held:
        cluster.wait_for(job, "began")
    first = enqueue(cluster, TASKS)
    wait_until_done(cluster, TASKS // 5)

    victim = private_galera.servers[2]
    victim.kill()
    second = enqueue(cluster, 500)
    elsewhere = cluster.done(cluster.enqueue("quick", node="n2"), within=LONG)
    assert elsewhere.result is not None, "the node of that server works with another one"
    wait_until_done(cluster, len(first) + len(second))
    victim.start()
    private_galera.wait_until_synced()
    third = enqueue(cluster, 500)
    wait_until_done(cluster, len(first) + len(second) + len(third))
    for job in held:
        cluster.open(job)
        task = cluster.done(job, within=LONG)
        assert (task.lease, task.attempts) == (1, 0), "it was held all the time"

    everything = [*first, *second, *third, elsewhere.id]
    assert len(set(everything)) == len(everything)
    begun = Counter((event["task"], event["lease"]) for event in cluster.notes(event="ran"))
    assert set(begun.values()) == {1}, "no claim was run twice"
    for task_id in everything:
        task = cluster.client.tasks.get(task_id)
        assert task.status is Status.DONE
        assert (task_id, task.lease) in begun, "whoever ended it has run it"
    again = sum(begun.values()) - len(everything)
    record_line("galera", f"one server of three killed: {len(everything)} tasks done, {again} of them run once more")
    for node in nodes:
        assert node.state() == "running"


def enqueue(cluster: Cluster, number: int) -> list[int]:
    """Enqueue so many; the ids of those that were accepted."""
    new = [NewTask(queue="jobs", name="quick", body="{}") for _ in range(number)]
    return [one.id for one in cluster.client.database.run(enqueue_many, new)]


def wait_until_done(cluster: Cluster, number: int) -> None:
    def enough() -> bool:
        return cluster.client.tasks.counts().get(Status.DONE, 0) >= number

    eventually(enough, timeout=LONG, every=0.2, message=cluster.describe)
