"""A disk in an object store: what it promises as each disk does, and what the catalogue is not misled by."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.disk.digest import digest_of
from peerd.storage.disk.errors import ContentMismatch, ContentMissing, DiskNotEmpty, NotADisk, WrongDisk
from peerd.storage.disk.open_disk import OpenDisk
from peerd.storage.object_disk import disk as disk_module
from peerd.storage.object_disk.bucket import ObjectBucket
from peerd.storage.object_disk.credentials import read_credentials
from peerd.storage.object_disk.disk import ObjectDisk, create_object_disk, object_name, open_object_disk
from peerd.storage.object_disk.errors import BucketMissing, CredentialsMissing, ObjectStoreUnreachable
from peerd.testing import eventually
from tests.storage.object_disk.conftest import CLUSTER
from tests.support.object_store import ObjectStoreServer, credentials_text, free_port

MIB = 1024 * 1024


def store(disk: OpenDisk, data: bytes, *, size: int | None = None) -> ContentId:
    content = new_content_id(time.time())
    with disk.begin(content, size) as writer:
        for at in range(0, len(data), MIB):
            writer.write(data[at : at + MIB])
        writer.publish(digest_of(data))
    return content


def test_what_is_written_is_read_as_a_whole_in_chunks_and_in_ranges(disk: ObjectDisk) -> None:
    for size in (0, 1, 8 * MIB, 8 * MIB + 1, 21 * MIB + 5):
        data = os.urandom(size)
        content, digest = store(disk, data, size=size), digest_of(data)
        with disk.open(content) as opened:
            assert opened.size == size
            opened.verify(digest)
            assert (opened.read(0, size), opened.read(size, 10)) == (data, b"")
            assert b"".join(bytes(piece) for piece in opened.pieces(size // 3, size)) == data[size // 3 :]  # type: ignore[arg-type]
            for index in range(digest.chunk_count):
                positions = digest.chunk_range(index)
                inner = slice(positions.start + min(3, len(positions)), positions.stop)
                assert opened.verified_piece(digest, index, inner.start, inner.stop) == data[inner]
        disk.remove(content)
        for operation in (disk.open, disk.remove):
            with pytest.raises(ContentMissing):
                operation(content)


def test_small_contents_are_written_together_and_listed_in_order(disk: ObjectDisk, server: ObjectStoreServer) -> None:
    with disk.begin_small() as small:
        for number in range(20):
            data = b"bytes" + bytes([number])
            small.write(ContentId(number + 1), data, digest_of(data))
        with pytest.raises(ContentMismatch):
            small.write(ContentId(100), b"other", digest_of(b"bytes"))
        assert list(disk.walk(batch=100)) == []
        assert small.publish() == [ContentId(number + 1) for number in range(20)]
    found = disk.read_small([ContentId(1), ContentId(20), ContentId(100)], 6)
    assert found == {ContentId(1): b"bytes\x00", ContentId(20): b"bytes\x13"}
    assert disk.read_small([ContentId(1)], 5) == {}
    server.client.put_object(Bucket="copies", Key="peerd/one/contents/0000/000/x", Body=b"")
    server.client.put_object(Bucket="copies", Key=f"peerd/one/contents/0000/{ContentId(7)}", Body=b"")
    walked = list(disk.walk(batch=15))
    assert [one.content.number for batch in walked for one in batch] == list(range(1, 21)), "no other names"
    assert [len(batch) for batch in walked] == [15, 5]


def test_of_what_has_another_digest_nothing_is_left(disk: ObjectDisk, server: ObjectStoreServer) -> None:
    before = server.names()
    for size in (100, 17 * MIB):
        data = os.urandom(size)
        for announced, digest, problem in (
            (size, digest_of(data[:-1] + bytes([data[-1] ^ 1])), "BLAKE3"),
            (size + 1, None, "announced"),
        ):
            with disk.begin(ContentId(7), announced) as writer:
                writer.write(data)
                with pytest.raises(ContentMismatch, match=problem):
                    writer.publish(digest)
        assert server.names() == before
        assert server.uploads() == []


def test_a_content_comes_back_from_quarantine_if_it_is_whole(
    disk: ObjectDisk, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(9 * MIB)
    content = store(disk, data, size=len(data))
    monkeypatch.setattr(disk_module, "COPIED_AT_ONCE", 8 * MIB)  # it is read and written again
    name = disk.quarantine(content, "mismatch", 1_700_000_000)
    assert disk.quarantined() == [name] == [f"{content}.mismatch.1700000000"]
    with pytest.raises(ContentMissing):
        disk.open(content)
    assert not disk.restore(content, digest_of(b"another one"))
    assert disk.restore(content, digest_of(data))
    assert disk.quarantined() == []
    with disk.open(content) as opened:
        opened.verify(digest_of(data))


def test_a_content_that_was_written_anew_is_not_quarantined(disk: ObjectDisk, server: ObjectStoreServer) -> None:
    server.client.put_object(Bucket="copies", Key=f"peerd/one/{object_name(ContentId(7))}", Body=b"rotten")
    found = disk.open(ContentId(7))
    with pytest.raises(ContentMismatch):
        found.verify(digest_of(b"bytess"))
    with disk.begin(ContentId(7)) as writer:
        writer.write(b"bytess")
        writer.publish()
    with pytest.raises(ContentMissing):
        disk.quarantine(ContentId(7), "mismatch", 0, found=found)
    disk.open(ContentId(7)).verify(digest_of(b"bytess"))


def test_a_disk_is_made_in_an_empty_place_once(server: ObjectStoreServer) -> None:
    options = server.options()
    with pytest.raises(NotADisk, match=r"has no peerd-disk\.json"):
        open_object_disk(options, CLUSTER, lambda _: 0)
    identity = create_object_disk(ObjectBucket(options), CLUSTER)
    assert open_object_disk(options, CLUSTER, lambda _: 0).identity == identity
    with pytest.raises(DiskNotEmpty):
        create_object_disk(ObjectBucket(options), CLUSTER)
    with pytest.raises(WrongDisk, match="a disk of cluster d"):
        open_object_disk(options, "d" * 32, lambda _: 0)
    create_object_disk(ObjectBucket(server.options(prefix="peerd/two")), CLUSTER)
    server.client.put_object(Bucket="copies", Key="other/file", Body=b"")
    with pytest.raises(DiskNotEmpty, match="file"):
        create_object_disk(ObjectBucket(server.options(prefix="other")), CLUSTER)
    with pytest.raises(ObjectStoreUnreachable, match="cannot be reached"):  # in some seconds
        open_object_disk(server.options(endpoint=f"http://127.0.0.1:{free_port()}"), CLUSTER, lambda _: 0)
    missing = server.options(bucket="no-such-bucket")
    with pytest.raises(BucketMissing, match="no such bucket"):
        open_object_disk(missing, CLUSTER, lambda _: 0)
    with pytest.raises(BucketMissing):
        create_object_disk(ObjectBucket(missing), CLUSTER)


def test_on_another_disk_no_content_is_missing(
    disk: ObjectDisk, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all copies on it would be bad, and all of them made anew."""
    content = store(disk, b"bytes")
    server.empty()
    with pytest.raises(NotADisk):
        disk.open(content)
    create_object_disk(ObjectBucket(server.options()), CLUSTER)
    with pytest.raises(WrongDisk):
        disk.remove(content)
    monkeypatch.setattr(disk_module, "CHECK_EVERY", 0.0)
    with pytest.raises(WrongDisk):
        disk.check()


def test_credentials_are_those_of_the_file_or_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(credentials_text("key", "secret") + "aws_session_token = token\n")
    environment = {"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert read_credentials("s3", file, environment) == ("key", "secret", "token")
    assert read_credentials("s3", None, environment) == ("other", "secret", None)
    file.write_text("[default]\naws_access_key_id = key\n")
    cases: list[tuple[Any, ...]] = [
        (file, "has no aws_secret_access_key"),
        (tmp_path / "none", "No such file"),
        (None, "the environment of this process has no aws_access_key_id"),
    ]
    for path, problem in cases:
        with pytest.raises(CredentialsMissing, match=problem):
            read_credentials("s3", path, {})


@pytest.mark.slow
def test_uploads_that_wait_for_bytes_do_not_keep_others_from_being_read(
    disk: ObjectDisk, server: ObjectStoreServer
) -> None:
    content = store(disk, b"bytes")
    writers = [disk.begin(ContentId(number), 30 * MIB) for number in range(1, 13)]
    for writer in writers:
        writer.write(bytes(9 * MIB))
    with disk.open(content) as opened:
        opened.verify(digest_of(b"bytes"))
    store(disk, bytes(20 * MIB), size=20 * MIB)
    for writer in writers:
        writer.close()
    eventually(lambda: server.uploads() == [])
