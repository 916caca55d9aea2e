"""A project whose nodes are of several versions, on each of the three databases."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from peerd.store.connection.engines import open_engines, with_driver
from tests.cluster.cluster import Cluster, ClusterNode
from tests.upgrade.versions import Version

JOBS = Path(__file__).parent / "jobs.py"
NodeOf = Callable[..., ClusterNode]


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """Connections that belong to no version."""
    engine = open_engines(with_driver(database), 5).transactions
    yield engine
    engine.dispose()


@pytest.fixture
def project(tmp_path: Path, database: str) -> Iterator[Cluster]:
    """A project on a database that has no tables yet."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, database, migrated=False)
    shutil.copy(JOBS, folder / "jobs.py")
    yield cluster
    left = cluster.clean_up()
    print("\n".join(node.log_text() for node in cluster.nodes))  # noqa: T201 - pytest shows it with a failure
    assert not left, f"processes were left behind: {left}"


@pytest.fixture
def node_of(project: Cluster) -> NodeOf:
    """Start a node of a version, and wait until it is ready."""

    def up(version: Version, name: str) -> ClusterNode:
        project.environment = version.environment
        return project.node(name).up()

    return up
