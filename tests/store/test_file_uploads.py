"""Uploads in parts of S3, and resumable ones."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from peerd.domain.file_errors import (
    BucketNotEmpty,
    BucketNotFound,
    FileConditionFailed,
    InvalidFile,
    QuotaExceeded,
    UploadGone,
    UploadPositionDiffers,
)
from peerd.store.files import buckets, copies, listing, uploads
from peerd.store.files.buckets import Bucket
from peerd.store.files.versions import Condition
from peerd.store.schema.tables import file_completed_uploads, file_uploads
from peerd.store.schema.types import seconds_from_now
from tests.store.file_steps import Catalogue


def begin_of_s3(catalogue: Catalogue, bucket: Bucket, key: str = "s3", disk: int = 1) -> str:
    upload_id = uuid.uuid4().hex
    more: Any = {"metadata": {"a": "ä"}, "headers": {"cache-control": "no-store"}, "created_by": "PEERDKEY"}
    new = uploads.NewUpload(id=upload_id, key=key, disk_id=disk, class_name="default", **more)
    catalogue.store.run(uploads.enter_upload, bucket, new)
    return upload_id


def part(number: int, content: int, size: int = 10) -> dict[str, object]:
    return {"number": number, "content_id": content, "size": size, "etag": f"{content:032x}", "checksum": None}


def test_parts_are_listed_in_order_and_a_later_one_replaces_an_earlier(catalogue: Catalogue) -> None:
    bucket = catalogue.bucket()
    upload_id = begin_of_s3(catalogue, bucket, "one ä")
    assert [catalogue.store.run(uploads.add_part, upload_id, part(n, n * 100)) for n in (10, 2, 1)] == [None] * 3
    assert catalogue.store.run(uploads.add_part, upload_id, part(2, 999, 30)) == 200
    found = catalogue.store.read(uploads.list_parts, upload_id)
    assert [(one.number, one.content_id, one.size) for one in found] == [(1, 100, 10), (2, 999, 30), (10, 1000, 10)]
    assert [one.number for one in catalogue.store.read(uploads.list_parts, upload_id, after=1, limit=1)] == [2]
    assert catalogue.store.read(uploads.bytes_with_uploads, bucket.id) == 50
    upload = catalogue.store.read(uploads.find_upload, upload_id)
    assert upload is not None
    assert (upload.key, upload.metadata, upload.headers) == ("one ä", {"a": "ä"}, {"cache-control": "no-store"})


def test_uploads_are_listed_by_key_and_id_in_pages(catalogue: Catalogue) -> None:
    def listed(**how: Any) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        after: tuple[str, str | None] | None = ("", None)
        while after is not None:
            page = catalogue.store.read(listing.list_uploads, bucket, after=after, **how)
            found += [(one.key, one.id) for one in page.uploads] + [(prefix, "") for prefix in page.prefixes]
            after = page.next_after
        return found

    bucket = catalogue.bucket()
    begun = [(key, begin_of_s3(catalogue, bucket, key)) for key in ("a", "b/1", "b/2", "b/2", "c/1", "é")]
    assert listed(limit=2) == sorted(begun, key=lambda one: (one[0].encode(), one[1]))
    assert [key for key, _ in listed(delimiter="/", limit=1)] == ["a", "b/", "c/", "é"]
    assert [key for key, _ in listed(prefix="b/2")] == ["b/2", "b/2"]


def test_stale_uploads_are_those_of_the_own_disks_and_of_disks_that_are_no_more(catalogue: Catalogue) -> None:
    bucket, disk, other = catalogue.bucket(), catalogue.disk("a"), catalogue.disk("b")
    own = begin(catalogue, bucket, disk_id=disk)
    _, gone, fresh = (begin_of_s3(catalogue, bucket, "k", one) for one in (other, 9999, disk))
    catalogue.change(file_uploads, file_uploads.c.id != fresh, touched_at=seconds_from_now(-700_000.0))
    found = catalogue.store.read(listing.stale_uploads, [disk], 604_800.0, 10)
    assert {one.id for one in found} == {own, gone}
    catalogue.store.run(uploads.advance_upload, own, 0, 1)
    found = catalogue.store.read(listing.stale_uploads, [disk], 604_800.0, 10)
    assert [one.id for one in found] == [gone]


def begin(catalogue: Catalogue, bucket: Bucket, key: str = "key ä", content: int = 7, **more: Any) -> str:
    upload_id = uuid.uuid4().hex
    values = {"disk_id": 1, "class_name": "default", "metadata": {"a": "ä"}, "source": "x-1", "size": 100, **more}
    new = uploads.NewUpload(id=upload_id, key=key, content_id=content, **values)
    catalogue.store.run(uploads.enter_upload, bucket, new)
    return upload_id


def test_an_upload_advances_part_by_part_and_by_nothing_else(catalogue: Catalogue) -> None:
    bucket, store = catalogue.bucket(), catalogue.store
    upload_id = begin(catalogue, bucket, expires_in=1.5, created_by="ann")
    assert store.run(uploads.advance_upload, upload_id, 0, 40) == 40
    assert store.run(uploads.advance_upload, upload_id, 40, 60) == 100
    for offset in (0, 40, 99, 101):
        with pytest.raises(UploadPositionDiffers, match="has 100 bytes"):
            store.run(uploads.advance_upload, upload_id, offset, 1)
    found = store.read(uploads.get_resumable, upload_id)
    assert (found.bucket, found.key, found.metadata, found.received) == ("films", "key ä", {"a": "ä"}, 100)
    assert (found.size, found.expires_in, found.created_by, found.condition) == (100, 1.5, "ann", Condition())
    of_s3, second = begin_of_s3(catalogue, bucket, "key ä"), begin(catalogue, bucket, content=8, size=None)
    begin(catalogue, bucket, "other", content=9, size=None)
    of_key = store.read(uploads.uploads_of_key, bucket, "key ä")
    assert [(one.id, one.received) for one in of_key] == [(upload_id, 100), (second, 0)]
    assert [one.id for one in store.read(listing.list_uploads, bucket).uploads] == [of_s3]
    assert store.read(uploads.find_upload, upload_id) is None
    with pytest.raises(UploadGone):
        store.read(uploads.get_resumable, of_s3)
    assert store.read(uploads.bytes_with_uploads, bucket.id) == 100
    assert store.read(copies.known_on_disk, 1, [7, 10]) == {7}, "it is not swept"
    with pytest.raises(BucketNotEmpty):
        store.run(buckets.delete_bucket, "films")


@pytest.mark.parametrize("is_of_s3", [False, True])
def test_an_aborted_upload_is_gone_and_its_bytes_are_still_to_be_removed(
    catalogue: Catalogue,
    is_of_s3: bool,  # noqa: FBT001
) -> None:
    bucket, store = catalogue.bucket(), catalogue.store
    disk = catalogue.disk("a")
    upload_id = begin_of_s3(catalogue, bucket) if is_of_s3 else begin(catalogue, bucket)
    catalogue.change(file_uploads, file_uploads.c.id == upload_id, disk_id=disk)
    if is_of_s3:
        store.run(uploads.add_part, upload_id, part(1, 5))
    assert store.read(listing.aborted_uploads, [disk], 10) == []
    store.run(uploads.mark_aborted, upload_id)
    attempts: list[Any] = [
        (uploads.mark_aborted, ()),
        (uploads.advance_upload, (0, 1)),
        (uploads.complete_upload, ("etag",)),
        (uploads.get_resumable, ()),
    ]
    for operation, more in attempts:
        with pytest.raises(UploadGone):
            store.run(operation, upload_id, *more)
    assert store.read(uploads.find_upload, upload_id) is None
    assert store.read(listing.find_unfinished, upload_id) is None
    assert store.read(listing.list_unfinished, None, "", "", 10).uploads == []
    assert catalogue.count(file_completed_uploads) == 0
    assert store.read(listing.aborted_uploads, [disk + 1], 10) == [], "its disk is on another node"
    assert [one.id for one in store.read(listing.aborted_uploads, [disk], 10)] == [upload_id]
    assert store.run(uploads.end_upload, upload_id) == ([5] if is_of_s3 else [])
    assert catalogue.count(file_uploads) == 0
    attempts = [(uploads.end_upload, ()), (uploads.add_part, (part(1, 8),))]
    for operation, more in attempts:
        with pytest.raises(UploadGone):
            store.run(operation, upload_id, *more)


def test_what_cannot_be_stored_is_refused_before_a_byte_is_sent(catalogue: Catalogue) -> None:
    bucket, store = catalogue.bucket(quota=100), catalogue.store
    catalogue.put(bucket, "file", 1, 30)
    upload_id = begin(catalogue, bucket, size=None)
    store.run(uploads.advance_upload, upload_id, 0, 50)
    with pytest.raises(QuotaExceeded):
        store.run(uploads.advance_upload, upload_id, 50, 21)
    with pytest.raises(QuotaExceeded):
        begin(catalogue, bucket, size=21)
    begin(catalogue, bucket, "file", size=50)  # it replaces one
    for condition, problem in ((Condition(is_absent=True), "there is a file"), (Condition(tag="t"), "another one")):
        with pytest.raises(FileConditionFailed, match=problem):
            begin(catalogue, bucket, "file", size=1, condition=condition)
    with pytest.raises(InvalidFile):
        begin(catalogue, bucket, "k" * 1025)
    store.run(lambda connection: connection.execute(file_uploads.delete()).close())
    other = catalogue.bucket("music")
    store.run(buckets.delete_bucket, "music")
    with pytest.raises(BucketNotFound):
        begin(catalogue, other)


def test_all_unfinished_uploads_are_listed_in_pages(catalogue: Catalogue) -> None:
    bucket, store = catalogue.bucket(), catalogue.store
    other = catalogue.bucket("music")
    begun = {begin(catalogue, bucket, key): key for key in ("a/1", "a/2", "b", "ä")}
    of_s3 = begin_of_s3(catalogue, other)
    for number, size in ((1, 10), (2, 30)):
        store.run(uploads.add_part, of_s3, part(number, number, size))
    found, after = [], ""
    while True:
        page = store.read(listing.list_unfinished, None, "", after, 2)
        found += page.uploads
        if page.next_after is None:
            break
        after = page.next_after
    assert [one.id for one in found] == sorted([*begun, of_s3])
    assert {one.id: (one.received, one.is_of_s3, one.bucket) for one in found}[of_s3] == (40, True, "music")
    below = store.read(listing.list_unfinished, bucket, "a/", "", 10)
    assert sorted(one.key for one in below.uploads) == ["a/1", "a/2"]
    assert store.read(listing.find_unfinished, of_s3) == ("music", "s3")
