"""`cluster`: on SQLite. `each_cluster`: the test runs on each of the three databases. No process may be left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.support.servers import DatabaseFactory

MakeCluster = Callable[[str], Cluster]


@pytest.fixture
def make_cluster(tmp_path: Path, migrated_factory: DatabaseFactory) -> Iterator[MakeCluster]:
    """Make a cluster on a database. (Databases are dropped after it has ended, so their factory comes first.)"""
    with ExitStack() as afterwards:

        def make(url: str) -> Cluster:
            folder = tmp_path / "cluster"
            folder.mkdir()
            cluster = Cluster(folder, url)
            afterwards.callback(end, cluster)
            return cluster

        yield make


@pytest.fixture
def cluster(make_cluster: MakeCluster, migrated_factory: DatabaseFactory) -> Cluster:
    return make_cluster(migrated_factory("sqlite"))


@pytest.fixture
def each_cluster(make_cluster: MakeCluster, migrated_database: str) -> Cluster:
    return make_cluster(migrated_database)


def end(cluster: Cluster) -> None:
    """Stop what runs; what a stop left behind is an error, and so is a fault in a master."""
    left = cluster.clean_up()
    log_text = "\n".join(node.log_text() for node in cluster.nodes)
    print(log_text)  # noqa: T201 - pytest shows it with a failure
    assert not left, f"processes were left behind: {left}"
    assert "fault in the master" not in log_text
    assert "an event without a message" not in log_text
