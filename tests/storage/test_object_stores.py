"""Nodes that keep copies in an object store: beside their own disks, or without any; and in another cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.domain.files import FileClass
from peerd.doorbell.cluster_secret import derive_access_secret
from peerd.storage.disk.content_id import ContentId
from peerd.storage.object_disk import disk as disk_module
from peerd.storage.object_disk.disk import object_name
from peerd.store import tokens
from peerd.store.connection.database import Database
from peerd.store.files.buckets import create_bucket
from peerd.store.files.classes import set_class
from peerd.store.files.disks import list_disks
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import disks, file_copies
from peerd.store.schema.types import seconds_from_now
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
def test_a_rotten_object_is_made_anew_and_an_unknown_one_put_away(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(verify_every=3600.0), both="a")
    cluster.want(copies=2, object_copies=1)
    content = os.urandom(9 * MIB)
    file_id = cluster.put("a", "f", content)
    moto.client.put_object(Bucket="copies", Key=f"{PREFIX}/{object_name(ContentId(7))}", Body=b"unknown")
    swept = cluster.keep()
    name = f"{PREFIX}/{object_name(ContentId(file_id))}"
    moto.client.put_object(Bucket="copies", Key=name, Body=content[:-1] + bytes([content[-1] ^ 1]))
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-4000))
    done = cluster.keep()
    assert ("a", "verify-shared", {"verified": 0, "bad": 1}) in done
    assert ("a", "sweep-shared", {"contents": 1, "parts": 0, "quarantined": 0}) in swept
    assert moto.client.get_object(Bucket="copies", Key=name)["Body"].read() == content
    assert {one.split(".")[1] for one in names_of(moto) if one.startswith("quarantine/")} == {"mismatch", "unknown"}


@pytest.mark.slow
def test_objects_may_never_be_verified_and_folders_are_read_first(build: Build, moto: ObjectStoreServer) -> None:
    cluster = build(moto.options(verify_every=0.0), both="a", folders="b")
    cluster.want(copies=2, object_copies=1)
    file_id = cluster.put("b", "f", b"bytes")
    cluster.keep()
    cluster.catalogue.change(file_copies, sa.true(), verified_at=seconds_from_now(-86_400 * 400))
    names = {name for _, name, _ in cluster.keep()}
    assert "verify" in names, "the copy in the folder is due by [storage] scrub_every"
    assert "verify-shared" not in names
    moto.client.delete_object(Bucket="copies", Key=f"{PREFIX}/{object_name(ContentId(file_id))}")
    assert cluster.get("a", "f") == b"bytes", "it was read from the folder of b"
    assert cluster.catalogue.copies(file_id)[cluster.store_disk] == "stored"


@pytest.mark.slow
def test_why_a_store_cannot_be_used_is_with_its_disk(
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
def test_another_cluster_keeps_copies(
    build: Build, tmp_path: Path, moto: ObjectStoreServer, other_catalogue: Catalogue
) -> None:
    """The other cluster is the object store: its nodes answer S3."""
    (tmp_path / "other").mkdir()
    other = ServedNode("far", tmp_path / "other", other_catalogue, s3=True)
    other_catalogue.store.run(set_class, FileClass(name="default", copies=1))
    other_catalogue.store.run(create_bucket, "copies")
    key = other_catalogue.store.run(tokens.create_access_key, "of the other cluster")
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
        assert cluster.get("a", "f") == content, "it is read from there"
        cluster.keep()
        assert cluster.nodes["a"].content_path(file_id).read_bytes() == content, "it came back from there"
        assert far.uploads() == []
        far.client.close()
