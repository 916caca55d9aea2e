"""From a version whose code cannot work with the tables as they are now: no node of it is left behind, nor any task."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from peerd.store.schema.migrate import newest
from tests.cluster.cluster import Cluster
from tests.upgrade.conftest import NodeOf
from tests.upgrade.load import load_on
from tests.upgrade.versions import Version, earlier_version

pytestmark = pytest.mark.slow


@pytest.mark.one_database
def test_a_running_node_of_the_earlier_version_keeps_the_migration_out_until_it_has_stopped(
    project: Cluster, node_of: NodeOf, engine: Engine, tmp_path: Path
) -> None:
    earlier, this = earlier_version(tmp_path), Version()
    earlier.call("migrate", "--database", project.url, folder=project.folder)
    old = node_of(earlier, "old")
    with load_on(engine, project) as load:
        load.wait_for_runs("old")
        refused = this.call("migrate", "--database", project.url, folder=project.folder, status=1)
        assert "old" in refused
        load.wait_for_runs("old")
        assert old.stop() == 0
        log_text = this.call("migrate", "--database", project.url, folder=project.folder)
        assert f"migrated from revision 0001 to {newest()}" in log_text
        new = node_of(this, "new")
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.log_text().lower()
    with engine.connect() as connection:
        knows = connection.execute(sa.text("SELECT name, revision FROM nodes ORDER BY name")).all()
    assert [tuple(row) for row in knows] == [("new", newest()), ("old", None)]
