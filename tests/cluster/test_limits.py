"""Limits in a cluster of real processes: never more at once than they allow, whoever dies."""

from __future__ import annotations

from collections import Counter

import pytest

from peerd import Job
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster


def running(cluster: Cluster) -> set[int]:
    """The tasks whose handlers began an attempt, and neither ended it nor died in it."""
    latest = {
        event["task"]: event["event"] for event in cluster.notes() if event["event"] in ("began", "ended", "cancelled")
    }
    return {task for task, event in latest.items() if event == "began"}


def max_running(cluster: Cluster, keys: dict[int, str]) -> Counter[str]:
    """How many tasks of each key ran at once at the most, by the order of their events."""
    now: dict[int, str] = {}
    most: Counter[str] = Counter()
    for event in cluster.notes():
        if event["event"] == "began":
            now[event["task"]] = keys[event["task"]]
        elif event["event"] in ("ended", "cancelled"):
            now.pop(event["task"], None)
        for key, number in Counter(now.values()).items():
            most[key] = max(most[key], number)
    return most


@pytest.mark.one_database
def test_of_each_key_no_more_run_at_once_than_its_limit_allows(each_cluster: Cluster) -> None:
    cluster = each_cluster
    cluster.client.limits.set("jobs", each_key=True, running=1)
    cluster.client.limits.set("jobs", key="b", running=2)
    cluster.up("one", "two", processes=2, count=3)
    keyed = {key: [cluster.enqueue("gated", limit_key=key) for _ in range(4)] for key in "ab"}
    keys = {job.id: key for key, jobs in keyed.items() for job in jobs}
    plain = [cluster.enqueue("quick") for _ in range(20)]
    left: set[int] = set(keys)
    while left:
        allowed = {"a": 1, "b": 2}
        wanted = sum(min(most, sum(keys[task] == key for task in left)) for key, most in allowed.items())
        eventually(lambda: len(running(cluster)) == wanted, timeout=WITHIN, message=cluster.describe)  # noqa: B023
        for task in running(cluster):
            cluster.open(Job(task, created=True, find_task=lambda _: None))
            left.discard(task)
    for job in [*plain, *keyed["a"], *keyed["b"]]:
        cluster.done(job)
    assert max_running(cluster, keys) == {"a": 1, "b": 2}


@pytest.mark.one_database
def test_the_capacity_of_a_killed_holder_is_used_by_the_next_claim(each_cluster: Cluster) -> None:
    cluster = each_cluster
    cluster.client.limits.set("jobs", each_key=True, running=1)
    nodes = {node.name: node for node in cluster.up("one", "two", count=2)}
    first, second = [cluster.enqueue("gated", limit_key="file.mp4") for _ in range(2)]
    began = cluster.wait_for(first, "began")
    assert not cluster.notes(second, "began")
    cluster.open(second)
    cluster.open(first)
    nodes[began["node"]].kill("jobs-1")
    assert {cluster.done(job).status.value for job in (first, second)} == {"done"}


def test_a_limited_queue_runs_no_more_than_its_limit_with_keys_and_without(cluster: Cluster) -> None:
    cluster.client.limits.set("jobs", running=2)
    cluster.up("one", "two", processes=2, count=3)
    jobs = [cluster.enqueue("gated", limit_key=key) for key in (None, "a", None, "b", "a", None)]
    keys = {job.id: "all" for job in jobs}
    opened: set[int] = set()
    while len(opened) < len(jobs):
        eventually(lambda: len(running(cluster) - opened) == 2, timeout=WITHIN, message=cluster.describe)
        for task in running(cluster) - opened:
            cluster.open(Job(task, created=True, find_task=lambda _: None))
            opened.add(task)
    for job in jobs:
        cluster.done(job)
    assert max_running(cluster, keys) == {"all": 2}
