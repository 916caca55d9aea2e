"""From this version to those that are still to come: which revisions let its nodes go on, and which do not."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from peerd.store.schema.migrate import current_revision, newest
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster
from tests.upgrade.conftest import NodeOf
from tests.upgrade.load import load_on
from tests.upgrade.versions import FutureRevision, Version, version_to_come

pytestmark = pytest.mark.slow

EXPANSION = FutureRevision(
    "9998",
    newest(),
    (
        "ALTER TABLE tasks ADD COLUMN colour VARCHAR(20) DEFAULT 'grey'",
        "CREATE TABLE colours (name VARCHAR(20) PRIMARY KEY)",
    ),
)
CONTRACTION = FutureRevision("9999", "9998", ("ALTER TABLE tasks DROP COLUMN colour", "DROP TABLE colours"))


@pytest.mark.one_database
def test_nodes_of_this_version_continue_with_newer_tables_and_replace_their_processes(
    project: Cluster, node_of: NodeOf, engine: Engine, tmp_path: Path
) -> None:
    this, next_one = Version(), version_to_come(tmp_path, "next", EXPANSION)
    this.call("migrate", "--database", project.url, folder=project.folder)
    old = node_of(this, "old")
    with load_on(engine, project) as load:
        load.wait_for_runs("old")
        log_text = next_one.call("migrate", "--database", project.url, folder=project.folder)
        assert f"migrated from revision {newest()} to 9998" in log_text
        assert f"nodes that support revision {newest()} or later continue" in log_text
        for slot in ("jobs-1", "agent", "manager"):
            pid = old.pid(slot)
            load.note_death(pid)
            old.signal_slot(slot, signal.SIGKILL)
            eventually(old.replaced(slot, pid), timeout=WITHIN, message=old.log_text)
        load.wait_for_runs("old")
        new = node_of(next_one, "new")
        load.wait_for_runs("new")
        another = node_of(this, "another")
        load.wait_for_runs("another")
        assert another.stop() == 0
        load.wait_for_runs("old")
        assert old.stop() == 0
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.log_text().lower()
    assert current_revision(project.client.database) == "9998"
    assert {row.version for row in project.client.nodes.list()} == {"0.1.0"}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_messages_of_this_version_about_newer_tables(project: Cluster, tmp_path: Path) -> None:
    this, next_one = Version(), version_to_come(tmp_path, "next", EXPANSION)
    where = ("--database", project.url)
    next_one.call("migrate", *where, folder=project.folder)
    (project.folder / "peerd.toml").write_text("")
    for words in (("check",), ("doctor",), ("migrate",)):
        log_text = this.call(*words, *where, folder=project.folder)
        assert "at revision 9998" in log_text
        assert f"newer than this version's {newest()}, but compatible" in log_text


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_a_contraction_waits_until_no_older_node_runs_and_lets_none_begin_again(
    project: Cluster, node_of: NodeOf, engine: Engine, tmp_path: Path
) -> None:
    this, after = Version(), version_to_come(tmp_path, "after", EXPANSION, CONTRACTION)
    where = ("--database", project.url)
    this.call("migrate", *where, folder=project.folder)
    old = node_of(this, "old")
    with load_on(engine, project) as load:
        load.wait_for_runs("old")
        log_text = after.call("migrate", *where, folder=project.folder, status=1)
        assert "revision 9999 takes away what older nodes need, and old is running" in log_text
        assert current_revision(project.client.database) == newest()
        pid = old.pid("jobs-1")
        load.note_death(pid)
        old.signal_slot("jobs-1", signal.SIGKILL)
        eventually(old.replaced("jobs-1", pid), timeout=WITHIN, message=old.log_text)
        load.wait_for_runs("old")
        assert old.stop() == 0
        assert "nodes that do not support revision 9998 cannot continue" in after.call(
            "migrate", *where, folder=project.folder
        )
        refused = this.call("up", "--config", str(old.config), folder=project.folder, status=1)
        assert "the database is at revision 9999, which this version of peerd does not know" in refused
        new = node_of(after, "new")
        load.wait_for_runs("new")
    load.wait_for_the_end()
    load.check()
    assert "error" not in new.log_text().lower()
    for words in (("check",), ("doctor",)):
        assert "install the version of peerd that migrated" in this.call(
            *words, "--config", str(old.config), folder=project.folder, status=1
        )
