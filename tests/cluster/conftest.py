"""A cluster for a test, or one that the tests of a module share. No process may be left behind.

`make_cluster`     for one test, on any database
`module_cluster`   for all tests of a module, whose fixture `shared` boots its nodes
`cluster`          the module's `shared` one, with nothing to do; without that, one for the test, on SQLite
`node`             its first node
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, ClusterNode
from tests.support.servers import DatabaseFactory

MakeCluster = Callable[[str], Cluster]


@pytest.fixture
def make_cluster(tmp_path: Path, migrated_factory: DatabaseFactory) -> Iterator[MakeCluster]:
    """Make a cluster at a database. (Databases are dropped after it has ended, so their factory comes first.)"""
    with ExitStack() as afterwards:
        yield lambda url: _made(tmp_path / "cluster", url, afterwards)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if hasattr(request.module, "shared"):
        shared: Cluster = request.getfixturevalue("shared")
        return shared.reset()
    make_cluster = request.getfixturevalue("make_cluster")
    made: Cluster = make_cluster(request.getfixturevalue("migrated_factory")("sqlite"))
    return made


@pytest.fixture
def node(cluster: Cluster) -> ClusterNode:
    return cluster.nodes[0]


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory, module_factory: DatabaseFactory) -> Iterator[MakeCluster]:
    """Make a cluster on a database of a kind, whose nodes live as long as the module's tests run."""
    with ExitStack() as afterwards:
        yield lambda kind: _made(tmp_path_factory.mktemp("shared") / "cluster", module_factory(kind), afterwards)


def _made(folder: Path, url: str, afterwards: ExitStack) -> Cluster:
    folder.mkdir()
    cluster = Cluster(folder, url)
    afterwards.callback(end, cluster)
    return cluster


def end(cluster: Cluster) -> None:
    """Stop what runs; what a stop left behind is an error, and so is a fault in a master."""
    left = cluster.clean_up()
    log_text = "\n".join(node.log_text() for node in cluster.nodes)
    print(log_text)  # noqa: T201 - pytest shows it with a failure
    assert not left, f"processes were left behind: {left}"
    assert "fault in the master" not in log_text
    assert "an event without a message" not in log_text
