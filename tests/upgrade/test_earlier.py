"""From the version that knew nothing of upgrades to this one: node by node, under load."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from peerd.store.migrate import newest
from tests.cluster.cluster import Cluster
from tests.upgrade.conftest import NodeOf
from tests.upgrade.load import load_on
from tests.upgrade.versions import Version, earlier_version

pytestmark = pytest.mark.slow


def test_a_running_node_of_the_earlier_version_survives_the_migration_and_works_beside_this_one(
    project: Cluster, node_of: NodeOf, engine: Engine, tmp_path: Path
) -> None:
    earlier, this = earlier_version(tmp_path), Version()
    earlier.call("migrate", "--database", project.url, folder=project.folder)
    old = node_of(earlier, "old")
    with load_on(engine, project) as load:
        load.wait_for_runs("old")
        said = this.call("migrate", "--database", project.url, folder=project.folder)
        assert f"migrated from revision 0001 to {newest()}" in said
        assert "can start no process anew: upgrade them soon" in said
        load.wait_for_runs("old")
        new = node_of(this, "new")
        load.wait_for_runs("new")
        load.wait_for_runs("old")
        found = this.call("doctor", "--database", project.url, folder=project.folder, status=None)
        assert "old (peerd 0.1.0) is older than the tables, and can start no process anew" in found
        load.note_death("old")
        old.kill_all()
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.said().lower()
    with engine.connect() as connection:
        knows = connection.execute(sa.text("SELECT name, revision FROM nodes ORDER BY name")).all()
    assert [tuple(row) for row in knows] == [("new", newest()), ("old", None)]
