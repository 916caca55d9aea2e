"""Nodes that keep copies in an object store: beside their own disks, or without any; and in another cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from subprocess import PIPE, Popen

import msgspec
import pytest
import sqlalchemy as sa

from peerd.domain.files import DiskState, FileClass
from peerd.doorbell.access_secret import derive_access_secret
from peerd.storage.disk.content_id import ContentId
from peerd.storage.object_disk import disk as disk_module
from peerd.storage.object_disk.disk import object_name
from peerd.storage.object_disk.place import create_disk_at
from peerd.store.connection.database import Database
from peerd.store.files import access_keys
from peerd.store.files.buckets import create_bucket
from peerd.store.files.classes import set_class
from peerd.store.files.disks import list_disks, set_disk_state
from peerd.store.schema.migrate import migrate
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import disks, file_copies
from peerd.testing import eventually
from tests.storage.breaking import MIB
from tests.storage.nodes import SECRET, ServedNode, ask_node
from tests.storage.object_cluster import PREFIX, Build, names_of
from tests.store.file_steps import Catalogue
from tests.support.object_store import ObjectStoreServer, moto_server


@pytest.fixture
def other_catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    """That of another cluster."""
    database = Database(f"sqlite:///{tmp_path / 'other.sqlite'}")
    migrate(database)
    yield Catalogue(database)
    database.close()


def test_a_class_says_that_one_of_two_copies_is_in_the_object_store(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(), both="a", folders="bc")
    cluster.want(copies=2, object_copies=1)
    content = os.urandom(20 * MIB)
    file_id = cluster.put("b", "f", content)
    assert cluster.catalogue.copies(file_id)[cluster.store_disk] == "planned"
    assert cluster.run_tasks() == [("a", "copy-shared", {"copied": 1, "bytes": len(content)})]
    states = cluster.catalogue.copies(file_id)
    assert states == {cluster.nodes["b"].disk: "stored", cluster.store_disk: "stored"}
    assert names_of(moto) == [object_name(ContentId(file_id))]
    for node in "abc":
        assert cluster.get(node, "f") == content
        assert cluster.get(node, "f", range="bytes=5000000-9000000") == content[5_000_000:9_000_001]


@pytest.mark.slow
def test_small_files_get_their_copies_there_many_at_once(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(), both="a")
    cluster.want(copies=2, object_copies=1)
    contents = {f"f{number}": os.urandom(1_000 + number) for number in range(40)}
    for key, content in contents.items():
        cluster.put("a", key, content)
    assert all(name == "copy-shared" for _, name, _ in cluster.run_tasks())
    assert len(names_of(moto)) == len(contents)
    cluster.catalogue.store.run(set_disk_state, cluster.nodes["a"].disk, DiskState.DRAIN)
    cluster.want(copies=1, object_copies=1)
    cluster.keep()
    assert cluster.nodes["a"].contents() == [], "the drained disk is empty, and the files are whole without it"
    assert {key: cluster.get("a", key) for key in contents} == contents


@pytest.mark.slow
def test_a_cluster_without_a_disk_keeps_all_in_the_object_store(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(), stores="ab")
    cluster.want(copies=1)
    small, large = os.urandom(1000), os.urandom(30 * MIB)
    cluster.put("a", "small", small)
    file_id = cluster.put("b", "large", large)
    assert cluster.run_tasks() == []
    assert (cluster.get("b", "small"), cluster.get("a", "large")) == (small, large)
    assert ask_node(cluster.nodes["a"], "DELETE", "/files/films/large").status_code == 204
    assert [name for _, name, _ in cluster.run_tasks()] == ["remove-shared"]
    assert cluster.catalogue.copies(file_id) == {}
    assert len(names_of(moto)) == 1
    assert moto.uploads() == []


@pytest.mark.slow
def test_an_object_that_has_rotted_is_found_and_made_anew(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(verify_every=3600.0), both="a")
    cluster.want(copies=2, object_copies=1)
    content = os.urandom(9 * MIB)
    file_id = cluster.put("a", "f", content)
    cluster.keep()
    name = f"{PREFIX}/{object_name(ContentId(file_id))}"
    moto.client.put_object(Bucket="copies", Key=name, Body=content[:-1] + bytes([content[-1] ^ 1]))
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-4000))
    done = cluster.keep()
    assert ("a", "verify-shared", {"verified": 0, "bad": 1}) in done
    assert moto.client.get_object(Bucket="copies", Key=name)["Body"].read() == content
    assert [one.split(".")[1] for one in names_of(moto) if one.startswith("quarantine/")] == ["mismatch"]


@pytest.mark.slow
def test_objects_are_verified_in_their_own_time_or_never(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(verify_every=0.0), both="a")
    cluster.want(copies=2, object_copies=1)
    cluster.put("a", "f", b"bytes")
    cluster.keep()
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-86_400 * 400))
    names = {name for _, name, _ in cluster.keep()}
    assert "verify" in names, "the copy in the folder is due by [storage] scrub_every"
    assert "verify-shared" not in names


@pytest.mark.slow
def test_what_the_catalogue_does_not_know_leaves_the_object_store(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(), stores="a")
    cluster.want(copies=1)
    known = cluster.put("a", "f", b"bytes")
    moto.client.put_object(Bucket="copies", Key=f"{PREFIX}/{object_name(ContentId(7))}", Body=b"unknown")
    assert ("a", "sweep-shared", {"contents": 1, "parts": 0, "quarantined": 0}) in cluster.keep()
    found = names_of(moto)
    assert found[0] == object_name(ContentId(known))
    assert found[1].startswith(f"quarantine/{ContentId(7)}.unknown.")


@pytest.mark.slow
def test_a_node_with_the_object_store_reads_for_the_others_and_prefers_folders(
    build: Build, moto: ObjectStoreServer
) -> None:
    cluster = build(moto.options(), both="a", folders="b")
    cluster.want(copies=2, object_copies=1)
    content = os.urandom(5 * MIB)
    file_id = cluster.put("b", "f", content)
    cluster.keep()
    moto.client.delete_object(Bucket="copies", Key=f"{PREFIX}/{object_name(ContentId(file_id))}")
    assert cluster.get("a", "f") == content, "it was read from the folder of b"
    assert cluster.catalogue.copies(file_id)[cluster.store_disk] == "stored"
    cluster.keep()
    cluster.nodes["b"].content_path(file_id).write_bytes(b"rotten")
    cluster.want(copies=2)
    moto.client.put_object(Bucket="copies", Key=f"{PREFIX}/{object_name(ContentId(file_id))}", Body=content)
    assert cluster.get("b", "f") == content, "a has read it from the object store for b"


@pytest.mark.slow
def test_why_the_object_store_cannot_be_used_is_with_its_disk(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "CHECK_EVERY", 0.0)
    folder = tmp_path / "own"
    folder.mkdir()
    with moto_server(folder) as server:
        cluster = build(server.options(), both="a")
        server.empty()
        cluster.catalogue.change(disks, disks.c.kind == "s3", seen_at=seconds_from_now(-60))
        statuses = cluster.nodes["a"].node.disks.refresh()
        assert "has no peerd-disk.json" in (statuses[1].problem or ""), "nothing is written to an empty bucket"
        assert server.names() == []
        server.stop()
        cluster.nodes["a"].node.disks.refresh()
        [row] = [row for row in cluster.catalogue.store.read(list_disks) if row.kind == "s3"]
        assert "cannot be reached" in (row.problem or "")
        view = cluster.nodes["a"].node.view(fresh=True)
        assert not view.is_online(cluster.store_disk)
        cluster.put("a", "f", b"bytes")


@pytest.mark.slow
def test_copies_of_an_object_store_that_was_away_count_at_once(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(), both="a")
    cluster.catalogue.change(disks, sa.true(), seen_at=seconds_from_now(-5000), missing_at=seconds_from_now(-100))
    cluster.refresh()
    rows = {row.kind: row for row in cluster.catalogue.store.read(list_disks)}
    assert (rows["s3"].verified_since, rows["s3"].missing_at) == (None, None)
    assert rows["folder"].verified_since is not None


@pytest.mark.slow
def test_no_more_than_the_capacity_is_stored(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(capacity=1_000), stores="a")
    cluster.want(copies=1)
    cluster.put("a", "f", bytes(900))
    cluster.nodes["a"].node.disks._places[0]._used._counted.clear()  # type: ignore[attr-defined]
    cluster.refresh()
    answer = ask_node(cluster.nodes["a"], "PUT", "/files/films/g", bytes(200))
    assert (answer.status_code, answer.json()["code"]) == (507, "NoDiskHasRoom")


@pytest.mark.slow
def test_a_cluster_keeps_copies_in_another_cluster(
    build: Build, tmp_path: Path, moto: ObjectStoreServer, other_catalogue: Catalogue
) -> None:
    """The other cluster is the object store: its nodes answer S3."""
    (tmp_path / "other").mkdir()
    other = ServedNode("far", tmp_path / "other", other_catalogue, s3=True)
    other_catalogue.store.run(set_class, FileClass(name="default", copies=1))
    other_catalogue.store.run(create_bucket, "copies")
    key = other_catalogue.store.run(access_keys.create_access_key, "of the other cluster")
    with other.served():
        other.node.disks.refresh()
        secret = derive_access_secret(SECRET, key.id)
        far = ObjectStoreServer(other.url, tmp_path / "other", access_key=key.id, secret=secret)
        cluster = build(far.options(), both="a")
        cluster.want(copies=2, object_copies=1)
        content = os.urandom(20 * MIB)
        file_id = cluster.put("a", "f", content)
        cluster.put("a", "small", b"bytes")
        cluster.keep()
        assert len(names_of(far)) == 2
        cluster.nodes["a"].content_path(file_id).unlink()
        assert cluster.get("a", "f") == content
        cluster.keep()
        assert cluster.nodes["a"].content_path(file_id).read_bytes() == content, "it came back from there"
        assert far.uploads() == []
        far.client.create_multipart_upload(Bucket="copies", Key=f"{PREFIX}/{object_name(ContentId(7))}")
        [store] = [disk for disk in cluster.nodes["a"].node.disks.usable() if disk.opened.is_remote]
        assert store.opened.remove_old_parts(time.time() - 60) == 0
        assert store.opened.remove_old_parts(time.time() + 60) == 1
        assert far.uploads() == []
        far.client.close()


UPLOADER = """
import os, sys, msgspec
from peerd.storage.disk.content_id import ContentId
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.disk import open_object_disk
options = msgspec.json.decode(sys.argv[1], type=ObjectDiskOptions)
disk = open_object_disk(options, sys.argv[2], lambda _: 0)
writer = disk.begin(ContentId(7), 64 * 1024 * 1024)
for number in range(int(sys.argv[3])):
    writer.write(os.urandom(1024 * 1024))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [1, 40, 64])
def test_a_process_that_is_killed_during_an_upload_leaves_nothing_that_counts_as_a_copy(
    moto: ObjectStoreServer, mebibytes: int
) -> None:
    options = moto.options()
    create_disk_at(options, "c" * 32)
    words = [sys.executable, "-c", UPLOADER, msgspec.json.encode(options).decode(), "c" * 32, str(mebibytes)]
    with Popen(words, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        if mebibytes > 20:
            eventually(moto.uploads)
        process.send_signal(SIGKILL)
    assert names_of(moto) == []
    disk = disk_module.open_object_disk(options, "c" * 32, lambda _: 0)
    assert list(disk.walk(batch=10)) == []
    with disk.begin(ContentId(7), 5) as writer:
        writer.write(b"bytes")
        writer.publish()
    assert disk.open(ContentId(7)).read(0, 5) == b"bytes"
    for name in moto.client.list_multipart_uploads(Bucket="copies").get("Uploads", []):
        moto.client.abort_multipart_upload(Bucket="copies", Key=name["Key"], UploadId=name["UploadId"])
