"""What S3's clients do with files is in the audit log, by their access keys."""

from __future__ import annotations

from typing import Any

from peerd import Client
from peerd.domain.access import FileRights
from tests.storage.nodes import SECRET
from tests.storage.s3_front.conftest import S3Cluster
from tests.storage.s3_front.test_objects import error_of
from tests.storage.s3_front.test_uploads import begin, upload_part


def test_changes_have_entries_and_reads_and_refused_puts_have_none(s3: Any, cluster: S3Cluster) -> None:
    reads = cluster.client(key=cluster.key(rights=FileRights.READ))
    for client, bucket in ((reads, "films"), (s3, "music")):
        assert error_of(client.put_object, Bucket=bucket, Key="a", Body=b"")
    s3.put_object(Bucket="films", Key="a", Body=b"one")
    s3.put_object(Bucket="films", Key="a", Body=b"other")
    s3.copy_object(Bucket="films", Key="b", CopySource="films/a")
    upload = begin(s3, "c")
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [upload_part(s3, upload, 1, b"x")]})
    s3.get_object(Bucket="films", Key="a")["Body"].read()
    s3.delete_object(Bucket="films", Key="a")
    s3.delete_object(Bucket="films", Key="a")
    s3.delete_objects(Bucket="films", Delete={"Objects": [{"Key": "b"}, {"Key": "c"}, {"Key": "none"}]})
    cluster.run_tasks()
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        found = [one for one in reversed(client.audit.page(limit=100).items) if one.target_kind == "file"]
    assert [(one.operation, one.target) for one in found] == [
        ("files.put", "films/a"),
        ("files.put", "films/a"),
        ("files.put", "films/b"),
        ("files.put", "films/c"),
        ("files.remove", "films/a"),
        ("files.remove", "films/b"),
        ("files.remove", "films/c"),
    ]
    assert {(one.actor, one.actor_kind, one.way, one.address) for one in found} == {
        ("of a test", "access-key", "s3", "127.0.0.1")
    }
    assert found[0].arguments["access_key"].startswith("PEERD")
    assert (found[1].before["size"], found[1].after["size"]) == (3, 5)
    assert found[2].arguments["source"] == "films/a"
    assert (found[4].before["size"], found[4].after) == (5, None)
