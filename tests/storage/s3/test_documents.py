"""XML that clients send: hostile documents are refused, in bounded time and memory."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from botocore.parsers import create_parser
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.s3.checksums import Checksum
from peerd.storage.s3.documents import (
    MAX_DELETE_DOCUMENT,
    completed_parts,
    location_constraint,
    objects_to_delete,
    xml_document,
)
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.requests import Listing, S3Request
from peerd.storage.s3.signature import verify_signature
from peerd.storage.s3_front.buckets import listing_elements, object_elements
from peerd.store.files.listing import FileList
from tests.storage.s3.beginning import begin
from tests.storage.s3.refusals import refused_as
from tests.storage.s3.signed_requests import NOW
from tests.storage.s3_front.test_stored_objects import BUCKET, stored_file

OWNER = (("ID", "owner-id"), ("DisplayName", "films & <more>"))
READERS: tuple[Callable[[bytes], Any], ...] = (completed_parts, objects_to_delete, location_constraint)
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


def parts(*numbers: int) -> bytes:
    rows = "".join(f"<Part><ETag>&quot;e{one}&quot;</ETag><PartNumber>{one}</PartNumber></Part>" for one in numbers)
    return f"<CompleteMultipartUpload>{rows}</CompleteMultipartUpload>".encode()


def test_parts_are_read_with_their_checksums() -> None:
    document = (
        b'<?xml version="1.0"?><CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        b"<Part><PartNumber> 7 </PartNumber><ETag>e</ETag><ChecksumCRC64NVME>a=</ChecksumCRC64NVME></Part>"
        b"</CompleteMultipartUpload>"
    )
    (part,) = completed_parts(document)
    assert (part.number, part.etag, part.checksum) == (7, "e", Checksum("crc64nvme", "a="))
    assert [part.etag for part in completed_parts(parts(1, 2, 10000))] == ["e1", "e2", "e10000"]
    assert len(completed_parts(parts(*range(1, 10001)))) == 10000


def test_a_fault_of_a_document_has_its_code() -> None:
    table: list[tuple[Callable[[bytes], Any], bytes, str]] = [
        (completed_parts, parts(), "MalformedXML"),
        (completed_parts, parts(0), "MalformedXML"),
        (completed_parts, parts(10001), "MalformedXML"),
        (completed_parts, parts(2, 1), "InvalidPartOrder"),
        (completed_parts, parts(1, 1), "InvalidPartOrder"),
        (completed_parts, b"<Delete/>", "MalformedXML"),
        (completed_parts, b"", "MalformedXML"),
        (objects_to_delete, b"<Delete></Delete>", "MalformedXML"),
        (objects_to_delete, b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>", "MalformedXML"),
        *(
            (objects_to_delete, b"<Delete><Object><Key>a</Key>" + more + b"</Object></Delete>", code)
            for more, code in (
                (b"<Key>b</Key>", "MalformedXML"),
                (b"<VersionId>1</VersionId>", "NotImplemented"),
                (b"<New>1</New>", "MalformedXML"),
            )
        ),
        (location_constraint, b"<CreateBucketConfiguration><Tags/></CreateBucketConfiguration>", "NotImplemented"),
    ]
    for read, document, code in table:
        with pytest.raises(S3Error) as caught:
            read(document)
        assert caught.value.code.name == code, document[:80]


def test_objects_to_delete_have_their_conditions_and_their_faults() -> None:
    long = b"a" * 1025
    found = objects_to_delete(
        b"<Delete><Quiet>true</Quiet><Object><Key>a&#13;&amp;</Key><ETag>&quot;e&quot;</ETag></Object>"
        b"<Object><Key>" + long + b"</Key></Object></Delete>"
    )
    assert found.is_quiet
    assert (found.objects[0].key, found.objects[0].etag) == ("a\r&", "e")
    assert found.objects[1].error is not None
    assert found.objects[1].error.code.name == "KeyTooLongError"


LAUGHS = b"".join(b'<!ENTITY l%d "%s">' % (level, b"&l%d;" % (level - 1) * 10) for level in range(1, 10))
HOSTILE = {
    "entities": b'<!DOCTYPE x [<!ENTITY l0 "lol">' + LAUGHS + b"]><Delete>&l9;</Delete>",
    "external entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><Delete>&e;</Delete>',
    "processing instruction": b"<?xml-stylesheet href='x'?><Delete/>",
    "depth": b"<Delete>" + b"<a>" * 1_000_000,
    "elements": b"<Delete>" + b"<a/>" * 1_500_000 + b"</Delete>",
    "attributes": b"<Delete " + b" ".join(b'a%d=""' % number for number in range(300_000)) + b"/>",
    "size": b"<Delete>" + b" " * MAX_DELETE_DOCUMENT + b"</Delete>",
    "long name": b"<" + b"a" * (MAX_DELETE_DOCUMENT - 10) + b"/>",
    "utf-16": "<?xml version='1.0' encoding='utf-16'?><Delete/>".encode("utf-16"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_in_little_time_and_memory(name: str) -> None:
    for read in READERS:
        began = time.process_time()
        tracemalloc.start()
        try:
            with pytest.raises(S3Error) as caught:
                read(HOSTILE[name])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert caught.value.code.status < 500 or caught.value.code.name == "NotImplemented", read
        assert time.process_time() - began < 10, read
        assert peak < 128 * 1024 * 1024, read


def test_a_key_may_have_characters_that_no_xml_can_hold() -> None:
    table = {
        b"a\x01b": "a\x01b",
        b"a&#1;b&#x1F;&#x00001;": "a\x01b\x1f\x01",
        "\uffff\ue000&#xE000;&#xFFFF;&#57344;".encode(): "\uffff\ue000\ue000\uffff\ue000",
        "\ue0000001".encode(): "\ue0000001",
        b"<![CDATA[&#1;]]>": "&#1;",
        b"&amp;#1;": "&#1;",
    }
    for sent, key in table.items():
        [found] = objects_to_delete(b"<Delete><Object><Key>" + sent + b"</Key></Object></Delete>").objects
        assert (found.key, found.error) == (key, None), sent
    for wrong in (b"<Del\x01ete/>", b"<Delete\x00/>", b"<Delete><Object>&#xD800;</Object></Delete>"):
        with refused_as(S3Code.MalformedXML):
            objects_to_delete(wrong)


@given(
    st.binary(max_size=300)
    | st.text(st.sampled_from("<>/&;!?[]'\"=abDelete Object Key#x10"), max_size=100).map(str.encode)
)
def test_any_bytes_are_a_document_or_a_typed_error(document: bytes) -> None:
    for read in READERS:
        try:
            read(document)
        except S3Error:
            continue


QUERY = """uploads uploadId=a partNumber=1 list-type=2 max-keys=5 continuation-token=%ff delete location prefix=%00
    response-expires=x x-amz-meta-a=%0d%0a X-Amz-Algorithm=AWS4-HMAC-SHA256 X-Amz-Date=00010101T000000Z
    X-Amz-Credential=a/20261126/us-east-1/s3/aws4_request X-Amz-Expires=60 X-Amz-Date=99991231T235959Z
    X-Amz-SignedHeaders=host"""
VALUES = b"films.s3.example", b"bytes=0-5", b"Thu, 26 Nov 99999 12:00:00 +9999", b"Mon, 01 Jan 0001 00:00:00 +2359"
HEADERS = [b"host", b"authorization", b"date", b"x-amz-date", b"range", b"if-modified-since"]
REQUEST = st.tuples(
    st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]) | st.text(max_size=5),
    st.binary(max_size=40).map(lambda path: b"/films/" + path) | st.just(b"/films") | st.binary(max_size=40),
    st.lists(st.sampled_from(QUERY.split()), max_size=9).map(
        lambda pieces: "&".join([*pieces, f"X-Amz-Signature={'0' * 64}"]).encode()
    ),
    st.lists(
        st.tuples(
            st.sampled_from(HEADERS) | st.binary(min_size=1, max_size=10),
            st.sampled_from(VALUES) | st.binary(max_size=40),
        ),
        max_size=8,
    ),
)


@given(REQUEST)
def test_any_request_is_an_operation_or_a_typed_error(drawn: tuple[str, bytes, bytes, Any]) -> None:
    try:
        request = S3HttpRequest(*drawn)
    except S3Error:
        return
    with contextlib.suppress(S3Error):
        begin(S3Request(request, "s3.example"))
    with contextlib.suppress(S3Error):
        verify_signature(request, lambda _: "secret", NOW)


@given(st.lists(KEYS, max_size=5), st.lists(KEYS, max_size=5), KEYS | st.just(""), st.none() | KEYS)
def test_botocore_reads_any_keys(keys: list[str], prefixes: list[str], prefix: str, next_after: str | None) -> None:
    page = FileList([stored_file(key=key) for key in keys], prefixes, next_after)
    listing = Listing(prefix=prefix, is_url_encoded=True)
    content = [*listing_elements(listing, BUCKET, page), *object_elements(listing, BUCKET, page, owner=OWNER)]
    body = xml_document("ListBucketResult", content)
    for name in ("ListObjects", "ListObjectsV2"):
        found = read_by_botocore(name, body)
        assert [row["Key"] for row in found.get("Contents", [])] == [quote(key, safe="/~") for key in keys]
        assert [row["Prefix"] for row in found.get("CommonPrefixes", [])] == [quote(one, safe="/~") for one in prefixes]
        assert found["Prefix"] == quote(prefix, safe="/~")
        assert found["IsTruncated"] is (next_after is not None)


MODEL = get_session().get_service_model("s3")
PARSER = create_parser("rest-xml")


def read_by_botocore(operation: str, body: bytes) -> Any:
    shape = MODEL.operation_model(operation).output_shape
    return PARSER.parse({"status_code": 200, "headers": {}, "body": body}, shape)
