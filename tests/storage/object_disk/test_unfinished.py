"""Uploads in parts that no process will end: the disk aborts those of its contents when they are old."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.object_disk import unfinished as unfinished_module
from peerd.storage.object_disk.bucket import ObjectBucket
from peerd.storage.object_disk.disk import ObjectDisk, create_object_disk, object_name, open_object_disk
from peerd.storage.object_disk.errors import BucketMissing, CredentialsRefused, ObjectStoreThrottled
from peerd.storage.object_disk.unfinished import ObjectUploads
from tests.storage.object_disk.conftest import CLUSTER, ON_SWIFT
from tests.support.object_store import ObjectStoreServer, credentials_text
from tests.support.throttling import Refusal, throttling_proxy

NAMES = ("contents/0000/000/0000000000000007", "quarantine/0000000000000007.mismatch.1700000000")
OTHERS = ("other/contents/0000/000/0000000000000007", "contents/0000/0000000000000007", "notes")


@pytest.fixture(autouse=True)
def no_uploads(server: ObjectStoreServer) -> None:
    for upload in server.client.list_multipart_uploads(Bucket="copies").get("Uploads", []):
        server.client.abort_multipart_upload(Bucket="copies", Key=upload["Key"], UploadId=upload["UploadId"])


def begin(server: ObjectStoreServer, *names: str) -> None:
    for name in names:
        upload = server.client.create_multipart_upload(Bucket="copies", Key=name)["UploadId"]
        server.client.upload_part(Bucket="copies", Key=name, UploadId=upload, PartNumber=1, Body=b"x" * 1000)


def test_old_uploads_of_contents_are_aborted_and_others_left(disk: ObjectDisk, server: ObjectStoreServer) -> None:
    assert object_name(ContentId(7)) == NAMES[0]
    others = [*(f"peerd/one/{name}" for name in OTHERS), f"peerd/two/{NAMES[0]}"]
    begin(server, *(f"peerd/one/{name}" for name in NAMES), f"peerd/one/{NAMES[0]}", *others)
    assert disk.remove_old_parts(time.time() + 60) == 3
    assert sorted(server.uploads()) == sorted(others)
    assert disk.remove_old_parts(time.time() + 60) == 0


def test_young_uploads_are_left_and_those_that_ended_meanwhile(disk: ObjectDisk, server: ObjectStoreServer) -> None:
    begin(server, f"peerd/one/{NAMES[0]}")
    uploads = ObjectUploads(server.options())
    [found] = uploads.list()
    if found.begun_at.year != 2010:  # moto says so of each upload
        assert disk.remove_old_parts(time.time() - 60) == 0
        assert len(server.uploads()) == 1
    uploads.abort(found)
    uploads.abort(found)
    assert list(uploads.list()) == []


def test_more_uploads_than_a_page_has_are_found(server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [object_name(ContentId(number << 40)) for number in range(1, 6)]
    begin(server, *(f"peerd/one/{name}" for name in names))
    monkeypatch.setattr(unfinished_module, "LISTED", 2)
    assert [one.name for one in ObjectUploads(server.options()).list()] == names


@ON_SWIFT
def test_wrong_credentials_are_refused_and_never_shown(
    server: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the environment of Amazon's tools change anything."""
    for name, value in {"ENDPOINT_URL_S3": "http://127.0.0.1:1", "SESSION_TOKEN": "x", "BUCKET": "y"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    file = tmp_path / "wrong"
    file.write_text(credentials_text(server.access_key, "not-the-secret-at-all"))
    options = server.options(credentials_file=str(file))
    for request in (
        lambda: open_object_disk(options, CLUSTER, lambda _: 0),
        lambda: list(ObjectUploads(options).list()),
    ):
        with pytest.raises(CredentialsRefused) as refused:
            request()
        text = f"{refused.value}{refused.value.__cause__}"
        assert "not-the-secret" not in text
    file.write_text(credentials_text(server.access_key, server.secret))
    create_object_disk(ObjectBucket(options), CLUSTER)
    assert list(ObjectUploads(options).list()) == []
    assert server.names() == ["peerd/one/peerd-disk.json"]


def test_errors_are_those_of_other_requests(server: ObjectStoreServer, tmp_path: Path) -> None:
    with pytest.raises(BucketMissing):
        list(ObjectUploads(server.options(bucket="no-such-bucket")).list())
    with throttling_proxy(server.url) as proxy:
        uploads = ObjectUploads(server.options(endpoint=proxy.url))
        proxy.refuse()
        with pytest.raises(ObjectStoreThrottled):
            list(uploads.list())
        proxy.refuse(1, Refusal(status=501, code="NotImplemented"))
        assert list(uploads.list()) == [], "an object store need not have this request"
        proxy.refuse(1, Refusal(status=200, code="Other"))
        with pytest.raises(Exception, match="the answer is no list of uploads"):
            list(uploads.list())
