"""Uploads in parts, on every database."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from peerd.domain.file_errors import BucketNotEmpty, UploadGone
from peerd.store.files import buckets, uploads
from peerd.store.files.buckets import Bucket
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import file_uploads
from tests.store.file_steps import Catalogue


def begin(catalogue: Catalogue, bucket: Bucket, key: str, disk: int = 1) -> str:
    upload_id = uuid.uuid4().hex
    more: Any = {"metadata": {"a": "ä"}, "headers": {"cache-control": "no-store"}, "created_by": "PEERDKEY"}
    new = uploads.NewUpload(id=upload_id, key=key, disk_id=disk, class_name="default", **more)
    catalogue.store.run(uploads.begin_upload, bucket, new)
    return upload_id


def part(number: int, content: int, size: int = 10) -> dict[str, object]:
    return {"number": number, "content_id": content, "size": size, "etag": f"{content:032x}", "checksum": None}


def test_parts_are_listed_in_order_and_a_later_one_replaces_an_earlier(catalogue: Catalogue) -> None:
    bucket = catalogue.bucket()
    upload_id = begin(catalogue, bucket, "one ä")
    assert [catalogue.store.run(uploads.add_part, upload_id, part(n, n * 100)) for n in (10, 2, 1)] == [None] * 3
    assert catalogue.store.run(uploads.add_part, upload_id, part(2, 999, 30)) == 200
    found = catalogue.store.read(uploads.list_parts, upload_id)
    assert [(one.number, one.content_id, one.size) for one in found] == [(1, 100, 10), (2, 999, 30), (10, 1000, 10)]
    assert [one.number for one in catalogue.store.read(uploads.list_parts, upload_id, after=1, limit=1)] == [2]
    assert catalogue.store.read(uploads.bytes_of_uploads, bucket.id) == 50
    upload = catalogue.store.read(uploads.find_upload, upload_id)
    assert upload is not None
    assert (upload.bucket, upload.key, upload.metadata, upload.headers) == (
        "films", "one ä", {"a": "ä"}, {"cache-control": "no-store"}
    )  # fmt: skip


def test_an_upload_ends_once(catalogue: Catalogue) -> None:
    bucket = catalogue.bucket()
    upload_id = begin(catalogue, bucket, "key")
    catalogue.store.run(uploads.add_part, upload_id, part(1, 7))
    with pytest.raises(BucketNotEmpty):
        catalogue.store.run(buckets.delete_bucket, "films")
    assert catalogue.store.run(uploads.end_upload, upload_id) == [7]
    attempts: list[Any] = [(uploads.end_upload, ()), (uploads.add_part, (part(1, 8),))]
    for operation, more in attempts:
        with pytest.raises(UploadGone):
            catalogue.store.run(operation, upload_id, *more)
    assert catalogue.store.read(uploads.find_upload, upload_id) is None
    catalogue.store.run(buckets.delete_bucket, "films")


def test_uploads_are_listed_by_key_and_id_in_pages(catalogue: Catalogue) -> None:
    bucket = catalogue.bucket()
    keys = ["a", "b/1", "b/2", "b/2", "c/1", "é"]
    begun = sorted((key.encode(), begin(catalogue, bucket, key)) for key in keys)
    everything = [(key.decode(), upload_id) for key, upload_id in begun]
    listed: list[tuple[str, str]] = []
    after: tuple[str, str | None] | None = ("", None)
    while after is not None:
        page = catalogue.store.read(uploads.list_uploads, bucket, after=after, limit=2)
        listed += [(one.key, one.id) for one in page.uploads]
        after = page.next_after
    assert listed == everything
    entries: list[str] = []
    after = ("", None)
    while after is not None:
        page = catalogue.store.read(uploads.list_uploads, bucket, after=after, delimiter="/", limit=1)
        entries += [one.key for one in page.uploads] + page.prefixes
        after = page.next_after
    assert entries == ["a", "b/", "c/", "é"]
    page = catalogue.store.read(uploads.list_uploads, bucket, prefix="b/2")
    assert [one.key for one in page.uploads] == ["b/2", "b/2"]


def test_stale_uploads_are_those_of_the_own_disks_and_of_disks_that_are_no_more(catalogue: Catalogue) -> None:
    bucket, disk, other = catalogue.bucket(), catalogue.disk("a"), catalogue.disk("b")
    own, others, gone, fresh = (begin(catalogue, bucket, "k", one) for one in (disk, other, 9999, disk))
    catalogue.change(file_uploads, file_uploads.c.id != fresh, touched_at=seconds_from_now(-700_000.0))
    found = catalogue.store.read(uploads.stale_uploads, [disk], 604_800.0, 10)
    assert {one.id for one in found} == {own, gone}
    assert others not in {one.id for one in found}
