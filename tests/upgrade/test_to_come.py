"""From this version to one that is still to come, whose tables its nodes can go on with."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.store.schema.migrate import find_schema_version, newest
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.support.servers import DatabaseFactory
from tests.upgrade.load import load_on
from tests.upgrade.versions import FutureRevision, Version, version_to_come

EXPANSION = FutureRevision(
    "9998",
    newest(),
    ("ALTER TABLE tasks ADD COLUMN colour VARCHAR(20)", "CREATE TABLE IF NOT EXISTS colours (name VARCHAR(20))"),
)


@pytest.fixture
def project(tmp_path: Path, database_factory: DatabaseFactory) -> Iterator[Cluster]:
    """A project on a database that has no tables yet."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, database_factory("postgresql"), migrated=False)
    shutil.copy(Path(__file__).with_name("jobs.py"), folder)
    yield cluster
    left = cluster.clean_up()
    print("\n".join(node.log_text() for node in cluster.nodes))  # noqa: T201 - pytest shows it with a failure
    assert not left, f"processes were left behind: {left}"


@pytest.mark.slow
def test_nodes_of_this_version_continue_with_newer_tables_and_replace_their_processes(
    project: Cluster, tmp_path: Path
) -> None:
    def node_of(version: Version, name: str) -> ClusterNode:
        project.environment = version.environment
        return project.node(name).up()

    def call(version: Version, *words: str, status: int | None = 0) -> str:
        return version.call(*words, folder=project.folder, status=status)

    this, next_one = Version(), version_to_come(tmp_path, EXPANSION)
    call(this, "migrate", "--database", project.url)
    old = node_of(this, "old")
    with load_on(project) as load:
        load.wait_for_runs("old")
        said = call(next_one, "migrate", "--database", project.url)
        assert f"migrated from revision {newest()} to 9998" in said
        assert f"nodes that support revision {newest()} or later continue" in said
        for slot in ("jobs-1", "agent", "manager"):
            pid = old.pid(slot)
            load.deaths[pid] = time.monotonic()
            old.kill(slot)
            eventually(old.replaced(slot, pid), timeout=WITHIN, message=old.log_text)
        for command in ("check", "doctor", "migrate"):
            said = call(this, command, "--config", str(old.config), status=None)
            assert "at revision 9998" in said
            assert f"newer than this version's {newest()}, but compatible" in said
        new = node_of(next_one, "new")
        load.wait_for_runs("new")
        doctor = call(next_one, "doctor", "--config", str(new.config), status=None)
        assert "old (peerd 0.1.0) is older than the tables" in doctor
        another = node_of(this, "another")
        load.wait_for_runs("another")
        assert another.stop() == old.stop() == 0
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.log_text().lower()
    assert getattr(find_schema_version(project.client.database), "revision", None) == "9998"
    with project.client.database.engine.connect() as connection:
        revisions = connection.execute(sa.text("SELECT name, revision FROM nodes ORDER BY name")).all()
    assert [tuple(row) for row in revisions] == [("another", newest()), ("new", "9998"), ("old", newest())]
