"""What every node does again and again: disks that are lost or missing are replaced, those that are back trimmed."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.files import DiskState, FileClass
from peerd.runtime.observability.events import ComponentFailed
from peerd.storage.disk.errors import DiskError, UnexpectedEntry
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.identity import create_disk
from peerd.storage.disk.open_disk import DiskUsage
from peerd.storage.maintenance import StorageMaintenance
from peerd.storage.placement.balance import TOLERANCE
from peerd.storage.placement.brake import GRACE
from peerd.storage.rebalancing import move_on
from peerd.store.files.checks import request_checks
from peerd.store.files.classes import set_class
from peerd.store.files.copies import copies_bad
from peerd.store.files.disks import cluster_identity, set_disk_state
from peerd.store.files.risks import files_at_risk
from peerd.store.files.walks import begin_rebalance
from peerd.store.schema.tables import disks, file_checks, file_copies, files, tasks
from peerd.store.schema.types import seconds_from_now
from tests.storage.nodes import ServedNode, StorageCluster, ask_node


@pytest.fixture
def cluster(cluster: StorageCluster) -> StorageCluster:
    """Three nodes, and a bucket `films`."""
    cluster.catalogue.bucket()
    return cluster


def put_many(node: ServedNode, count: int = 12) -> dict[str, bytes]:
    contents = {f"f{number:02}": os.urandom(2_000 + number) for number in range(count)}
    for key, content in contents.items():
        assert ask_node(node, "PUT", f"/files/films/{key}", content).status_code == 201
    return contents


def states(cluster: StorageCluster, disk: int) -> dict[str, int]:
    counted = sa.select(file_copies.c.state, sa.func.count()).where(file_copies.c.disk_id == disk)
    rows = cluster.catalogue.store.read(lambda c: c.execute(counted.group_by(file_copies.c.state)).all())
    return {str(state): count for state, count in rows}


def assert_whole(cluster: StorageCluster, contents: dict[str, bytes]) -> None:
    """Each file has two good copies and no others, on disks and in the catalogue, and is read from every node."""
    copies = sa.select(file_copies.c.file_id, file_copies.c.disk_id, file_copies.c.state)
    rows = cluster.catalogue.store.read(lambda connection: connection.execute(copies).all())
    assert {row.state for row in rows} == {"stored"}
    assert len(rows) == 2 * len(contents)
    assert cluster.catalogue.count(file_checks) == 0
    for node in cluster.nodes.values():
        assert node.contents() == sorted(f"{row.file_id:016x}" for row in rows if row.disk_id == node.disk)
        for key, content in contents.items():
            assert ask_node(node, "GET", f"/files/films/{key}").content == content


def assert_stored_twice(cluster: StorageCluster, contents: dict[str, bytes], *, without: int) -> None:
    """Each file has two good copies, and none on a disk."""
    assert states(cluster, without) == {}
    assert cluster.catalogue.count(file_copies, file_copies.c.state == "stored") == 2 * len(contents)


def test_a_missing_disk_is_replaced_and_when_it_is_back_it_is_verified_and_trimmed(cluster: StorageCluster) -> None:
    contents = put_many(cluster.nodes["a"])
    cluster.keep()
    assert_whole(cluster, contents)
    away = cluster.nodes["b"]
    held = states(cluster, away.disk)["stored"]
    cluster.catalogue.silence(away.disk, GRACE + 10)
    cluster.keep("a", "c")
    assert states(cluster, away.disk) == {"stored": held}, "the catalogue does not forget it"
    assert states(cluster, cluster.nodes["a"].disk)["stored"] == len(contents)
    assert states(cluster, cluster.nodes["c"].disk)["stored"] == len(contents), "each has two copies again"
    damaged = away.contents()[0]
    away.content_path(int(damaged, 16)).write_bytes(b"rotten")
    cluster.keep()
    assert_whole(cluster, contents)
    row = cluster.catalogue.store.read(lambda c: c.execute(sa.select(disks).where(disks.c.id == away.disk)).one())
    assert (row.missing_at, row.verified_since is None) == (None, False)
    assert len(list((away.paths[0] / "quarantine").iterdir())) == 1


def test_every_copy_is_verified_in_time_and_bit_rot_is_found_and_mended(cluster: StorageCluster) -> None:
    contents, day = put_many(cluster.nodes["a"], 1), 86_400.0
    cluster.keep()
    [holder, _] = [node for node in cluster.nodes.values() if node.contents()]
    path = holder.content_path(int(holder.contents()[0], 16))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert [name for _, name, _ in cluster.keep()] == [], "all were verified and swept lately"
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-40 * day))
    done = cluster.keep()
    verified = [(name, outcome) for name, duty, outcome in done if duty == "verify"]
    assert (holder.name, {"verified": 0, "bad": 1}) in verified
    assert {"verified": 1, "bad": 0} in [outcome for _, outcome in verified]
    assert_whole(cluster, contents)


def test_a_surplus_copy_saves_a_file_whose_other_copies_have_rotted(cluster: StorageCluster) -> None:
    contents = put_many(cluster.nodes["a"], 1)
    store = cluster.catalogue.store
    store.run(set_class, FileClass(name="default", copies=3))
    cluster.keep()
    store.run(set_class, FileClass(name="default", copies=2))
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-7200))
    [file_id] = store.read(lambda connection: connection.execute(sa.select(files.c.id)).scalars().all())
    cluster.catalogue.change(disks, disks.c.id == cluster.nodes["c"].disk, free=1)
    for name in "ab":
        cluster.nodes[name].content_path(file_id).write_bytes(b"rotten")
    store.run(request_checks, {file_id: 3})
    cluster.keep()
    assert_whole(cluster, contents)


def test_copies_of_a_lost_disk_are_planned_step_by_step(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.storage.maintenance.MAX_PLANNED", 4)
    monkeypatch.setattr("peerd.storage.maintenance.CHECK_BATCH", 2)
    contents = put_many(cluster.nodes["a"], 20)
    cluster.keep()
    store = cluster.catalogue.store
    lost = max((cluster.nodes[name].disk for name in "bc"), key=lambda disk: states(cluster, disk)["stored"])
    of_lost = sa.select(file_copies.c.file_id).where(file_copies.c.disk_id == lost).order_by(file_copies.c.file_id)
    with_lost = set(store.read(lambda connection: connection.execute(of_lost).scalars()))
    assert len(with_lost) >= 10
    store.run(set_disk_state, lost, DiskState.LOST)
    cluster.nodes["a"].node.view(fresh=True)
    manager = StorageMaintenance(cluster.nodes["a"].node)
    manager.run()
    manager.run()
    dangers = sa.select(file_checks.c.file_id, file_checks.c.danger)
    found = store.read(lambda connection: connection.execute(dangers).all())
    assert {row.file_id: row.danger for row in found} == dict.fromkeys(with_lost, 1)
    is_planned = file_copies.c.state == "planned"
    assert cluster.catalogue.count(file_copies, is_planned) == 8, "twice the limit, because one copy is left of each"
    cluster.keep()
    assert_stored_twice(cluster, contents, without=lost)


def test_files_of_a_lost_disk_are_not_settled_by_disks_read_before(cluster: StorageCluster) -> None:
    """The manager walks over the files at once, and decides by what it knows of the disks since a second."""
    contents = put_many(cluster.nodes["a"])
    cluster.keep()
    manager = StorageMaintenance(cluster.nodes["a"].node)
    manager.run()
    before, lost = cluster.nodes["a"].node.view(fresh=True), cluster.nodes["b"].disk
    cluster.catalogue.store.run(set_disk_state, lost, DiskState.LOST)
    assert lost in before.disks, "it is known as it was"
    manager._walk(before)
    manager._check(before)
    assert cluster.catalogue.count(file_checks) > 0
    cluster.keep()
    assert_stored_twice(cluster, contents, without=lost)
    assert cluster.nodes["b"].node.disks.refresh()[0].problem
    assert cluster.nodes["b"].node.disks.usable() == [], "a lost disk is not used, although it is there"


@pytest.mark.parametrize("state", [DiskState.LOST, DiskState.DRAIN])
def test_a_copy_that_was_entered_behind_the_walk_is_found(cluster: StorageCluster, state: DiskState) -> None:
    contents, changed = put_many(cluster.nodes["a"], 2), cluster.nodes["b"].disk
    cluster.keep()
    cluster.catalogue.change(disks, disks.c.id == changed, state=state.value)
    cluster.keep()
    assert_stored_twice(cluster, contents, without=changed)


def test_a_wiped_disk_is_no_disk_and_nothing_is_written_to_it(cluster: StorageCluster) -> None:
    put_many(cluster.nodes["a"])
    cluster.keep()
    wiped = cluster.nodes["b"]
    wiped.paths[0].rename(wiped.paths[0].with_name("elsewhere"))
    wiped.paths[0].mkdir()
    [status] = wiped.node.disks.refresh()
    assert "is no disk of a cluster" in (status.problem or "")
    assert ask_node(wiped, "PUT", "/files/films/x", b"bytes").status_code == 507
    assert list(wiped.paths[0].iterdir()) == []
    other = create_disk(wiped.paths[0], "f" * 32)
    [status] = wiped.node.disks.refresh()
    assert f"is {other}" in (status.problem or "")
    (wiped.paths[0] / "peerd-disk.json").unlink()
    create_disk(wiped.paths[0], cluster.catalogue.store.run(cluster_identity))
    [status] = wiped.node.disks.refresh()
    assert status.problem == f"the catalogue does not know it: peerd files disks add {wiped.paths[0]}"


def test_files_expire_and_puts_without_an_end_are_discarded(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    ask_node(a, "PUT", "/files/films/soon", b"bytes", x_peerd_expires_in="1h")
    ask_node(a, "PUT", "/files/films/never", b"bytes")
    cluster.catalogue.change(files, files.c.file_key == "soon", expires_at=seconds_from_now(-1))
    staged = {"state": "staged", "is_current": None, "created_at": seconds_from_now(-4000)}
    cluster.catalogue.change(files, files.c.file_key == "never", **staged)
    cluster.keep()
    assert cluster.catalogue.count(files) == 0
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]


@pytest.mark.slow
def test_copies_are_moved_to_a_disk_that_is_new_until_all_are_equally_full(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of a disk is what a test says, and what is free follows from its contents."""
    size = 100_000

    def usage(folder: DiskFolder) -> DiskUsage:
        used = sum(path.stat().st_size for path in (folder.path / "contents").rglob("*") if path.is_file())
        return DiskUsage(size, size - used, None)

    monkeypatch.setattr(DiskFolder, "usage", usage)
    operations, store = Client(cluster.catalogue.store).disks, cluster.catalogue.store
    new = cluster.nodes["c"].disk
    store.run(set_disk_state, new, DiskState.READONLY)
    contents = put_many(cluster.nodes["a"], 20)
    cluster.keep()
    assert operations.rebalance() == [], "the others are equally full"
    operations.activate(new)
    cluster.keep()
    begun = operations.rebalance()
    assert [one.id for one in begun] == [cluster.nodes[name].disk for name in "ab"]
    assert all(one.is_too_full and 10_000 < one.excess < 20_000 for one in begun)
    for _ in range(10):
        if any(one.is_rebalanced for one in operations.balance()):
            cluster.keep()
    balance = operations.balance()
    assert [(one.is_too_full, one.is_rebalanced) for one in balance] == [(False, False)] * 3
    assert all(abs(one.used_share - one.mean) <= TOLERANCE for one in balance)
    assert states(cluster, new)["stored"] >= 8
    assert_whole(cluster, contents)


def test_no_rebalance_goes_on_when_stopped_or_beside_many_risks(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = put_many(cluster.nodes["a"])
    cluster.keep()
    store, node = cluster.catalogue.store, cluster.nodes["a"].node
    full = cluster.nodes["a"].disk
    cluster.catalogue.change(disks, disks.c.id == full, free=1)
    store.run(begin_rebalance, [full])
    monkeypatch.setattr("peerd.store.files.walks.MANY_UNSETTLED", 0)
    assert store.run(move_on, node.view(fresh=True), node.random) is None
    monkeypatch.undo()
    assert Client(store).disks.stop_rebalance() == 1
    assert store.run(move_on, node.view(fresh=True), node.random) is None
    store.run(begin_rebalance, [full])
    assert store.run(move_on, node.view(fresh=True), node.random) is not None
    cluster.keep()
    assert_whole(cluster, contents)


def test_a_lost_file_is_shown_and_the_others_get_their_copies(cluster: StorageCluster) -> None:
    a, b, c = cluster.nodes.values()
    for node in (a, c):
        node.node.events.listen(node.events.append)
    cluster.catalogue.change(disks, disks.c.id == c.disk, state="lost")
    contents = put_many(a, 6)
    cluster.refresh()
    lost_id = int(a.contents()[0], 16)
    a.content_path(lost_id).write_bytes(b"rotten")
    cluster.catalogue.store.run(copies_bad, a.disk, [lost_id])  # as verification finds it
    cluster.catalogue.store.run(set_disk_state, b.disk, DiskState.LOST)
    cluster.catalogue.change(tasks, tasks.c.node_id == b.node.node_id, status="dead")
    cluster.catalogue.change(disks, disks.c.id == c.disk, state="active", walked_for=None)
    cluster.keep("a", "c")
    rest = cluster.catalogue.copies(lost_id)
    assert rest == {a.disk: "bad"}, "what was planned on a lost disk is forgotten"
    assert states(cluster, c.disk) == {"stored": len(contents) - 1}
    shown = cluster.catalogue.store.read(files_at_risk, None, None, 10)
    assert [(file.id, file.health) for file in shown.files] == [(lost_id, "lost")]
    assert failures(a) == failures(c) == []


def failures(node: ServedNode) -> list[ComponentFailed]:
    return [event for event in node.events if isinstance(event, ComponentFailed)]


@contextmanager
def refused_copies(cluster: StorageCluster, file_id: int) -> Iterator[None]:
    """The database refuses to plan copies of a file."""

    def execute(statement: str) -> None:
        cluster.catalogue.store.run(lambda connection: connection.exec_driver_sql(statement).close())

    refusal = f"WHEN NEW.file_id = {file_id} BEGIN SELECT RAISE(ABORT, 'a damaged page'); END"
    execute(f"CREATE TRIGGER refusing BEFORE INSERT ON file_copies {refusal}")
    try:
        yield
    finally:
        execute("DROP TRIGGER refusing")


def test_a_check_that_fails_is_set_aside_and_the_others_are_done(cluster: StorageCluster) -> None:
    a, b, _ = cluster.nodes.values()
    a.node.events.listen(a.events.append)
    contents = put_many(a, 6)
    cluster.keep()
    damaged = int(b.contents()[0], 16)
    with refused_copies(cluster, damaged):
        cluster.catalogue.store.run(set_disk_state, b.disk, DiskState.LOST)
        cluster.keep("a", "c")
        are_made = file_copies.c.state == "stored", file_copies.c.disk_id != b.disk
        assert cluster.catalogue.count(file_copies, *are_made) == 2 * len(contents) - 1
        [shown] = cluster.catalogue.store.read(files_at_risk, None, None, 10).files
        assert (shown.id, shown.health) == (damaged, "at-risk")
        assert shown.blocked is not None
        assert shown.blocked.startswith("its check fails: IntegrityError")
        [reported] = failures(a)
        assert reported.component == "storage: a check"
        assert f"of file {damaged:016x}" in reported.error, "once, however often it has failed"
        assert reported.failures == 1
    cluster.keep("a", "c")
    assert_stored_twice(cluster, contents, without=b.disk)


def test_a_file_that_cannot_be_moved_is_passed_over_and_the_others_are_moved(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = cluster.nodes["a"]
    full.node.events.listen(full.events.append)
    put_many(full)
    cluster.keep()
    monkeypatch.setattr(
        full.node.disks, "refresh", lambda: None
    )  # its server would report it: what the test says stays
    cluster.catalogue.change(disks, disks.c.id == full.disk, free=1)
    cluster.catalogue.store.run(begin_rebalance, [full.disk])
    manager = StorageMaintenance(full.node)
    manager._report_at = manager._tidy_at = math.inf
    with refused_copies(cluster, int(full.contents()[0], 16)):
        for _ in range(12):
            full.node.view(fresh=True)
            manager.run()
    assert [event.component for event in failures(full)] == ["storage: rebalancing"]
    moved = cluster.catalogue.count(file_copies, file_copies.c.state == "planned")
    assert 0 < moved <= len(full.contents()) - 1


def test_a_content_that_cannot_be_read_or_removed_does_not_stop_the_task_of_the_others(cluster: StorageCluster) -> None:
    node = cluster.nodes["a"]
    put_many(node, 3)
    names = node.contents()
    path = node.content_path(int(names[0], 16))
    path.unlink()
    path.mkdir()
    cluster.catalogue.change(file_copies, sa.true(), verified_at=None)
    with pytest.raises(UnexpectedEntry):
        node.duties.verify(node.disk, names, threading.Event(), lambda *_: None)
    assert cluster.catalogue.count(file_copies, file_copies.c.verified_at.is_not(None)) == 2
    cluster.catalogue.change(file_copies, file_copies.c.disk_id == node.disk, state="removing")
    with pytest.raises(DiskError):
        node.duties.remove(node.disk, names)
    assert (node.contents(), states(cluster, node.disk)) == ([], {"removing": 1})
