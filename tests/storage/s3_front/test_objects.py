"""boto3, unmodified, against nodes: buckets, objects, lists, ranges, conditions and copies."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from peerd.domain.files import FileClass
from peerd.store.files.buckets import change_bucket
from peerd.store.files.classes import set_class
from tests.storage.s3_front.conftest import S3_DOMAIN, S3Cluster
from tests.store.plans import recorded_statements

ABOUT_FILES = re.compile(r"\b(files|file_buckets|file_copies)\b")


def error_of(call: Any, **arguments: Any) -> tuple[str, int]:
    """The code and the status with which a call fails."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    response = raised.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_an_object_is_put_with_the_copies_of_its_class_and_read_from_every_node(cluster: S3Cluster, s3: Any) -> None:
    content = os.urandom(6_000_000)
    put = s3.put_object(
        Bucket="films",
        Key="2026/one ä.mov",
        Body=content,
        ContentType="video/quicktime",
        CacheControl="max-age=60",
        Metadata={"take": "3", "Where": "studio b"},
    )
    assert put["ETag"] == f'"{hashlib.md5(content).hexdigest()}"'
    cluster.run_tasks()
    assert [len(node.contents()) for node in cluster.nodes.values()] == [1, 1]
    for node in cluster.nodes:
        got = cluster.client(node).get_object(Bucket="films", Key="2026/one ä.mov", ChecksumMode="ENABLED")
        assert got["Body"].read() == content
        assert (got["ContentType"], got["CacheControl"]) == ("video/quicktime", "max-age=60")
        assert got["Metadata"] == {"take": "3", "where": "studio b"}
        assert got["ChecksumCRC32"] == put["ChecksumCRC32"]
    head = s3.head_object(Bucket="films", Key="2026/one ä.mov")
    assert (head["ContentLength"], head["ETag"], head["AcceptRanges"]) == (len(content), put["ETag"], "bytes")
    cluster.catalogue.store.run(set_class, FileClass(name="single", copies=1))
    s3.put_object(Bucket="films", Key="f", Body=b"x", StorageClass="SINGLE")
    cluster.run_tasks()
    assert [len(node.contents()) for node in cluster.nodes.values()] == [2, 1]
    assert s3.head_object(Bucket="films", Key="f")["StorageClass"] == "SINGLE"
    assert {one["StorageClass"] for one in s3.list_objects_v2(Bucket="films")["Contents"]} == {"SINGLE", "STANDARD"}


def test_ranges_and_conditions(s3: Any) -> None:
    content = os.urandom(5_000_000)
    tag = s3.put_object(Bucket="films", Key="f", Body=content)["ETag"]
    part = s3.get_object(Bucket="films", Key="f", Range="bytes=4194300-4194309")
    assert (part["Body"].read(), part["ContentRange"]) == (content[4194300:4194310], "bytes 4194300-4194309/5000000")
    assert error_of(s3.get_object, Bucket="films", Key="f", Range="bytes=5000000-") == ("InvalidRange", 416)
    assert error_of(s3.head_object, Bucket="films", Key="f", IfModifiedSince=datetime.now(UTC)) == ("304", 304)
    assert error_of(s3.put_object, Bucket="films", Key="f", Body=b"x", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert error_of(s3.put_object, Bucket="films", Key="f", Body=b"x", IfMatch='"x"') == ("PreconditionFailed", 412)
    s3.put_object(Bucket="films", Key="f", Body=b"x", IfMatch=tag)
    assert error_of(s3.put_object, Bucket="films", Key="none", Body=b"x", IfMatch=tag) == ("NoSuchKey", 404)
    s3.delete_object(Bucket="films", Key="none", IfMatch=tag)
    assert error_of(s3.delete_object, Bucket="films", Key="f", IfMatch=tag) == ("PreconditionFailed", 412)
    wrong = [{"Key": "f", "ETag": tag}, {"Key": "none", "ETag": tag}]
    answer = s3.delete_objects(Bucket="films", Delete={"Objects": wrong})
    assert [one["Key"] for one in answer["Errors"]] == ["f"]
    assert [one["Key"] for one in answer["Deleted"]] == ["none"]
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == b"x"
    got = s3.get_object(Bucket="films", Key="f", ResponseContentDisposition='attachment; filename="f.txt"')
    assert got["ContentDisposition"] == 'attachment; filename="f.txt"'


def test_a_download_that_goes_on_after_the_object_was_replaced_is_sent_all_of_the_new_one(s3: Any) -> None:
    first = s3.put_object(Bucket="films", Key="f", Body=b"hello world")["ETag"]
    url = s3.generate_presigned_url("get_object", {"Bucket": "films", "Key": "f"})
    rest = {"range": "bytes=6-", "if-range": first}
    assert (httpx.get(url, headers=rest).status_code, httpx.get(url, headers=rest).content) == (206, b"world")
    s3.put_object(Bucket="films", Key="f", Body=b"HELLO AGAIN", CacheControl="max-age=60")
    whole = httpx.get(url, headers=rest)
    assert (whole.status_code, whole.content) == (200, b"HELLO AGAIN")
    same = httpx.get(url, headers={"if-none-match": whole.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    for name in ("etag", "last-modified", "cache-control"):
        assert same.headers[name] == whole.headers[name]


def test_buckets_are_made_listed_addressed_and_deleted_when_they_are_empty(cluster: S3Cluster, s3: Any) -> None:
    s3.create_bucket(Bucket="music")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["films", "music"]
    s3.head_bucket(Bucket="music")
    s3.create_bucket(Bucket="music")
    for name in ("foo-.bar", "foo.-bar", "foo..bar", "Foo", "1.2.3.4"):
        assert error_of(s3.create_bucket, Bucket=name) == ("InvalidBucketName", 400), name
    assert s3.get_bucket_location(Bucket="music")["LocationConstraint"] is None
    assert "Status" not in s3.get_bucket_versioning(Bucket="music")
    s3.put_object(Bucket="music", Key="a", Body=b"")
    assert error_of(s3.delete_bucket, Bucket="music") == ("BucketNotEmpty", 409)
    s3.delete_object(Bucket="music", Key="a")
    s3.delete_bucket(Bucket="music")
    assert error_of(s3.head_bucket, Bucket="music") == ("404", 404)
    assert error_of(s3.put_object, Bucket="music", Key="a", Body=b"x") == ("NoSuchBucket", 404)
    assert error_of(s3.get_object, Bucket="films", Key="none") == ("NoSuchKey", 404)
    wrong = {"CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    assert error_of(s3.create_bucket, Bucket="music", **wrong)[0] == "IllegalLocationConstraintException"
    s3.create_bucket(Bucket="health")  # a path of nodes
    assert httpx.get(f"{cluster.a.url}/health").json()["node"] == "a"
    s3.delete_bucket(Bucket="health")
    s3.put_object(Bucket="films", Key="a/b", Body=b"bytes")
    host, virtual = cluster.a.url.removeprefix("http://"), f"films.{S3_DOMAIN}"
    config = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
    url = cluster.client(endpoint_url=f"http://{S3_DOMAIN}", config=config).generate_presigned_url(
        "get_object", {"Bucket": "films", "Key": "a/b"}
    )
    assert url.startswith(f"http://{virtual}/a/b?")
    assert httpx.get(url.replace(virtual, host), headers={"host": virtual}).content == b"bytes"


def test_versions_are_the_current_objects_by_which_a_bucket_is_emptied(s3: Any) -> None:
    keys = ["a", "d/1", "d/2", "d/e/3", "ä b"]
    for key in keys:
        s3.put_object(Bucket="films", Key=key, Body=key.encode())
    pages = s3.get_paginator("list_object_versions").paginate(Bucket="films", PaginationConfig={"PageSize": 2})
    versions = [version for page in pages for version in page.get("Versions", [])]
    assert [version["Key"] for version in versions] == sorted(keys, key=str.encode)
    assert {(version["VersionId"], version["IsLatest"]) for version in versions} == {("null", True)}
    page = s3.list_object_versions(Bucket="films", Prefix="d/", Delimiter="/")
    assert [one["Key"] for one in page["Versions"]] == ["d/1", "d/2"]
    assert [one["Prefix"] for one in page["CommonPrefixes"]] == ["d/e/"]
    objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in versions[:-1]]
    assert "Errors" not in s3.delete_objects(Bucket="films", Delete={"Objects": objects})
    s3.delete_object(Bucket="films", Key=versions[-1]["Key"], VersionId="null")
    assert "Versions" not in s3.list_object_versions(Bucket="films")


NOT_IN_XML = "x\x01y\x7f\x85\ufffe"
KEYS = ["a", "a b+c&d", "d/1", "d/2", "d/e/3", NOT_IN_XML, "ä/ö", "日本/😀.txt", "z%2F", "..", "../../etc/passwd",
        "<&>\"'=;~\r\n\t", "w//x/../c d+e%20€"]  # fmt: skip


def test_lists_in_pages_with_every_kind_of_key(s3: Any) -> None:
    for key in KEYS:
        s3.put_object(Bucket="films", Key=key, Body=key.encode())
    for name in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(name).paginate(Bucket="films", PaginationConfig={"PageSize": 2})
        listed = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        assert listed == sorted(KEYS, key=str.encode), name
        pages = list(s3.get_paginator(name).paginate(Bucket="films", Delimiter="/", PaginationConfig={"PageSize": 1}))
        prefixes = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", [])]
        assert prefixes == ["../", "d/", "w/", "ä/", "日本/"], name
    page = s3.list_objects_v2(Bucket="films", Prefix="d/", Delimiter="/")
    assert [entry["Key"] for entry in page["Contents"]] == ["d/1", "d/2"]
    page = s3.list_objects_v2(Bucket="films", StartAfter="d/2", MaxKeys=1)
    assert (page["StartAfter"], page["KeyCount"], page["Contents"][0]["Key"]) == ("d/2", 1, "d/e/3")
    token = page["NextContinuationToken"]
    page = s3.list_objects_v2(Bucket="films", StartAfter="d/1", MaxKeys=1, ContinuationToken=token)
    assert (page["StartAfter"], page["Contents"][0]["Key"]) == ("d/1", "w//x/../c d+e%20€")
    for key in KEYS:
        assert s3.get_object(Bucket="films", Key=key)["Body"].read() == key.encode()
    s3.delete_object(Bucket="films", Key="a")
    deleted = s3.delete_objects(Bucket="films", Delete={"Objects": [{"Key": key} for key in [*KEYS, "none"]]})
    assert {entry["Key"] for entry in deleted["Deleted"]} == {*KEYS, "none"} - {NOT_IN_XML} | {"x\ufffdy\x7f\x85\ufffd"}
    assert s3.list_objects_v2(Bucket="films")["KeyCount"] == 0


def sha256(content: bytes) -> str:
    return b64encode(hashlib.sha256(content).digest()).decode()


def test_a_copy_is_a_new_version_with_the_headers_of_the_source_or_new_ones(cluster: S3Cluster, s3: Any) -> None:
    content = os.urandom(5_000_000)
    s3.create_bucket(Bucket="music")
    put = s3.put_object(Bucket="films", Key="ä 1", Body=content, Metadata={"a": "1"}, ContentType="text/plain")
    copied = s3.copy_object(Bucket="music", Key="copy", CopySource={"Bucket": "films", "Key": "ä 1"})
    assert copied["CopyObjectResult"]["ETag"] == put["ETag"]
    got = s3.get_object(Bucket="music", Key="copy")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (content, {"a": "1"}, "text/plain")
    summed = {"Bucket": "music", "Key": "summed", "ChecksumAlgorithm": "SHA256"}
    result = s3.copy_object(**summed, CopySource={"Bucket": "films", "Key": "ä 1"})["CopyObjectResult"]
    assert (result["ChecksumSHA256"], result["ChecksumType"]) == (sha256(content), "FULL_OBJECT")
    assert s3.head_object(Bucket="music", Key="summed", ChecksumMode="ENABLED")["ChecksumSHA256"] == sha256(content)
    replaced = {"MetadataDirective": "REPLACE", "Metadata": {"b": "2"}}
    s3.copy_object(Bucket="films", Key="ä 1", CopySource={"Bucket": "films", "Key": "ä 1"}, **replaced)
    assert s3.head_object(Bucket="films", Key="ä 1")["Metadata"] == {"b": "2"}
    source = {"Bucket": "films", "Key": "ä 1"}
    assert error_of(s3.copy_object, Bucket="music", Key="c", CopySource=source, CopySourceIfMatch="x")[1] == 412
    s3.delete_object(Bucket="films", Key="ä 1")
    cluster.run_tasks()
    assert s3.get_object(Bucket="music", Key="copy")["Body"].read() == content


def test_presigned_urls_put_and_get_without_a_key_until_they_expire(cluster: S3Cluster, s3: Any) -> None:
    put = s3.generate_presigned_url("put_object", {"Bucket": "films", "Key": "ä b"}, ExpiresIn=60)
    assert httpx.put(put, content=b"bytes").status_code == 200
    get = s3.generate_presigned_url("get_object", {"Bucket": "films", "Key": "ä b"}, ExpiresIn=60)
    assert httpx.get(get).content == b"bytes"
    assert httpx.get(get.replace("%C3%A4", "other")).status_code == 403
    assert httpx.put(get, content=b"other").status_code == 403
    clock = cluster.a.node.clock
    clock.synchronize(datetime.fromtimestamp(clock() + 61, UTC), clock.steady())
    assert "the presigned URL has expired" in httpx.get(get).text


def test_what_is_refused_leaves_nothing(cluster: S3Cluster, s3: Any) -> None:
    cluster.catalogue.store.run(change_bucket, "films", quota=10)
    assert error_of(s3.put_object, Bucket="films", Key="f", Body=b"x" * 11) == ("EntityTooLarge", 400)
    for wrong in ({"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, {"ChecksumSHA256": "A" * 43 + "="}):
        assert error_of(s3.put_object, Bucket="films", Key="f", Body=b"x", **wrong) == ("BadDigest", 400)
    assert error_of(s3.put_object, Bucket="films", Key="f", Body=b"x", StorageClass="NONE")[0] == "InvalidStorageClass"
    assert s3.list_objects_v2(Bucket="films")["KeyCount"] == 0
    assert (cluster.a.contents(), list((cluster.a.paths[0] / "parts").iterdir())) == ([], [])
    s3.put_object(Bucket="films", Key="f", Body=b"x" * 10)
    assert error_of(s3.get_object, Bucket="films", Key="f", VersionId="1") == ("NotImplemented", 501)


def test_a_put_without_a_length_is_refused(cluster: S3Cluster, s3: Any) -> None:
    upload = s3.create_multipart_upload(Bucket="films", Key="f")["UploadId"]
    part = {"Bucket": "films", "Key": "f", "UploadId": upload, "PartNumber": 1}
    host, port = cluster.a.url.removeprefix("http://").split(":")
    for operation, arguments in (("put_object", {"Bucket": "films", "Key": "f"}), ("upload_part", part)):
        path = s3.generate_presigned_url(operation, arguments).removeprefix(cluster.a.url)
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"PUT {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n".encode())
            answer = client.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 411 "), answer
        assert b"<Code>MissingContentLength<" in answer
    assert s3.list_objects_v2(Bucket="films")["KeyCount"] == 0


def test_a_storage_class_of_aws_is_the_class_of_the_bucket_and_encryption_is_refused(s3: Any) -> None:
    for name in ("STANDARD_IA", "INTELLIGENT_TIERING", "GLACIER"):
        s3.put_object(Bucket="films", Key=name, Body=b"x", StorageClass=name)
        assert "StorageClass" not in s3.head_object(Bucket="films", Key=name)
    upload = s3.create_multipart_upload(Bucket="films", Key="f", StorageClass="STANDARD_IA")["UploadId"]
    [listed] = s3.list_multipart_uploads(Bucket="films")["Uploads"]
    assert (listed["UploadId"], listed["StorageClass"]) == (upload, "STANDARD")
    with pytest.raises(ClientError, match="not encrypted by this server") as caught:
        s3.put_object(Bucket="films", Key="f", Body=b"x", ServerSideEncryption="AES256")
    assert caught.value.response["Error"]["Code"] == "NotImplemented"


def test_a_file_of_another_client_is_an_object_too(cluster: S3Cluster, s3: Any) -> None:
    signed = cluster.a.node.http
    with signed.request("PUT", cluster.a.url, "/files/films/plain", body=b"") as answer:
        assert answer.status == 201
        answer.read()
    head = s3.head_object(Bucket="films", Key="plain")
    assert head["ETag"].endswith('-1"')
    s3.put_object(Bucket="films", Key="plain", Body=b"new", IfMatch=head["ETag"])
    assert s3.get_object(Bucket="films", Key="plain")["Body"].read() == b"new"


def test_a_get_asks_for_the_file_and_its_copies_at_once_and_a_head_for_no_digest(cluster: S3Cluster, s3: Any) -> None:
    small, large = b"small", os.urandom(5_000_000)
    for key, content in (("small", small), ("large", large)):
        s3.put_object(Bucket="films", Key=key, Body=content)
        assert s3.get_object(Bucket="films", Key=key)["Body"].read() == content
    counts = []
    for method, key in ((s3.get_object, "small"), (s3.get_object, "large"), (s3.head_object, "large")):
        with recorded_statements(cluster.catalogue.store) as statements:
            got = method(Bucket="films", Key=key)
            if "Body" in got:
                got["Body"].read()
        counts.append(sum(bool(ABOUT_FILES.search(statement)) for statement, _ in statements))
    assert counts == [2, 3, 2]
