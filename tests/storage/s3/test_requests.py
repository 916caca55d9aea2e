"""Requests become operations, and what a server does not have is refused, not ignored."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import botocore
import pytest

from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.requests import Conditions, ObjectHeaders, RequestedRange, S3Request
from peerd.storage.s3_front.buckets import after_token, token_after
from peerd.storage.s3_front.exchange import error_response
from peerd.storage.s3_front.stored_objects import object_response
from tests.storage.s3.beginning import begin, request_of
from tests.storage.s3.refusals import refused_as
from tests.storage.s3_front.test_stored_objects import BUCKET, stored_file

UPLOAD = b"uploadId=" + b"0" * 32
SUB_RESOURCES = """accelerate acl analytics cors encryption intelligent-tiering inventory legal-hold lifecycle logging
    metrics notification object-lock ownershipControls policy policyStatus publicAccessBlock replication requestPayment
    restore retention select session tagging torrent website attributes anything"""


def test_a_sub_resource_of_s3_is_never_taken_for_the_object() -> None:
    for method, path, name in product(
        ("GET", "PUT", "DELETE", "HEAD", "POST"), (b"/films", b"/films/a"), SUB_RESOURCES.split()
    ):
        with pytest.raises(S3Error, match=name) as caught:
            begin(request_of(method, path, name.encode()))
        assert caught.value.code.status == 501, (method, path, name)


def test_a_fault_of_a_request_has_its_code() -> None:
    table: list[tuple[str, bytes, bytes, list[tuple[bytes, bytes]], str]] = [
        ("PUT", b"/films", b"versioning", [], "NotImplemented"),
        ("DELETE", b"/films", b"versions", [], "NotImplemented"),
        ("GET", b"/films/a", b"versions", [], "NotImplemented"),
        ("POST", b"/films", b"", [], "NotImplemented"),
        ("PATCH", b"/films/a", b"", [], "MethodNotAllowed"),
        ("GET", b"/Films/a", b"", [], "InvalidBucketName"),
        ("GET", b"/films/%ff", b"", [], "InvalidURI"),
        ("GET", b"/films/%00", b"", [], "InvalidArgument"),
        ("GET", b"/films/" + b"a" * 1025, b"", [], "KeyTooLongError"),
        ("GET", b"/films", b"max-keys=1&max-keys=2", [], "InvalidArgument"),
        ("GET", b"/films", b"list-type=3", [], "InvalidArgument"),
        ("GET", b"/films", b"list-type=2&continuation-token=x", [], "InvalidArgument"),
        ("GET", b"/films", b"encoding-type=xml", [], "InvalidArgument"),
        ("PUT", b"/films/a", b"partNumber=10001&" + UPLOAD, [], "InvalidArgument"),
        ("PUT", b"/films/a", b"partNumber=1", [], "NotImplemented"),
        ("GET", b"/films/a", b"partNumber=0", [], "InvalidArgument"),
        ("GET", b"/films/a", b"partNumber=1", [(b"range", b"bytes=0-1")], "InvalidRequest"),
        (
            "PUT",
            b"/films/a",
            b"partNumber=1&" + UPLOAD,
            [(b"x-amz-copy-source", b"films/b"), (b"x-amz-copy-source-range", b"0-2")],
            "InvalidArgument",
        ),
        ("GET", b"/films/a", b"uploadId=../x", [], "NoSuchUpload"),
        ("GET", b"/films/a", b"response-content-type=a%0d%0aSet-Cookie:%20x", [], "InvalidArgument"),
        ("PUT", b"/films/a", b"", [(b"x-amz-meta-a", b"x" * 2048)], "MetadataTooLarge"),
        ("PUT", b"/films/a", b"", [(b"x-amz-meta-%d" % number, b"") for number in range(100)], "MetadataTooLarge"),
        ("PUT", b"/films/a", b"", [(b"content-type", b"x\x7f")], "InvalidArgument"),
        ("PUT", b"/films/a", b"", [(b"x-amz-acl", b"public-read")], "AccessControlListNotSupported"),
        ("PUT", b"/films/a", b"", [(b"x-amz-grant-read", b"x")], "AccessControlListNotSupported"),
        ("PUT", b"/films/a", b"", [(b"x-amz-server-side-encryption", b"AES256")], "NotImplemented"),
        ("PUT", b"/films/a", b"", [(b"if-none-match", b'"a"')], "NotImplemented"),
        ("PUT", b"/films/a", b"", [(b"x-amz-copy-source", b"films")], "InvalidArgument"),
        ("PUT", b"/films/a", b"", [(b"x-amz-copy-source", b"films/a")], "InvalidRequest"),
        ("PUT", b"/films/a", b"", [(b"x-amz-copy-source", b"films/b?versionId=1")], "NotImplemented"),
        ("GET", b"/films/a", b"", [(b"if-match", b",".join([b"a"] * 101))], "InvalidArgument"),
        ("GET", b"/films/a", b"&".join([b"a"] * 201), [], "InvalidURI"),
        ("GET", b"/films/a", b"a" * 20000, [], "InvalidURI"),
        ("GET", b"/films/a", b"", [(b"x", b"a" * 40000)], "InvalidArgument"),
    ]
    for method, path, query, headers, code in table:
        assert code_of(method, path, query, headers) == code, (method, path[:40], query[:40], headers)


MODEL = Path(botocore.__file__).parent / "data/s3/2006-03-01/service-2.json.gz"
HEEDED = """checksum-algorithm checksum-crc32 checksum-crc32c checksum-crc64nvme checksum-mode checksum-sha1
    checksum-sha256 checksum-type copy-source copy-source-if-match copy-source-if-modified-since
    copy-source-if-none-match copy-source-if-unmodified-since copy-source-range meta- metadata-directive mp-object-size
    storage-class"""
IGNORED = """bypass-governance-retention client-token confirm-remove-self-bucket-access create-session-mode max-parts
    object-annotation-directive object-attributes optional-object-attributes part-number-marker request-payer
    sdk-checksum-algorithm skip-destination-validation transition-default-minimum-object-size"""


def test_each_header_that_s3_has_is_heeded_or_refused_unless_nothing_depends_on_it() -> None:
    model = json.loads(gzip.decompress(MODEL.read_bytes()))
    requests = {operation["input"]["shape"] for operation in model["operations"].values() if "input" in operation}
    members = [member for shape in requests - {OF_LAMBDA} for member in model["shapes"][shape]["members"].values()]
    names = {member["locationName"].lower() for member in members if member.get("location") in ("header", "headers")}
    taken = {name.removeprefix("x-amz-") for name in names if name.startswith("x-amz-") and not is_refused(name)}
    assert taken == {*HEEDED.split(), *IGNORED.split()}
    assert not any(map(is_refused, ("x-amz-api-version", "x-amz-te", "x-amz-of-a-later-sdk")))


OF_LAMBDA = "WriteGetObjectResponseRequest"
"""A function of AWS Lambda answers with it; its headers are those of a response."""


def is_refused(header: str) -> bool:
    """Whether a put with this header is refused because of it."""
    try:
        begin(request_of("PUT", b"/films/a", headers=[(header.encode(), b"x")]))
    except S3Error as error:
        return error.details.get("Header") == header or error.code.name == "AccessControlListNotSupported"
    return False


def code_of(*request: Any) -> str:
    """The code with which a request is refused."""
    with pytest.raises(S3Error) as caught:
        begin(request_of(*request))
    return caught.value.code.name


def test_a_bucket_is_in_the_path_or_in_the_host() -> None:
    assert begin(request_of("PUT", b"/films/")) == "CreateBucket"
    assert begin(request_of("GET", b"/films/a", b"versionId=null")) == "GetObject"
    for host, path in (
        (b"s3.example:9000", b"/films//a"),
        (b"FILMS.s3.example:9000", b"//a"),
        (b"127.0.0.1", b"/films//a"),
    ):
        request = request_of("GET", path, host=host)
        assert (request.bucket, request.key) == ("films", "/a")
    assert request_of("GET", b"/", host=b"more.films.s3.example").bucket == "more.films"
    in_paths_only = S3Request(S3HttpRequest("GET", b"/", b"", [(b"host", b"films.s3.example")]))
    assert begin(in_paths_only) == "ListBuckets"


def test_a_put_has_its_headers_its_metadata_and_no_transport_encoding() -> None:
    request = request_of(
        "PUT",
        b"/films/a",
        headers=[
            (b"Content-Length", b"4"),
            (b"Content-Type", b"video/mp4"),
            (b"Content-Encoding", b"deflate, gzip, aws-chunked"),
            (b"X-Amz-Meta-Title", b"caf\xc3\xa9"),
            (b"x-amz-meta-title", b"two"),
            (b"If-None-Match", b"*"),
            (b"x-amz-storage-class", b"SINGLE"),
        ],
    )
    assert begin(request) == "PutObject"
    assert (request.bucket, request.key) == ("films", "a")
    assert request.object_headers == ObjectHeaders(
        headers={"content-type": "video/mp4", "content-encoding": "deflate, gzip"},
        metadata={"title": "caf\xc3\xa9,two"},
    )
    assert request.conditions == Conditions(if_none_match=("*",))
    assert request.storage_class == "SINGLE"
    for sent, kept in ((b"aws-chunked", None), (b"AWS-chunked, gzip", "gzip"), (b"br,  gzip", "br,  gzip")):
        headers = request_of("PUT", b"/films/a", headers=[(b"content-encoding", sent)]).object_headers.headers
        assert headers.get("content-encoding") == kept


def test_a_presigned_url_may_have_headers_in_its_query() -> None:
    request = request_of("PUT", b"/films/a", b"X-Amz-Signature=0&x-amz-meta-title=film&X-Amz-Date=0")
    assert request.object_headers.metadata == {"title": "film"}
    assert code_of("PUT", b"/films/a", b"x-amz-meta-title=film") == "NotImplemented"
    acl = b"X-Amz-Signature=0&x-amz-acl=public-read"
    assert code_of("PUT", b"/films/a", acl) == "AccessControlListNotSupported"


def test_a_list_has_at_most_a_thousand_entries_and_goes_on_where_it_ended() -> None:
    listing = request_of("GET", b"/films", b"list-type=2&max-keys=5000&prefix=a+b").listing("max-keys")
    assert (listing.limit, listing.prefix) == (1000, "a b")
    assert after_token(token_after("ä/\n")) == "ä/\n"


STORED = stored_file(size=10, etag="e", created_at=datetime(2026, 11, 26, 12, 0, 0, 999, UTC))
EARLIER, LATER = b"Thu, 26 Nov 2026 11:00:00 GMT", b"Thu, 26 Nov 2026 12:00:00 GMT"


def test_conditions_and_ranges_are_those_of_http() -> None:
    table: list[tuple[dict[bytes, bytes], int | tuple[int, int]]] = [
        ({b"if-match": b'"e"'}, 200),
        ({b"if-match": b'"a"'}, 412),
        ({b"if-none-match": b'W/"e"'}, 304),
        ({b"if-none-match": b'"a"'}, 200),
        ({b"if-modified-since": LATER}, 304),
        ({b"if-modified-since": EARLIER}, 200),
        ({b"if-unmodified-since": EARLIER}, 412),
        ({b"if-match": b'"e"', b"if-unmodified-since": EARLIER}, 200),
        ({b"if-none-match": b'"a"', b"if-modified-since": LATER}, 200),
        ({b"range": b"bytes=2-4"}, (2, 5)),
        ({b"range": b"bytes=-3"}, (7, 10)),
        ({b"range": b"bytes=8-99"}, (8, 10)),
        ({b"range": b"bytes=10-"}, 416),
        ({b"range": b"bytes=-0"}, 416),
        ({b"range": b"bytes=0-1,3-4"}, 200),
        ({b"range": b"bytes=2-4", b"if-range": b'"e"'}, (2, 5)),
        ({b"range": b"bytes=2-4", b"if-range": b'"a"'}, 200),
        ({b"range": b"bytes=2-4", b"if-range": b'W/"e"'}, 200),
        ({b"range": b"bytes=2-4", b"if-range": LATER}, (2, 5)),
        ({b"range": b"bytes=2-4", b"if-range": EARLIER}, 200),
        ({b"range": b"bytes=10-", b"if-range": b'"a"'}, 200),
    ]
    for headers, result in table:
        assert answer_to(headers) == result, headers
    with refused_as(S3Code.InvalidRange):
        RequestedRange(0, 5).within(0)


def answer_to(headers: dict[bytes, bytes]) -> int | tuple[int, int]:
    """The status of the answer, or the range that it has of ten bytes."""
    request = request_of("GET", b"/films/a", headers=list(headers.items()))
    try:
        response = object_response(request.reading, STORED, BUCKET)
    except S3Error as error:
        return error_response(error).status
    if response.status == 304:
        assert response.headers == {"etag": '"e"', "last-modified": LATER.decode()}
    if response.content is None:
        return response.status
    if response.status == 206:
        start, stop = response.content
        assert response.headers["content-length"] == str(stop - start)
        assert response.headers["content-range"] == f"bytes {start}-{stop - 1}/10"
        return start, stop
    assert response.content == (0, 10)
    return response.status


def test_each_code_is_sent_with_its_sentence() -> None:
    for code in S3Code:
        response = error_response(S3Error(code), resource="/a", request_id="r1")
        assert 300 <= response.status < 600
        assert f"<Code>{code.name}</Code><Message>".encode() in response.body
        assert str(S3Error(code))[0].islower()
    response = error_response(S3Error(S3Code.AuthorizationHeaderMalformed, Region="eu-west-1"), is_head=True)
    assert (response.body, response.headers) == (b"", {"x-amz-bucket-region": "eu-west-1"})
