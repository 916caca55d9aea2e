"""The examples of chunked uploads in the Amazon S3 API Reference, of 24 May 2013.

What botocore signs itself is in `test_signature`; chunks it sends without signatures.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest

from peerd.storage.s3.bodies import BodyReader
from peerd.storage.s3.errors import S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from tests.storage.s3.signed_requests import KEY, verify

NOW: Final = datetime(2013, 5, 24, tzinfo=UTC)
SCOPE: Final = f"{KEY}/20130524/us-east-1/s3/aws4_request"


def signed(headers: dict[str, str], signature: str) -> S3HttpRequest:
    headers = {"Host": "s3.amazonaws.com", "x-amz-date": "20130524T000000Z", **headers}
    names = ";".join(sorted(map(str.lower, headers)))
    authorization = f"AWS4-HMAC-SHA256 Credential={SCOPE},SignedHeaders={names},Signature={signature}"
    sent = [(name.encode(), value.encode()) for name, value in {**headers, "Authorization": authorization}.items()]
    return S3HttpRequest("PUT", b"/examplebucket/chunkObject.txt", b"", sent)


CHUNKED: Final = {"Content-Encoding": "aws-chunked", "x-amz-storage-class": "REDUCED_REDUNDANCY",
                  "x-amz-decoded-content-length": "66560"}  # fmt: skip
WITHOUT_TRAILER: Final = signed(
    {**CHUNKED, "Content-Length": "66824", "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"},
    "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
)  # fmt: skip
WITH_TRAILER: Final = signed(
    {
        **CHUNKED, "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "x-amz-trailer": "x-amz-checksum-crc32c",
    },
    "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
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
    reader = BodyReader(WITHOUT_TRAILER, verify(WITHOUT_TRAILER, NOW))
    assert reader.feed(BODY) == b"a" * 66560
    assert reader.finish().size == 66560
    assert len(BODY) == 66824
    reader = BodyReader(WITH_TRAILER, verify(WITH_TRAILER, NOW))
    assert reader.feed(BODY_WITH_TRAILER) == b"a" * 66560
    assert reader.finish().checksums == {"crc32c": "sOO8/Q=="}


def test_a_chunk_cannot_be_dropped_or_repeated() -> None:
    verified = verify(WITHOUT_TRAILER, NOW)
    second = BODY.index(b"400;")
    last = BODY.rindex(b"0;chunk")
    for body in (BODY[second:], BODY[:second] + BODY[last:], BODY[:last] + BODY[second:]):
        reader = BodyReader(WITHOUT_TRAILER, verified)
        with pytest.raises(S3Error):
            reader.feed(body)
