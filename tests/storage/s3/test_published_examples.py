"""The examples of Signature Version 4 in the Amazon S3 API Reference, of 24 May 2013."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final

import pytest

from peerd.storage.s3.bodies import BodyReader
from peerd.storage.s3.errors import S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm
from tests.storage.s3.signed_requests import KEY, verifier

NOW: Final = datetime(2013, 5, 24, tzinfo=UTC)
EMPTY: Final = hashlib.sha256().hexdigest()
SCOPE: Final = f"{KEY}/20130524/us-east-1/s3/aws4_request"
EXAMPLES: Final = {
    "GET Object": (
        "GET", "/test.txt", "", {"Range": "bytes=0-9", "x-amz-content-sha256": EMPTY},
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    "PUT Object": (
        "PUT", "/test$file.text", "",
        {
            "Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY",
            "x-amz-content-sha256": "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        },
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    ),
    "GET Bucket lifecycle": (
        "GET", "/", "lifecycle", {"x-amz-content-sha256": EMPTY},
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    ),
    "List Objects": (
        "GET", "/", "max-keys=2&prefix=J", {"x-amz-content-sha256": EMPTY},
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    ),
}  # fmt: skip


def signed(method: str, path: str, query: str, headers: dict[str, str], signature: str, host: str) -> S3HttpRequest:
    headers = {"Host": host, "x-amz-date": "20130524T000000Z", **headers}
    names = ";".join(sorted(map(str.lower, headers)))
    authorization = f"AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders={names},Signature={signature}"
    return S3HttpRequest(
        method,
        path.encode(),
        query.encode(),
        [(name.encode(), value.encode()) for name, value in {**headers, "Authorization": authorization}.items()],
    )


def test_the_examples_of_signed_headers_are_verified() -> None:
    for example in EXAMPLES.values():
        request = signed(*example, host="examplebucket.s3.amazonaws.com")
        assert verifier().verify(request, NOW).access_key == KEY


def test_the_example_of_a_presigned_url_is_verified() -> None:
    query = (
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
        "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )
    request = S3HttpRequest("GET", b"/test.txt", query.encode(), [(b"Host", b"examplebucket.s3.amazonaws.com")])
    verified = verifier().verify(request, NOW)
    assert verified.is_presigned
    assert verified.payload is PayloadForm.UNSIGNED


CHUNKED: Final = {"Content-Encoding": "aws-chunked", "x-amz-storage-class": "REDUCED_REDUNDANCY",
                  "x-amz-decoded-content-length": "66560"}  # fmt: skip
WITHOUT_TRAILER: Final = signed(
    "PUT", "/examplebucket/chunkObject.txt", "",
    {**CHUNKED, "Content-Length": "66824", "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
    "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9", host="s3.amazonaws.com",
)  # fmt: skip
WITH_TRAILER: Final = signed(
    "PUT", "/examplebucket/chunkObject.txt", "",
    {
        **CHUNKED, "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "x-amz-trailer": "x-amz-checksum-crc32c",
    },
    "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e", host="s3.amazonaws.com",
)  # fmt: skip


def chunked(signatures: tuple[str, str, str], trailer: bytes = b"") -> bytes:
    sizes = (65536, 1024, 0)
    chunks = [
        b"%x;chunk-signature=%s\r\n" % (size, signature.encode()) + (b"a" * size + b"\r\n" if size else b"")
        for size, signature in zip(sizes, signatures, strict=True)
    ]
    return b"".join(chunks) + trailer + b"\r\n"


BODY: Final = chunked((
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
))  # fmt: skip
BODY_WITH_TRAILER: Final = chunked(
    (
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ),
    b"x-amz-checksum-crc32c:sOO8/Q==\r\n"
    b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n",
)


def test_the_examples_of_chunked_uploads_are_verified() -> None:
    reader = BodyReader(WITHOUT_TRAILER, verifier().verify(WITHOUT_TRAILER, NOW))
    assert reader.feed(BODY) == b"a" * 66560
    assert reader.finish().size == 66560
    assert len(BODY) == 66824
    reader = BodyReader(WITH_TRAILER, verifier().verify(WITH_TRAILER, NOW))
    assert reader.feed(BODY_WITH_TRAILER) == b"a" * 66560
    assert reader.finish().checksums == {"crc32c": "sOO8/Q=="}


def test_no_byte_of_a_chunked_upload_can_be_changed() -> None:
    unchanged = []
    for request, body in ((WITHOUT_TRAILER, BODY), (WITH_TRAILER, BODY_WITH_TRAILER)):
        verified = verifier().verify(request, NOW)
        end_of_chunks = body.rindex(b"a\r\n") + 1
        places = [*range(90), *range(90, end_of_chunks, 7919), *range(65600, 65720), *range(end_of_chunks, len(body))]
        for place in places:
            changed = bytearray(body)
            changed[place] ^= 1
            reader = BodyReader(request, verified)
            try:
                reader.feed(bytes(changed))
                reader.finish()
            except S3Error:
                continue
            unchanged.append(body[place - 20 : place + 20])
    assert unchanged == []


def test_a_chunk_cannot_be_dropped_or_repeated() -> None:
    verified = verifier().verify(WITHOUT_TRAILER, NOW)
    second = BODY.index(b"400;")
    last = BODY.rindex(b"0;chunk")
    for body in (BODY[second:], BODY[:second] + BODY[last:], BODY[:last] + BODY[second:]):
        reader = BodyReader(WITHOUT_TRAILER, verified)
        with pytest.raises(S3Error):
            reader.feed(body)
