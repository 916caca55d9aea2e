"""Bodies, chunked or not: any split gives the same, and what is not as announced is refused."""

from __future__ import annotations

import hashlib
import io
import tomllib
import zlib
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from botocore.httpchecksum import AwsChunkedWrapper, Crc32Checksum
from hypothesis import given
from hypothesis import strategies as st

from peerd.storage.s3.bodies import BodyReader, ChunkedDecoder, ChunkSigning
from peerd.storage.s3.checksums import new_checksum
from peerd.storage.s3.errors import S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm
from tests.storage.s3.signed_requests import NOW, signed_by_botocore, verify

PLACES = st.lists(st.integers(0, 10**6), max_size=10)
SIGNING = ChunkSigning(key=b"key", time="20261126T120000Z", scope="20261126/us-east-1/s3/aws4_request", seed="0" * 64)


def signed_chunks(pieces: list[bytes], trailer: dict[str, str] | None) -> bytes:
    previous, body = SIGNING.seed, b""
    for piece in [*[piece for piece in pieces if piece], b""]:
        previous = SIGNING.chunk(previous, hashlib.sha256(piece).hexdigest())
        body += b"%x;chunk-signature=%s\r\n" % (len(piece), previous.encode()) + (piece + b"\r\n" if piece else b"")
    if trailer is not None:
        signature = SIGNING.trailer(previous, "".join(f"{name}:{value}\n" for name, value in trailer.items()).encode())
        trailer = {**trailer, "x-amz-trailer-signature": signature}
        body += "".join(f"{name}:{value}\r\n" for name, value in trailer.items()).encode()
    return body + b"\r\n"


def outcome(decoder: ChunkedDecoder, pieces: list[bytes]) -> Any:
    decoded = b""
    try:
        for piece in pieces:
            decoded += decoder.feed(piece)
        return decoded, decoder.finish()
    except S3Error as error:
        return error.code.name, str(error)


def split(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [body[start:end] for start, end in pairwise(ends)]


@given(pieces=st.lists(st.binary(max_size=40), max_size=5), has_trailer=st.booleans(), places=PLACES, data=st.data())
def test_any_split_of_a_signed_body_gives_the_same(
    *, pieces: list[bytes], has_trailer: bool, places: list[int], data: st.DataObject
) -> None:
    trailer = {"x-amz-checksum-crc32": "AAAAAA=="} if has_trailer else None
    body = signed_chunks(pieces, trailer)
    length = sum(map(len, pieces))

    def decoder() -> ChunkedDecoder:
        return ChunkedDecoder(length, signing=SIGNING, trailer=tuple(trailer) if trailer else None)

    assert outcome(decoder(), [body]) == (b"".join(pieces), trailer or {})
    assert outcome(decoder(), split(body, places)) == (b"".join(pieces), trailer or {})
    assert outcome(decoder(), [bytes([byte]) for byte in body]) == (b"".join(pieces), trailer or {})
    place, flip = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(1, 255))
    changed = bytearray(body)
    changed[place] ^= flip
    if bytes(changed).lower() == body.lower():
        return  # the digits of a size, or the name of a header, in another case
    whole = outcome(decoder(), [bytes(changed)])
    assert isinstance(whole[0], str), bytes(changed)
    assert outcome(decoder(), split(bytes(changed), places)) == whole
    assert outcome(decoder(), [bytes([byte]) for byte in changed]) == whole
    assert isinstance(outcome(decoder(), [body[:place]])[0], str)


@given(st.binary(max_size=5000), st.integers(1, 700), PLACES)
def test_what_botocore_chunks_is_decoded(content: bytes, chunk_size: int, places: list[int]) -> None:
    wrapper = AwsChunkedWrapper(io.BytesIO(content), Crc32Checksum, "x-amz-checksum-crc32", chunk_size)
    body = wrapper.read()
    decoder = ChunkedDecoder(len(content), trailer=("x-amz-checksum-crc32",))
    checksum = b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
    assert outcome(decoder, split(body, places)) == (content, {"x-amz-checksum-crc32": checksum})


def test_a_fault_of_an_unsigned_body_is_named() -> None:
    for body, problem in (
        (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:a\r\n\r\nx", "bytes follow"),
        (b"5\r\nhelloX\r\n", "CR LF"),
        (b"6\r\nhello!\r\n", "more bytes"),
        (b"4\r\nhell\r\n0\r\n\r\n", "1 bytes fewer"),
        (b"5\r\nhello\r\n", "before its last chunk"),
        (b"5;x=y\r\nhello", "first line"),
        (b"fffffffffffffffff\r\n", "first line"),
        (b"0" * 1000, "more than 256 bytes"),
        (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:a\r\nx-amz-checksum-crc32:a\r\n", "twice"),
        (b"5\r\nhello\r\n0\r\nx-other:a\r\n", "did not name it"),
        (b"5\r\nhello\r\n0\r\n\r\n", "lacks a header"),
        (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:" + b"a" * 5000, "more than"),
        (b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:a\r\nx-amz-trailer-signature:a\r\n\r\n", "unsigned body"),
    ):
        decoder = ChunkedDecoder(5, trailer=("x-amz-checksum-crc32",))
        code, text = outcome(decoder, [body])
        assert isinstance(code, str)
        assert problem in text
        assert len(decoder._buffer) <= 5000


def test_checksums_have_the_check_values_of_their_definitions() -> None:
    table = {"crc32": "cbf43926", "crc32c": "e3069283", "crc64nvme": "ae8b14860a799888"}
    for name, digest in table.items():
        checksum = new_checksum(name)
        for piece in (b"", b"1234", b"56789"):
            checksum.update(piece)
        assert checksum.digest().hex() == digest, name


def test_a_node_for_files_gets_what_computes_every_checksum_in_c() -> None:
    """In Python, the default checksum of the AWS CLI keeps the server busy at four megabytes a second."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("awscrt") for one in project["optional-dependencies"]["storage"])


def reader(body: bytes, headers: list[tuple[str, str]]) -> BodyReader:
    headers = [("Content-Length", str(len(body))), *headers]
    request = signed_by_botocore("PUT", "/films/a", headers=headers, body=body)
    return BodyReader(request, verify(request, NOW))


def feed_all(body: BodyReader, sent: bytes) -> None:
    body.feed(sent)
    body.finish()


MD5 = b64encode(hashlib.md5(b"film").digest()).decode()
CRC = b64encode(zlib.crc32(b"film").to_bytes(4, "big")).decode()


def test_a_body_is_taken_if_it_is_what_its_headers_say() -> None:
    body = reader(b"film", [("Content-MD5", MD5)])
    assert body.feed(b"fi") + body.feed(b"lm") == b"film"
    assert body.finish().md5 == hashlib.md5(b"film").digest()
    refused: list[tuple[bytes, list[tuple[str, str]], str]] = [
        (b"Film", [], "XAmzContentSHA256Mismatch"),
        (b"fil", [], "IncompleteBody"),
        (b"films", [], "IncompleteBody"),
        (b"film", [("Content-MD5", b64encode(bytes(16)).decode())], "BadDigest"),
        (b"film", [("x-amz-checksum-crc32", "AAAAAA==")], "BadDigest"),
    ]
    for sent, headers, code in refused:
        with pytest.raises(S3Error) as caught:
            feed_all(reader(b"film", headers), sent)
        assert caught.value.code.name == code, (sent, headers)


def test_headers_of_a_body_that_cannot_be_read_are_refused() -> None:
    sha1 = ("x-amz-checksum-sha1", b64encode(bytes(20)).decode())
    for headers, code in (
        ([("Content-MD5", "====")], "InvalidDigest"),
        ([("x-amz-checksum-crc32", "AAAA")], "InvalidRequest"),
        ([("x-amz-checksum-md5", "AAAA")], "NotImplemented"),
        ([("x-amz-checksum-crc32", CRC), sha1], "InvalidRequest"),
        ([("x-amz-trailer", "x-amz-checksum-crc32")], "InvalidRequest"),
    ):
        with pytest.raises(S3Error) as caught:
            reader(b"film", headers)
        assert caught.value.code.name == code, headers
    request = signed_by_botocore("PUT", "/films/a", body=b"film")
    endless = S3HttpRequest("PUT", b"/films/a", b"", [*request.headers, (b"transfer-encoding", b"chunked")])
    with pytest.raises(S3Error) as caught:
        BodyReader(endless, verify(request, NOW))
    assert caught.value.code.name == "MissingContentLength"


def test_a_checksum_is_compared_with_the_body_if_it_is_a_header_beside_a_presigned_url() -> None:
    """As a part of the URL it is that of no body: what makes a URL does not have the body."""
    checksum, length = ("x-amz-checksum-crc32", CRC), ("Content-Length", "4")
    in_url = signed_by_botocore("PUT", "/films/a", parameters=[checksum], headers=[length], expires=60)
    beside = signed_by_botocore("PUT", "/films/a", headers=[length, checksum], expires=60)
    for request, found in ((in_url, {}), (beside, {"crc32": CRC})):
        body = BodyReader(request, verify(request, NOW))
        body.feed(b"film")
        assert body.finish().checksums == found
    feed_all(BodyReader(in_url, verify(in_url, NOW)), b"Film")
    with pytest.raises(S3Error, match="CRC32"):
        feed_all(BodyReader(beside, verify(beside, NOW)), b"Film")


def test_an_unsigned_body_with_a_checksum_behind_it_is_taken_as_boto3_sends_it_by_tls() -> None:
    sent = AwsChunkedWrapper(io.BytesIO(b"film"), Crc32Checksum, "x-amz-checksum-crc32").read()
    headers = {
        "Content-Encoding": "aws-chunked",
        "Content-Length": str(len(sent)),
        "X-Amz-Decoded-Content-Length": "4",
        "X-Amz-Trailer": "x-amz-checksum-crc32",
    }
    request = signed_by_botocore("PUT", "/films/a", headers=[*headers.items()], has_trailer=True)
    verified = verify(request, NOW)
    assert verified.payload is PayloadForm.UNSIGNED_CHUNKS_AND_TRAILER
    reading = BodyReader(request, verified)
    assert reading.feed(sent) == b"film"
    assert reading.finish().checksums == {"crc32": CRC}
    with pytest.raises(S3Error, match="CRC32"):
        feed_all(BodyReader(request, verified), sent.replace(b"film", b"Film"))
