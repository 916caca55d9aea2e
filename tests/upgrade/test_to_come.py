"""From this version to those that are still to come: which revisions let its nodes go on, and which do not."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.store.schema.migrate import current_revision, newest
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.support.servers import DatabaseFactory
from tests.upgrade.load import SqlLoad, load_on
from tests.upgrade.versions import FutureRevision, Version, version_to_come

pytestmark = pytest.mark.slow

EXPANSION = FutureRevision(
    "9998",
    newest(),
    ("ALTER TABLE tasks ADD COLUMN colour VARCHAR(20)", "CREATE TABLE IF NOT EXISTS colours (name VARCHAR(20))"),
)
CONTRACTION = FutureRevision("9999", "9998", ("ALTER TABLE tasks DROP COLUMN colour", "DROP TABLE IF EXISTS colours"))


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, database_factory: DatabaseFactory) -> Iterator[Cluster]:
    """A project on a database, whose kind is the parameter, that has no tables yet."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder, database_factory(request.param), migrated=False)
    shutil.copy(Path(__file__).with_name("jobs.py"), folder)
    yield cluster
    left = cluster.clean_up()
    print("\n".join(node.log_text() for node in cluster.nodes))  # noqa: T201 - pytest shows it with a failure
    assert not left, f"processes were left behind: {left}"


def node_of(version: Version, project: Cluster, name: str) -> ClusterNode:
    project.environment = version.environment
    return project.node(name).up()


def replace_killed(node: ClusterNode, slot: str, load: SqlLoad) -> None:
    pid = node.pid(slot)
    load.deaths[pid] = time.monotonic()
    node.kill(slot)
    eventually(node.replaced(slot, pid), timeout=WITHIN, message=node.log_text)


@pytest.mark.parametrize("project", ["postgresql"], indirect=True)
def test_nodes_of_this_version_continue_with_newer_tables_and_replace_their_processes(
    project: Cluster, tmp_path: Path
) -> None:
    this, next_one = Version(), version_to_come(tmp_path, EXPANSION)
    this.call("migrate", "--database", project.url, folder=project.folder)
    old = node_of(this, project, "old")
    with load_on(project) as load:
        load.wait_for_runs("old")
        log_text = next_one.call("migrate", "--database", project.url, folder=project.folder)
        assert f"migrated from revision {newest()} to 9998" in log_text
        assert f"nodes that support revision {newest()} or later continue" in log_text
        for slot in ("jobs-1", "agent", "manager"):
            replace_killed(old, slot, load)
        for command in ("check", "doctor", "migrate"):
            log_text = this.call(command, "--config", str(old.config), folder=project.folder, status=None)
            assert "at revision 9998" in log_text
            assert f"newer than this version's {newest()}, but compatible" in log_text
        new = node_of(next_one, project, "new")
        load.wait_for_runs("new")
        doctor = next_one.call("doctor", "--config", str(new.config), folder=project.folder, status=None)
        assert "old (peerd 0.1.0) is older than the tables" in doctor
        another = node_of(this, project, "another")
        load.wait_for_runs("another")
        assert another.stop() == 0
        load.wait_for_runs("old")
        assert old.stop() == 0
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.log_text().lower()
    assert current_revision(project.client.database) == "9998"
    with project.client.database.engine.connect() as connection:
        revisions = connection.execute(sa.text("SELECT name, revision FROM nodes ORDER BY name")).all()
    assert [tuple(row) for row in revisions] == [("another", newest()), ("new", "9998"), ("old", newest())]


@pytest.mark.parametrize("project", ["mariadb"], indirect=True)
def test_a_contraction_waits_until_no_older_node_runs_and_lets_none_begin_again(
    project: Cluster, tmp_path: Path
) -> None:
    this, after = Version(), version_to_come(tmp_path, EXPANSION, CONTRACTION)
    migrate = ("migrate", "--database", project.url)
    this.call(*migrate, folder=project.folder)
    old = node_of(this, project, "old")
    with load_on(project) as load:
        load.wait_for_runs("old")
        log_text = after.call(*migrate, folder=project.folder, status=1)
        assert "revision 9999 takes away what older nodes need, and old is running" in log_text
        assert current_revision(project.client.database) == newest()
        replace_killed(old, "jobs-1", load)
        load.wait_for_runs("old")
        assert old.stop() == 0
        log_text = after.call(*migrate, folder=project.folder)
        assert "nodes that do not support revision 9998 cannot continue" in log_text
        refused = this.call("up", "--config", str(old.config), folder=project.folder, status=1)
        assert "the database is at revision 9999, which this version of peerd does not know" in refused
        new = node_of(after, project, "new")
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.log_text().lower()
    for command in ("check", "doctor"):
        refused = this.call(command, "--config", str(old.config), folder=project.folder, status=1)
        assert "install the version of peerd that migrated" in refused
