"""S3 on every database: what it writes to the catalogue, and reads from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.store.files.buckets import bucket_usage, get_bucket
from peerd.store.schema.tables import file_upload_parts, file_uploads
from tests.storage.s3_front.conftest import S3Cluster, cluster_of
from tests.storage.s3_front.test_uploads import MIB, begin, upload_part
from tests.store.file_steps import Catalogue


@pytest.fixture
def on_each(tmp_path: Path, catalogue: Catalogue) -> Iterator[S3Cluster]:
    """Two nodes on each database."""
    with cluster_of(tmp_path, catalogue) as cluster:
        yield cluster


def test_an_object_is_uploaded_in_parts_copied_listed_and_deleted(on_each: S3Cluster) -> None:
    a, b = on_each.client("a"), on_each.client("b")
    a.create_bucket(Bucket="films")
    content = os.urandom(6 * MIB)
    upload = begin(b, "ä 1", Metadata={"a": "1"})
    parts = [upload_part(a, upload, n + 1, content[n * 5 * MIB : (n + 1) * 5 * MIB]) for n in range(2)]
    upload_part(a, upload, 1, content[: 5 * MIB])
    assert [part["Size"] for part in a.list_parts(**upload)["Parts"]] == [5 * MIB, MIB]
    assert [one["Key"] for one in a.list_multipart_uploads(Bucket="films", Prefix="ä")["Uploads"]] == ["ä 1"]
    a.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    a.copy_object(Bucket="films", Key="copy", CopySource={"Bucket": "films", "Key": "ä 1"})
    for client in (a, b):
        assert client.get_object(Bucket="films", Key="copy")["Body"].read() == content
    assert [one["Key"] for one in a.list_objects_v2(Bucket="films")["Contents"]] == ["copy", "ä 1"]
    usage = on_each.catalogue.store.read(lambda c: bucket_usage(c, get_bucket(c, "films").id))
    assert (usage.files, usage.bytes) == (2, 12 * MIB)
    on_each.run_tasks()
    a.delete_objects(Bucket="films", Delete={"Objects": [{"Key": "copy"}, {"Key": "ä 1"}]})
    on_each.run_tasks()
    assert [node.contents() for node in on_each.nodes.values()] == [[], []]
    assert on_each.catalogue.count(file_uploads) == on_each.catalogue.count(file_upload_parts) == 0
    a.delete_bucket(Bucket="films")
