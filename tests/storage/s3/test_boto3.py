"""boto3 works unmodified with the protocol: what it signs, encodes and sends is read, and it reads the responses."""

from __future__ import annotations

import hashlib
import io
from typing import Any
from urllib.parse import urlsplit

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.storage.s3 import operations
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm
from tests.storage.s3.boto_server import MODIFIED, MemoryServer
from tests.storage.s3.signed_requests import HOST

ODD = "a//b/../c d+e%20ä€😀&<>\"'=;~"
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80)
CONTENT = bytes(range(256)) * 20


@pytest.fixture(scope="module")
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture(scope="module", params=["path", "virtual"])
def client(server: MemoryServer, request: pytest.FixtureRequest) -> Any:
    client = server.client(is_virtual=request.param == "virtual")
    client.create_bucket(Bucket="films")
    return client


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_a_body_arrives_with_each_checksum(server: MemoryServer, scheme: str, algorithm: str) -> None:
    client = server.client(scheme=scheme)
    client.create_bucket(Bucket="films")
    client.put_object(Bucket="films", Key=ODD, Body=io.BytesIO(CONTENT), ChecksumAlgorithm=algorithm)
    form = server.requests[-1].header("x-amz-content-sha256")
    assert (form == PayloadForm.UNSIGNED_CHUNKS_AND_TRAILER.value) is (scheme == "https")
    found = client.get_object(Bucket="films", Key=ODD, ChecksumMode="ENABLED")
    assert found["Body"].read() == CONTENT
    assert found[f"Checksum{algorithm}"]


@given(key=KEYS)
@example(key=ODD)
@example(key="/")
@example(key="\r\n\t\x01\x7f\x85\ufffe")
def test_any_key_is_put_listed_copied_and_deleted(client: Any, key: str) -> None:
    if len(key.encode()) > 1024:
        return
    client.put_object(Bucket="films", Key=key, Body=b"film")
    assert client.get_object(Bucket="films", Key=key)["Body"].read() == b"film"
    assert [row["Key"] for row in client.list_objects_v2(Bucket="films", Prefix=key)["Contents"]] == [key]
    assert [row["Key"] for row in client.list_objects(Bucket="films", Prefix=key)["Contents"]] == [key]
    client.copy_object(Bucket="films", Key="copy", CopySource={"Bucket": "films", "Key": key})
    client.delete_object(Bucket="films", Key=key)
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket="films", Key=key)
    client.delete_object(Bucket="films", Key="copy")


@given(keys=st.lists(KEYS.filter(lambda key: key.isprintable()), min_size=1, max_size=8, unique=True))
def test_any_keys_are_deleted_at_once(server: MemoryServer, client: Any, keys: list[str]) -> None:
    for key in keys:
        client.put_object(Bucket="films", Key=key, Body=b"")
    answer = client.delete_objects(Bucket="films", Delete={"Objects": [{"Key": key} for key in keys]})
    assert [row["Key"] for row in answer["Deleted"]] == keys
    assert not server.buckets["films"]


def test_lists_are_read_page_by_page(client: Any) -> None:
    keys = [f"ä {folder}/{name}+%" for folder in range(5) for name in range(5)] + ["ä z"]
    for key in keys:
        client.put_object(Bucket="films", Key=key, Body=b"")
    for operation in ("list_objects_v2", "list_objects"):
        pages = list(client.get_paginator(operation).paginate(Bucket="films", PaginationConfig={"PageSize": 4}))
        assert [row["Key"] for page in pages for row in page["Contents"]] == keys
        folders = list(
            client.get_paginator(operation).paginate(
                Bucket="films", Delimiter="/", Prefix="ä ", PaginationConfig={"PageSize": 2}
            )
        )
        found = [row["Prefix"] for page in folders for row in page.get("CommonPrefixes", [])]
        assert found == [f"ä {folder}/" for folder in range(5)]
        assert [row["Key"] for page in folders for row in page.get("Contents", [])] == ["ä z"]
    started = client.list_objects_v2(Bucket="films", StartAfter="ä 4/2+%", FetchOwner=True)
    assert started["StartAfter"] == "ä 4/2+%"
    assert started["KeyCount"] == 3
    assert started["Contents"][0]["Owner"]["ID"] == "owner-id"
    for key in keys:
        client.delete_object(Bucket="films", Key=key)


def test_headers_and_metadata_are_kept_and_overridden(client: Any) -> None:
    client.put_object(
        Bucket="films",
        Key="a",
        Body=io.BytesIO(CONTENT),
        ContentType="video/mp4",
        CacheControl="no-store",
        ContentEncoding="gzip",
        Metadata={"title": "A film", "Year": "2026"},
    )
    head = client.head_object(Bucket="films", Key="a")
    assert (head["ContentType"], head["CacheControl"]) == ("video/mp4", "no-store")
    assert (head["ContentLength"], head["ContentEncoding"]) == (len(CONTENT), "gzip")
    assert head["ETag"] == f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert head["LastModified"] == MODIFIED.replace(microsecond=0)
    assert head["Metadata"] == {"title": "A film", "year": "2026"}
    found = client.get_object(Bucket="films", Key="a", Range="bytes=256-511", ResponseContentType="text/plain")
    assert found["Body"].read() == bytes(range(256))
    assert (found["ContentRange"], found["ContentType"]) == (f"bytes 256-511/{len(CONTENT)}", "text/plain")


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ({"IfNoneMatch": hashlib.md5(CONTENT).hexdigest()}, 304),
        ({"IfModifiedSince": MODIFIED}, 304),
        ({"IfMatch": "other"}, 412),
        ({"Range": f"bytes={len(CONTENT)}-"}, 416),
    ],
)
def test_a_condition_that_does_not_hold_has_its_status(client: Any, conditions: dict[str, Any], status: int) -> None:
    client.put_object(Bucket="films", Key="a", Body=CONTENT)
    for operation in (client.get_object, client.head_object):
        with pytest.raises(ClientError) as caught:
            operation(Bucket="films", Key="a", **conditions)
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_a_large_file_is_uploaded_in_parts(server: MemoryServer, client: Any) -> None:
    size = 5 * 1024 * 1024
    content = bytes(size + 1000)
    settings = TransferConfig(multipart_threshold=size, multipart_chunksize=size, use_threads=False)
    client.upload_fileobj(io.BytesIO(content), "films", ODD, Config=settings)
    assert server.buckets["films"][ODD][1] == content
    etag = client.head_object(Bucket="films", Key=ODD)["ETag"]
    parts = [hashlib.md5(part).digest() for part in (content[:size], content[size:])]
    assert etag == f'"{hashlib.md5(b"".join(parts)).hexdigest()}-2"'
    kinds = [type(operation).__name__ for operation in server.seen[-5:-1]]
    assert kinds == ["CreateMultipartUpload", "UploadPart", "UploadPart", "CompleteMultipartUpload"]
    client.delete_object(Bucket="films", Key=ODD)


def test_uploads_and_parts_are_listed_copied_and_aborted(client: Any) -> None:
    client.put_object(Bucket="films", Key="source", Body=CONTENT)
    upload = client.create_multipart_upload(Bucket="films", Key=ODD)["UploadId"]
    client.upload_part(Bucket="films", Key=ODD, UploadId=upload, PartNumber=1, Body=b"one")
    copied = client.upload_part_copy(
        Bucket="films",
        Key=ODD,
        UploadId=upload,
        PartNumber=2,
        CopySource={"Bucket": "films", "Key": "source"},
        CopySourceRange="bytes=0-99",
    )
    assert copied["CopyPartResult"]["ETag"] == f'"{hashlib.md5(CONTENT[:100]).hexdigest()}"'
    parts = client.get_paginator("list_parts").paginate(
        Bucket="films", Key=ODD, UploadId=upload, PaginationConfig={"PageSize": 1}
    )
    assert [(row["PartNumber"], row["Size"]) for page in parts for row in page["Parts"]] == [(1, 3), (2, 100)]
    client.create_multipart_upload(Bucket="films", Key="second")
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket="films", PaginationConfig={"PageSize": 1})
    assert [row["Key"] for page in pages for row in page["Uploads"]] == [ODD, "second"]
    for row in client.list_multipart_uploads(Bucket="films")["Uploads"]:
        client.abort_multipart_upload(Bucket="films", Key=row["Key"], UploadId=row["UploadId"])
    with pytest.raises(client.exceptions.NoSuchUpload):
        client.list_parts(Bucket="films", Key=ODD, UploadId=upload)


def test_buckets_are_created_described_and_deleted(client: Any) -> None:
    client.create_bucket(Bucket="more.films", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    listed = client.list_buckets()
    assert {"films", "more.films"} <= {row["Name"] for row in listed["Buckets"]}
    assert listed["Owner"] == {"ID": "owner-id", "DisplayName": "films & <more>"}
    assert listed["Buckets"][0]["CreationDate"] == MODIFIED
    assert client.get_bucket_location(Bucket="more.films")["LocationConstraint"] == "eu-west-1"
    assert "Status" not in client.get_bucket_versioning(Bucket="more.films")
    client.head_bucket(Bucket="more.films")
    client.delete_bucket(Bucket="more.films")
    with pytest.raises(ClientError) as caught:
        client.head_bucket(Bucket="more.films")
    assert caught.value.response["Error"]["Code"] == "404"


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("get_bucket_acl", {}),
        ("get_bucket_lifecycle_configuration", {}),
        ("get_object_tagging", {"Key": "a"}),
        ("put_object_acl", {"Key": "a", "ACL": "private"}),
        ("put_object_legal_hold", {"Key": "a", "LegalHold": {"Status": "ON"}}),
        ("put_object", {"Key": "a", "ServerSideEncryption": "AES256"}),
        ("put_object", {"Key": "a", "Tagging": "a=b"}),
        ("get_object", {"Key": "a", "VersionId": "1"}),
        ("list_object_versions", {}),
        ("get_object_attributes", {"Key": "a", "ObjectAttributes": ["ETag"]}),
    ],
)
def test_what_this_server_does_not_have_is_not_implemented(client: Any, call: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        getattr(client, call)(Bucket="films", **arguments)
    assert caught.value.response["Error"]["Code"] == "NotImplemented"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501


def test_a_presigned_url_names_what_the_response_has(server: MemoryServer, client: Any) -> None:
    # Without signature_version, boto3 presigns for us-east-1 with Signature Version 2.
    style = client.meta.config.s3["addressing_style"]
    presigning = server.client(signature_version="s3v4", is_virtual=style == "virtual")
    url = presigning.generate_presigned_url(
        "get_object",
        Params={"Bucket": "films", "Key": ODD, "ResponseContentDisposition": 'attachment; filename="a b.mp4"'},
        ExpiresIn=60,
    )
    parts = urlsplit(url)
    assert parts.netloc.endswith(HOST)
    server.client().put_object(Bucket="films", Key=ODD, Body=b"film")
    request = S3HttpRequest(
        "GET", parts.path.encode(), parts.query.encode(), [(b"host", parts.netloc.encode()), (b"x-other", b"1")]
    )
    response, content = server._respond(request, b"")
    assert content == b"film"
    assert response.headers["content-disposition"] == 'attachment; filename="a b.mp4"'
    assert isinstance(server.seen[-1], operations.GetObject)
    assert server.seen[-1].key == ODD
