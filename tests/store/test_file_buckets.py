"""Classes, buckets, disks and the keys of clients in the catalogue."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.access import FileAccessKey
from peerd.domain.file_errors import (
    AccessKeyNotFound,
    BucketExists,
    BucketNotEmpty,
    BucketNotFound,
    DiskHasCopies,
    DiskNotFound,
    FileClassInUse,
    FileClassNotFound,
    FileMissing,
    InvalidFile,
)
from peerd.domain.files import DiskState, FileClass
from peerd.doorbell.cluster_secret import derive_access_secret
from peerd.store import tokens
from peerd.store.connection.database import Database
from peerd.store.files import buckets, classes, disks, versions
from peerd.store.files.copies import copies_bad, plan_copies
from peerd.store.files.disks import DiskReport, DiskRow
from peerd.store.files.walks import begin_walks_of_missing, walk_on
from peerd.store.schema.tables import file_access_keys, file_checks, file_copies
from peerd.store.schema.types import seconds_from_now
from tests.store.file_steps import GIGABYTE, Catalogue
from tests.store.world import at_once


def test_the_default_class_is_there_without_a_row_and_can_be_changed_and_reset(store: Database) -> None:
    assert store.read(classes.list_classes) == [FileClass(name="default", copies=2)]
    for name, copies in (("default", 1), ("archive", 3)):
        store.run(classes.set_class, FileClass(name=name, copies=copies))
    assert [one.copies for one in store.read(classes.list_classes)] == [3, 1]
    store.run(classes.remove_class, "default")
    assert store.read(classes.get_class, "default").copies == 2


def test_a_class_that_something_has_cannot_be_removed(catalogue: Catalogue) -> None:
    store = catalogue.store
    with pytest.raises(FileClassNotFound):
        store.run(classes.remove_class, "archive")
    store.run(classes.set_class, FileClass(name="archive"))
    bucket = catalogue.bucket(class_name="archive")
    with pytest.raises(FileClassInUse, match="in use by the bucket 'films'"):
        store.run(classes.remove_class, "archive")
    catalogue.put(bucket, "a", catalogue.disk("n"), class_name="archive")
    store.run(buckets.change_bucket, "films", class_name="default")
    with pytest.raises(FileClassInUse, match="in use by files"):
        store.run(classes.remove_class, "archive")


def test_a_wrong_class_and_a_bucket_name_that_s3_would_refuse_are_refused(store: Database) -> None:
    for wrong in ({"copies": 0}, {"copies": 17}, {"durable": 3}, {"zones": 3}, {"zones": 0}, {"name": "A b"}):
        with pytest.raises(InvalidFile, match="class: "):
            store.run(classes.set_class, FileClass(**{"name": "c", **wrong}))  # type: ignore[arg-type]
    assert len(store.read(classes.list_classes)) == 1
    for name in ("ab", "a" * 64, "Films", "a..b", "a-.b", "a.-b", "-ab", "ab-", "1.2.3.4", "a/b", "ä-b"):
        with pytest.raises(InvalidFile, match="bucket: "):
            store.run(buckets.create_bucket, name)


def test_of_two_changes_of_a_bucket_at_once_both_hold(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    store = catalogue.store
    catalogue.bucket(quota=100)
    if store.is_single_writer:
        return  # the second one waits until the first one has ended

    def change_the_quota_meanwhile(connection: Connection, name: str) -> FileClass:
        store.run(buckets.change_bucket, "films", quota=200)
        return classes.get_class(connection, name)

    store.run(classes.set_class, FileClass(name="archive"))
    monkeypatch.setattr(buckets, "get_class", change_the_quota_meanwhile)
    store.run(buckets.change_bucket, "films", class_name="archive")
    changed = store.read(buckets.get_bucket, "films")
    assert (changed.class_name, changed.quota) == ("archive", 200)


def test_buckets_are_created_once_changed_and_deleted_when_they_are_empty(catalogue: Catalogue) -> None:
    store, films = catalogue.store, catalogue.bucket(quota=100)
    with pytest.raises(BucketExists):
        catalogue.bucket()
    with pytest.raises(BucketNotFound):
        store.read(buckets.get_bucket, "stills")
    for quota in (-1, 2**63):
        with pytest.raises(InvalidFile, match="quota"):
            store.run(buckets.change_bucket, "films", quota=quota)
    assert store.run(buckets.change_bucket, "films").quota == 100
    assert store.run(buckets.change_bucket, "films", no_quota=True).quota is None
    with pytest.raises(FileClassNotFound):
        store.run(buckets.change_bucket, "films", class_name="archive")
    catalogue.put(films, "a", catalogue.disk("n"))
    with pytest.raises(BucketNotEmpty):
        store.run(buckets.delete_bucket, "films")
    store.run(versions.delete_file, films, "a")
    store.run(buckets.delete_bucket, "films")
    assert store.read(buckets.list_buckets) == []
    with pytest.raises(FileMissing):
        catalogue.put(films, "b", catalogue.disk("m"))


def test_a_bucket_is_deleted_or_gets_a_file_never_both(catalogue: Catalogue) -> None:
    for number in range(6):
        bucket, disk = catalogue.bucket(f"films-{number}"), catalogue.disk(f"n{number}")

        def put(bucket: buckets.Bucket = bucket, disk: int = disk) -> bool:
            try:
                return catalogue.put(bucket, "a", disk).version == 1
            except FileMissing:
                return False

        def delete(bucket: buckets.Bucket = bucket) -> bool:
            try:
                catalogue.store.run(buckets.delete_bucket, bucket.name)
            except BucketNotEmpty:
                return False
            return True

        assert sorted(at_once([put, delete])) == [False, True]


def test_a_disk_is_known_by_its_identity_wherever_it_is_mounted(catalogue: Catalogue) -> None:
    store, identity = catalogue.store, uuid.uuid4().hex
    first, second = catalogue.node("first", "x"), catalogue.node("second", "y")
    numbers = [store.run(disks.register_disk, identity, path="/srv/a", node_id=first) for _ in range(2)]
    assert numbers[0] == numbers[1]
    report = DiskReport(identity=identity, path="/srv/b", size=GIGABYTE, free=100, reserve=30)
    moved = store.run(disks.report_disk, second, report, 900.0)
    assert moved is not None
    assert (moved.node, moved.zone, moved.path) == ("second", "y", "/srv/b")
    [disk] = store.read(disks.read_disks).disks
    assert (disk.site, disk.zone, disk.free, disk.problem) == ("second", "y", 70, None)
    assert disk.silent_for < 30
    unknown = DiskReport(identity=uuid.uuid4().hex, path="/srv/c", size=1, free=1, reserve=0)
    assert store.run(disks.report_disk, first, unknown, 900.0) is None


def test_a_disk_with_copies_is_not_removed_from_the_catalogue(catalogue: Catalogue) -> None:
    disk, empty = catalogue.disk("a"), catalogue.disk("b")
    put = catalogue.put(catalogue.bucket(), "a", disk)
    catalogue.store.run(plan_copies, empty, {put.id: 40}, 1)
    free = {row.id: row.free for row in catalogue.store.read(disks.read_disks).disks}
    assert free == {disk: GIGABYTE, empty: GIGABYTE - 40}, "room that is promised to planned copies is not free"
    catalogue.change(file_copies, file_copies.c.disk_id == empty, disk_id=disk + 1000)
    with pytest.raises(DiskHasCopies, match=rf"disk {disk} has 1 copies; drain it first \(peerd files drain {disk}\)"):
        catalogue.store.run(disks.remove_disk, disk)
    catalogue.store.run(disks.remove_disk, empty)
    with pytest.raises(DiskNotFound, match=f"no disk {empty}; known are: {disk}"):
        catalogue.store.run(disks.remove_disk, empty)


def test_a_disk_that_comes_back_after_its_grace_period_is_to_be_verified_and_sooner_it_is_not(
    catalogue: Catalogue,
) -> None:
    store, identity = catalogue.store, uuid.uuid4().hex
    node = catalogue.node("a")
    number = store.run(disks.register_disk, identity, path="/srv/a", node_id=node)
    report = DiskReport(identity=identity, path="/srv/a", size=9, free=9, reserve=0)
    assert store.read(disks.read_disks).disks[0].silent_for > 10**6, "it was never reported"

    def reported() -> DiskRow:
        row = store.run(disks.report_disk, node, report, 900.0)
        assert row is not None
        return row

    assert reported().verified_since is None
    catalogue.silence(number, 800)
    assert reported().verified_since is None
    catalogue.silence(number, 1000)
    first = reported()
    assert first.verified_since is not None
    assert reported().verified_since == first.verified_since
    store.run(begin_walks_of_missing, [number])
    assert store.read(disks.get_disk, number).missing_at is not None
    again = reported()
    assert (again.missing_at, again.verified_since is not None) == (None, True)
    assert again.verified_since != first.verified_since
    store.run(disks.set_disk_state, number, DiskState.LOST)
    catalogue.silence(number, 1000)
    assert (reported().state, reported().walked_for) == ("lost", "lost"), "it stays so"


def test_a_walk_requests_a_check_of_each_file_on_the_disk_batch_by_batch_once(catalogue: Catalogue) -> None:
    store, disk, other = catalogue.store, catalogue.disk("a"), catalogue.disk("b")
    bucket = catalogue.bucket()
    put = [catalogue.put(bucket, f"{number}", disk).id for number in range(7)]
    catalogue.put(bucket, "elsewhere", other)
    store.run(lambda connection: connection.execute(sa.delete(file_checks)).close())
    assert store.run(walk_on, 3) is None
    store.run(begin_walks_of_missing, [disk])
    store.run(copies_bad, disk, put[:2])
    assert [store.run(walk_on, 3) for _ in range(4)] == [3, 3, 1, None]
    assert catalogue.count(file_checks) == 7
    store.run(begin_walks_of_missing, [disk])
    assert store.run(walk_on, 3) is None, "it was walked already"


def found_key(store: Database, key: FileAccessKey) -> FileAccessKey:
    read = store.read(tokens.find_access_key, key.id)
    assert read is not None
    return read


def change_key(store: Database, key: FileAccessKey, **values: object) -> None:
    statement = sa.update(file_access_keys).where(file_access_keys.c.id == key.id).values(**values)
    store.run(lambda connection: connection.execute(statement).close())


def test_the_use_of_a_key_is_written_once_a_minute_and_it_expires_by_the_clock_of_the_database(store: Database) -> None:
    key = store.run(tokens.create_access_key, "used", expires_in=86_400.0)
    assert (key.is_valid, key.last_used_at) == (True, None)
    store.run(tokens.note_use, key.id)
    first = found_key(store, key).last_used_at
    store.run(tokens.note_use, key.id)
    assert first is not None
    assert found_key(store, key).last_used_at == first
    change_key(store, key, last_used_at=seconds_from_now(-61.0))
    store.run(tokens.note_use, key.id)
    last = found_key(store, key).last_used_at
    assert last is not None
    assert last >= first
    change_key(store, key, expires_at=seconds_from_now(-1.0))
    assert not found_key(store, key).is_valid
    other = store.run(tokens.create_access_key, "revoked")
    assert not store.run(tokens.revoke_access_key, other.id).is_valid
    with pytest.raises(AccessKeyNotFound):
        store.run(tokens.revoke_access_key, "PEERDNONE")


def test_a_secret_is_in_no_column_and_differs_between_keys_and_clusters(store: Database) -> None:
    key, other = (store.run(tokens.create_access_key, name) for name in "ab")
    secret = derive_access_secret("a cluster's secret", key.id)
    assert secret != derive_access_secret("a cluster's secret", other.id)
    assert secret != derive_access_secret("another cluster's secret", key.id)
    rows = store.read(lambda connection: connection.execute(sa.select(file_access_keys)).all())
    assert secret not in repr(rows)


def test_a_scope_is_for_its_bucket_and_prefix_only(store: Database) -> None:
    key = store.run(tokens.create_access_key, "scoped", scopes=["films/2026/", "team-*"])
    assert [key.has_key("films", text) for text in ("2026/one", "2026/", "2026", "", "2025/one")] == [
        True, True, False, False, False
    ]  # fmt: skip
    assert [key.sees_bucket(bucket) for bucket in ("films", "films2", "team-a", "team", "music")] == [
        True, False, True, False, False
    ]  # fmt: skip
    assert key.has_whole_bucket("team-a")
    assert not key.has_whole_bucket("films")
