"""Uploads in parts: by boto3, from several nodes, interrupted, aborted and forgotten."""

from __future__ import annotations

import hashlib
import io
import os
import socket
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from peerd.storage.maintenance import StorageMaintenance
from peerd.storage.s3.checksums import new_checksum
from peerd.storage.s3_front import completion, exchange
from peerd.store.schema.tables import file_completed_uploads, file_upload_parts, file_uploads
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from tests.storage.breaking import nowhere, serve_at
from tests.storage.nodes import ServedNode
from tests.storage.s3_front.conftest import S3Cluster
from tests.storage.s3_front.test_objects import error_of
from tests.store.file_steps import Catalogue
from tests.support.certificates import make_certificate

MIB = 1024 * 1024
TRANSFER = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=4)


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def begin(s3: Any, key: str = "f", **more: Any) -> dict[str, str]:
    upload = s3.create_multipart_upload(Bucket="films", Key=key, **more)
    return {"Bucket": "films", "Key": key, "UploadId": upload["UploadId"]}


def upload_part(s3: Any, upload: dict[str, str], number: int, data: bytes, **more: Any) -> dict[str, Any]:
    part = s3.upload_part(**upload, PartNumber=number, Body=data, **more)
    sums = {name: value for name, value in part.items() if name.startswith("Checksum")}
    return {"PartNumber": number, "ETag": part["ETag"], **sums}


def test_twenty_megabytes_are_uploaded_in_parts_and_read_from_every_node(cluster: S3Cluster, s3: Any) -> None:
    content = os.urandom(20 * MIB + 17)
    more = {"Metadata": {"a": "1"}, "ContentType": "video/mp4"}
    s3.upload_fileobj(io.BytesIO(content), "films", "big.mp4", Config=TRANSFER, ExtraArgs=more)
    md5s = [md5(content[at : at + 5 * MIB]) for at in range(0, len(content), 5 * MIB)]
    head = s3.head_object(Bucket="films", Key="big.mp4")
    assert head["ETag"] == f'"{md5(b"".join(md5s)).hex()}-5"'
    assert (head["Metadata"], head["ContentType"], head["ContentLength"]) == ({"a": "1"}, "video/mp4", len(content))
    assert len(cluster.a.contents()) == 1, "the parts are removed"
    got = io.BytesIO()
    cluster.client("b").download_fileobj("films", "big.mp4", got, Config=TRANSFER)
    assert got.getvalue() == content
    assert cluster.catalogue.count(file_uploads) == cluster.catalogue.count(file_upload_parts) == 0


def test_another_node_relays_and_aborts_when_the_disk_is_away(cluster: S3Cluster, s3: Any) -> None:
    content, other = os.urandom(11 * MIB), cluster.client("b")
    upload = begin(s3, "ä b")
    parts = [upload_part(other, upload, n + 1, content[n * 5 * MIB : (n + 1) * 5 * MIB]) for n in range(3)]
    assert (len(cluster.a.contents()), cluster.nodes["b"].contents()) == (3, [])
    assert [part["PartNumber"] for part in other.list_parts(**upload)["Parts"]] == [1, 2, 3]
    wrong = {"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}
    assert error_of(other.upload_part, **upload, PartNumber=4, Body=b"x", **wrong) == ("BadDigest", 400)
    other.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert other.get_object(Bucket="films", Key="ä b")["Body"].read() == content
    again = begin(s3)
    upload_part(other, again, 1, b"x")
    other.abort_multipart_upload(**again)
    assert len(cluster.a.contents()) == 1
    assert error_of(other.list_parts, **again) == ("NoSuchUpload", 404)
    upload = begin(s3)
    serve_at(cluster, "a", nowhere())
    assert error_of(other.upload_part, **upload, PartNumber=1, Body=b"x") == ("ServiceUnavailable", 503)
    other.abort_multipart_upload(**upload)
    assert cluster.catalogue.count(file_uploads) == 0


def test_parts_that_are_not_as_the_client_names_them_are_refused(cluster: S3Cluster, s3: Any) -> None:
    upload = begin(s3)
    first, last = (upload_part(s3, upload, number, b"x" * size) for number, size in ((1, 5 * MIB), (2, 10)))
    small = upload_part(s3, upload, 3, b"y")
    for parts, error in (
        ([first, {"PartNumber": 2, "ETag": '"' + "0" * 32 + '"'}], "InvalidPart"),
        ([first, {**last, "ChecksumCRC32": "AAAAAA=="}], "InvalidPart"),
        ([first, {**last, "PartNumber": 9}], "InvalidPart"),
        ([last, first], "InvalidPartOrder"),
        ([first, last, small], "EntityTooSmall"),
        ([], "MalformedXML"),
    ):
        wrong = {**upload, "MultipartUpload": {"Parts": parts}}
        assert error_of(s3.complete_multipart_upload, **wrong)[0] == error
    assert error_of(s3.head_object, Bucket="films", Key="f")[1] == 404
    done = {**upload, "MultipartUpload": {"Parts": [first, last]}}
    exists = s3.put_object(Bucket="films", Key="f", Body=b"earlier")
    assert error_of(s3.complete_multipart_upload, **done, IfNoneMatch="*") == ("PreconditionFailed", 412)
    s3.complete_multipart_upload(**done, IfMatch=exists["ETag"])
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == b"x" * 5 * MIB + b"x" * 10
    other = {**upload, "MultipartUpload": {"Parts": [first]}}
    assert error_of(s3.complete_multipart_upload, **other) == ("NoSuchUpload", 404), "it was completed otherwise"
    cluster.run_tasks()
    assert len(cluster.a.contents()) == 1, "parts that were not used are removed too"
    for algorithm, kind, damaged in (
        ("SHA256", "COMPOSITE", {"ChecksumSHA256": "A" * 43 + "=-2"}),
        ("CRC32", "FULL_OBJECT", {"ChecksumCRC32": "AAAAAA=="}),
    ):
        upload = begin(s3, algorithm, ChecksumAlgorithm=algorithm, ChecksumType=kind)
        parts = [upload_part(s3, upload, n, bytes([n]) * 5 * MIB, ChecksumAlgorithm=algorithm) for n in (1, 2)]
        done = {**upload, "MultipartUpload": {"Parts": parts}, "ChecksumType": kind}
        assert error_of(s3.complete_multipart_upload, **done, **damaged) == ("BadDigest", 400)
        s3.complete_multipart_upload(**done)


def checksum(algorithm: str, data: bytes) -> bytes:
    running = new_checksum(algorithm.lower())
    running.update(data)
    return running.digest()


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("CRC32", "COMPOSITE"), ("SHA256", "COMPOSITE"), ("CRC32C", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT")],
)
def test_an_object_keeps_the_checksum_for_which_its_upload_was_begun(s3: Any, algorithm: str, kind: str) -> None:
    name, contents = f"Checksum{algorithm}", [os.urandom(5 * MIB), os.urandom(5 * MIB), b"copied"]
    created = s3.create_multipart_upload(Bucket="films", Key="f", ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert (created["ChecksumAlgorithm"], created["ChecksumType"]) == (algorithm, kind)
    upload = {key: created[key] for key in ("Bucket", "Key", "UploadId")}
    [listed] = s3.list_multipart_uploads(Bucket="films")["Uploads"]
    assert (listed["ChecksumAlgorithm"], listed["ChecksumType"]) == (algorithm, kind)
    sums = [checksum(algorithm, content) for content in contents]
    parts = [upload_part(s3, upload, 1, contents[0], ChecksumAlgorithm=algorithm)]
    url = s3.generate_presigned_url("upload_part", {**upload, "PartNumber": 2})
    second = httpx.put(url, content=contents[1])
    s3.put_object(Bucket="films", Key="source", Body=contents[2])
    third = s3.upload_part_copy(**upload, PartNumber=3, CopySource="films/source")["CopyPartResult"]
    encoded = [b64encode(value).decode() for value in sums]
    assert [parts[0][name], second.headers[f"x-amz-checksum-{algorithm.lower()}"], third[name]] == encoded
    found = s3.list_parts(**upload)
    assert (found["ChecksumAlgorithm"], found["ChecksumType"]) == (algorithm, kind)
    assert [part[name] for part in found["Parts"]] == encoded
    other = "SHA1" if algorithm != "SHA1" else "CRC32"
    assert error_of(s3.upload_part, **upload, PartNumber=4, Body=b"x", ChecksumAlgorithm=other)[0] == "InvalidRequest"
    parts += [{"PartNumber": 2, "ETag": second.headers["etag"]}, {"PartNumber": 3, "ETag": third["ETag"]}]
    whole = {
        "COMPOSITE": f"{b64encode(checksum(algorithm, b''.join(sums))).decode()}-3",
        "FULL_OBJECT": b64encode(checksum(algorithm, b"".join(contents))).decode(),
    }[kind]
    for _ in range(2):  # also for a client that has lost the first answer
        done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        assert (done[name], done["ChecksumType"]) == (whole, kind)
    for read in (s3.head_object, s3.get_object):
        got = read(Bucket="films", Key="f", ChecksumMode="ENABLED")
        assert (got[name], got["ChecksumType"]) == (whole, kind)


def test_an_upload_cannot_be_begun_for_a_checksum_that_s3_does_not_have(s3: Any) -> None:
    for wrong in (
        {"ChecksumAlgorithm": "SHA256", "ChecksumType": "FULL_OBJECT"},
        {"ChecksumAlgorithm": "CRC64NVME", "ChecksumType": "COMPOSITE"},
    ):
        with pytest.raises(ClientError, match="InvalidRequest"):
            begin(s3, **wrong)


def test_an_upload_that_is_completed_again_is_answered_as_before(cluster: S3Cluster, s3: Any) -> None:
    """A client that has lost the response does this."""
    upload = begin(s3)
    parts = [upload_part(s3, upload, 1, b"bytes")]
    done = {**upload, "MultipartUpload": {"Parts": parts}}
    first = s3.complete_multipart_upload(**done, IfNoneMatch="*")
    s3.put_object(Bucket="films", Key="f", Body=b"of another client")
    for client in (s3, cluster.client("b")):
        again = client.complete_multipart_upload(**done, IfNoneMatch="*")
        assert (again["ETag"], again["Key"]) == (first["ETag"], "f")
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == b"of another client"
    assert error_of(s3.upload_part, **upload, PartNumber=1, Body=b"x") == ("NoSuchUpload", 404)
    aborted = begin(s3)
    parts = [upload_part(s3, aborted, 1, b"bytes")]
    s3.abort_multipart_upload(**aborted)
    done = {**aborted, "MultipartUpload": {"Parts": parts}}
    assert error_of(s3.complete_multipart_upload, **done) == ("NoSuchUpload", 404)
    cluster.catalogue.change(file_completed_uploads, sa.true(), completed_at=seconds_from_now(-8 * 86_400))
    StorageMaintenance(cluster.a.node).run()
    assert cluster.catalogue.count(file_completed_uploads) == 0


def test_an_upload_that_is_completed_twice_at_once_becomes_one_object(cluster: S3Cluster, s3: Any) -> None:
    upload = begin(s3)
    content = os.urandom(6 * MIB)
    done = {**upload, "MultipartUpload": {"Parts": [upload_part(s3, upload, 1, content)]}}
    clients = [cluster.client(node) for node in "abab"]
    with ThreadPoolExecutor(4) as pool:
        etags = {*pool.map(lambda client: client.complete_multipart_upload(**done, IfNoneMatch="*")["ETag"], clients)}
    assert len(etags) == 1
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == content
    cluster.run_tasks()
    assert len(cluster.a.contents()) == 1


def test_a_completion_that_finds_the_upload_gone_has_the_answer_of_the_one_that_ended_it(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = begin(s3)
    done = {**upload, "MultipartUpload": {"Parts": [upload_part(s3, upload, 1, b"part")]}}
    find = completion._find_completed
    etags: list[str | None] = []

    def find_while_another_completes(*arguments: Any) -> Any:
        found = find(*arguments)
        if not etags:
            etags.append(None)
            etags.append(s3.complete_multipart_upload(**done)["ETag"])
        return found

    monkeypatch.setattr(completion, "_find_completed", find_while_another_completes)
    assert [None, s3.complete_multipart_upload(**done)["ETag"]] == etags


def test_parts_are_copied_from_objects(s3: Any) -> None:
    content = os.urandom(9 * MIB)
    s3.put_object(Bucket="films", Key="source ä", Body=content)
    upload = begin(s3)
    source = {"Bucket": "films", "Key": "source ä"}
    ranges = {"CopySourceRange": f"bytes=1000-{6 * MIB}"}
    copied = s3.upload_part_copy(**upload, PartNumber=1, CopySource=source, **ranges)["CopyPartResult"]
    second = s3.upload_part_copy(**upload, PartNumber=2, CopySource=source)["CopyPartResult"]
    parts = [{"PartNumber": n, "ETag": part["ETag"]} for n, part in ((1, copied), (2, second))]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == content[1000 : 6 * MIB + 1] + content


def test_a_range_that_ends_behind_the_source_and_a_copy_with_a_body_make_no_part(s3: Any) -> None:
    s3.put_object(Bucket="films", Key="source", Body=b"hello world")
    upload = begin(s3)
    part = {**upload, "PartNumber": 1, "CopySource": "films/source"}
    for wanted, error in (
        ("bytes=0-11", ("InvalidRange", 416)),
        ("bytes=11-12", ("InvalidRange", 416)),
        ("0-2", ("InvalidArgument", 400)),
        ("bytes=2-", ("InvalidArgument", 400)),
    ):
        assert error_of(s3.upload_part_copy, **part, CopySourceRange=wanted) == error, wanted
    url = s3.generate_presigned_url("upload_part_copy", part)
    refused = httpx.put(url, headers={"x-amz-copy-source": "films/source"}, content=b"a copy has no body")
    assert (refused.status_code, "MaxMessageLengthExceeded" in refused.text) == (400, True)
    s3.upload_part_copy(**part, CopySourceRange="bytes=6-10")
    [only] = s3.list_parts(**upload)["Parts"]
    assert only["Size"] == 5


def test_an_object_is_read_by_the_parts_in_which_it_was_uploaded(s3: Any) -> None:
    upload, contents = begin(s3), [os.urandom(size) for size in (5 * MIB, 6 * MIB, 5 * MIB, 7)]
    parts = [upload_part(s3, upload, 2 * n + 1, content) for n, content in enumerate(contents)]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    s3.copy_object(Bucket="films", Key="copy", CopySource="films/f")
    s3.put_object(Bucket="films", Key="empty", Body=b"")
    for number, content in enumerate(contents, start=1):
        got = s3.get_object(Bucket="films", Key="f", PartNumber=number)
        assert (got["Body"].read(), got["PartsCount"]) == (content, 4)
        start = sum(map(len, contents[: number - 1]))
        assert got["ContentRange"] == f"bytes {start}-{start + len(content) - 1}/{sum(map(len, contents))}"
        assert s3.head_object(Bucket="films", Key="f", PartNumber=number)["ContentLength"] == len(content)
    for key, whole in (("copy", b"".join(contents)), ("empty", b"")):
        only = s3.get_object(Bucket="films", Key=key, PartNumber=1)
        assert only["Body"].read() == whole
        assert "PartsCount" not in only
    for key, number in (("f", 5), ("copy", 2)):
        assert error_of(s3.get_object, Bucket="films", Key=key, PartNumber=number) == ("InvalidPartNumber", 416)


def test_the_location_of_an_object_has_the_scheme_of_the_request(one_catalogue: Catalogue, tmp_path: Path) -> None:
    node = ServedNode("a", tmp_path, one_catalogue, s3=True, tls=make_certificate(tmp_path))
    with node.served(), ExitStack() as clients:
        s3 = S3Cluster(one_catalogue, [node], clients).client(verify=str(tmp_path / "server.pem"))
        s3.create_bucket(Bucket="films")
        upload = begin(s3)
        parts = {"Parts": [upload_part(s3, upload, 1, b"x")]}
        done = s3.complete_multipart_upload(**upload, MultipartUpload=parts)
        assert done["Location"] == f"{node.url}/films/f"
        assert node.url.startswith("https:")


def test_uploads_and_parts_are_listed_in_pages(s3: Any) -> None:
    uploads = [begin(s3, key) for key in ("a", "b/1", "b/2", "b/2", "é")]
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket="films", PaginationConfig={"PageSize": 2})
    listed = [(one["Key"], one["UploadId"]) for page in pages for one in page.get("Uploads", [])]
    assert listed == sorted((one["Key"], one["UploadId"]) for one in uploads)
    page = s3.list_multipart_uploads(Bucket="films", Delimiter="/")
    assert ([one["Prefix"] for one in page["CommonPrefixes"]], len(page["Uploads"])) == (["b/"], 2)
    for number in (1, 2, 3, 10_000):
        upload_part(s3, uploads[0], number, b"x")
    pages = s3.get_paginator("list_parts").paginate(**uploads[0], PaginationConfig={"PageSize": 3})
    assert [part["PartNumber"] for page in pages for part in page["Parts"]] == [1, 2, 3, 10_000]
    other = {**uploads[0], "Key": "another"}
    assert error_of(s3.upload_part, **other, PartNumber=1, Body=b"x") == ("NoSuchUpload", 404)


def test_a_bucket_without_objects_is_deleted_with_its_unfinished_uploads(cluster: S3Cluster, s3: Any) -> None:
    upload, other = begin(s3), begin(cluster.client("b"), "other")
    for one in (upload, other):
        upload_part(s3, one, 1, b"x")
    s3.put_object(Bucket="films", Key="object", Body=b"")
    assert error_of(s3.delete_bucket, Bucket="films") == ("BucketNotEmpty", 409)
    assert len(s3.list_multipart_uploads(Bucket="films")["Uploads"]) == 2, "nothing was aborted"
    s3.delete_object(Bucket="films", Key="object")
    s3.delete_bucket(Bucket="films")
    assert error_of(s3.upload_part, **upload, PartNumber=2, Body=b"x") == ("NoSuchUpload", 404)
    assert cluster.catalogue.count(file_uploads) == cluster.catalogue.count(file_upload_parts) == 0
    cluster.run_tasks()
    assert cluster.a.contents() == []


def test_an_upload_whose_client_is_killed_leaves_nothing(cluster: S3Cluster, s3: Any) -> None:
    upload = begin(s3)
    parts_folder = cluster.a.paths[0] / "parts"
    part, other = {**upload, "PartNumber": 1}, cluster.client("b")
    for node, url in (
        (cluster.a, s3.generate_presigned_url("put_object", {"Bucket": "films", "Key": "f"})),
        (cluster.a, s3.generate_presigned_url("upload_part", part)),
        (cluster.nodes["b"], other.generate_presigned_url("upload_part", part)),
    ):
        host, port = node.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            path = url.removeprefix(node.url)
            head = f"PUT {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: 9000000\r\n\r\n"
            client.sendall(head.encode() + b"x" * 3 * MIB)
            eventually(lambda: any(path.stat().st_size for path in parts_folder.iterdir()), timeout=10)
        eventually(lambda: not list(parts_folder.iterdir()), timeout=10)
    assert cluster.a.contents() == []
    assert "Parts" not in s3.list_parts(**upload)
    assert error_of(s3.head_object, Bucket="films", Key="f")[1] == 404


def test_an_upload_that_is_not_touched_for_a_week_is_aborted(cluster: S3Cluster, s3: Any) -> None:
    old, fresh = begin(s3, "old"), begin(s3, "fresh")
    for upload in (old, fresh):
        upload_part(s3, upload, 1, b"x")
    is_old = file_uploads.c.id == old["UploadId"]
    cluster.catalogue.change(file_uploads, is_old, touched_at=seconds_from_now(-7 * 86_400 - 1))
    StorageMaintenance(cluster.nodes["b"].node).run()
    assert cluster.catalogue.count(file_uploads) == 2, "the disk is of another node"
    StorageMaintenance(cluster.a.node).run()
    assert [one["Key"] for one in s3.list_multipart_uploads(Bucket="films")["Uploads"]] == ["fresh"]
    assert len(cluster.a.contents()) == 1


def test_a_client_that_waits_gets_spaces_before_the_answer(
    cluster: S3Cluster, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "KEPT_OPEN_EVERY", 0.001)
    content = os.urandom(12 * MIB)
    other = cluster.client("b")
    upload = begin(other)
    parts = [upload_part(s3, upload, n + 1, content[n * 6 * MIB : (n + 1) * 6 * MIB]) for n in range(2)]
    raw: list[bytes] = []
    s3.meta.events.register("before-parse.s3", lambda response_dict, **_: raw.append(response_dict["body"]))
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert done["ETag"].endswith('-2"')
    assert b"?>\n " in raw[0]
    assert s3.get_object(Bucket="films", Key="f")["Body"].read() == content
    upload = begin(s3, "late")
    part = upload_part(s3, upload, 1, content)
    damaged = max(cluster.a.contents(), key=lambda name: cluster.a.content_path(int(name, 16)).stat().st_mtime_ns)
    cluster.a.content_path(int(damaged, 16)).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    broken = {**upload, "MultipartUpload": {"Parts": [part]}}
    assert error_of(s3.complete_multipart_upload, **broken)[0] == "InvalidPart"
    parts = [upload_part(s3, upload, 1, b"bytes")]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="films", Key="late")["Body"].read() == b"bytes"
