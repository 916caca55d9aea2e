r"""The body of a request: decoded if it is chunked, and compared with every length, digest and checksum it came with.

An `aws-chunked` body comes in any pieces. A chunk is `SIZE[;chunk-signature=HEX]\r\n`, SIZE in hex digits, that
many bytes, and `\r\n`. The chunk of size 0 is the last; behind its first line follow the headers of the trailer, if
the request has announced some, and an empty line. Each signature covers the one before it, and the first covers the
request's: chunks can be neither changed, nor dropped, nor put into another order. A signed trailer ends with
`x-amz-trailer-signature:HEX`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from peerd.domain.quoting import quoted
from peerd.storage.s3.checksums import (
    CHECKSUM_PREFIX,
    CHECKSUM_SIZES,
    RunningDigest,
    decoded_digest,
    encoded_digest,
    new_checksum,
)
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm, VerifiedSignature, hex_signature

MAX_LINE: Final = 256
"""The longest first line of a chunk, in bytes."""
MAX_TRAILER: Final = 4096
"""The longest trailer, in bytes with the ends of its lines."""

_SIGNATURE_HEADER: Final = "x-amz-trailer-signature"
_SIGNED_LINE: Final = re.compile(rb"([0-9a-fA-F]{1,16});chunk-signature=([0-9a-f]{64})")
_PLAIN_LINE: Final = re.compile(rb"([0-9a-fA-F]{1,16})")
_HEADER: Final = re.compile(rb"([A-Za-z0-9-]{1,100}):([\x20-\x7e\t]*)\n?")
_NO_BYTES: Final = hashlib.sha256().hexdigest()
_OTHER_HEADERS: Final = frozenset({"x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"})


class ChunkSigning(msgspec.Struct, frozen=True):
    """What the signatures of chunks are made with: the key, the time and the scope of the request."""

    key: bytes
    time: str
    scope: str
    seed: str
    """The signature of the request."""

    @classmethod
    def of(cls, verified: VerifiedSignature) -> ChunkSigning:
        """The signing of the chunks of a request."""
        return cls(verified.key, verified.time, verified.credential.scope, verified.signature)

    def chunk(self, previous: str, sha256: str) -> str:
        """The signature of a chunk whose bytes have this SHA-256."""
        return self._signature("AWS4-HMAC-SHA256-PAYLOAD", previous, f"{_NO_BYTES}\n{sha256}")

    def trailer(self, previous: str, headers: bytes) -> str:
        """The signature of a trailer: ``headers`` are its lines as NAME:VALUE, each with a line feed."""
        return self._signature("AWS4-HMAC-SHA256-TRAILER", previous, hashlib.sha256(headers).hexdigest())

    def _signature(self, algorithm: str, previous: str, rest: str) -> str:
        return hex_signature(self.key, f"{algorithm}\n{self.time}\n{self.scope}\n{previous}\n{rest}".encode())


class ChunkedDecoder:
    r"""Decodes one body.

    Arguments: ``length``: the number of bytes without the chunks' lines (x-amz-decoded-content-length); ``signing``: of
    signed chunks, None for unsigned ones; ``trailer``: the names of the headers that follow the last chunk, in lower
    case, None if the body has no trailer.

    `feed` returns bytes before the signature of their chunk has come: what was decoded is valid when `finish` has
    returned, and must be discarded if either raises.

    >>> decoder = ChunkedDecoder(5, trailer=())
    >>> decoder.feed(b"5\r\nhel"), decoder.feed(b"lo\r\n0\r\n\r\n"), decoder.finish()
    (b'hel', b'lo', {})
    """

    def __init__(
        self, length: int, *, signing: ChunkSigning | None = None, trailer: tuple[str, ...] | None = None
    ) -> None:
        self._missing = length
        """Bytes of chunks that have not begun yet."""
        self._signing = signing
        self._trailer = trailer
        self._buffer = bytearray()
        """The unfinished line, or the unfinished trailer."""
        self._read: Callable[[bytes, int, bytearray], int] = self._read_first_line
        self._left = 0
        """Bytes of the chunk that have not come yet."""
        self._sha256 = hashlib.sha256()
        self._claimed = ""
        self._previous = signing.seed if signing else ""
        self._headers: dict[str, str] = {}
        self._signed_lines = b""
        self._has_ended = False
        self._has_failed = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the body; return those that they stand for.

        Raises S3Error: SignatureDoesNotMatch, IncompleteBody, MalformedTrailerError, or InvalidRequest for what is
        not chunked. After an error the decoder takes nothing more.
        """
        if self._has_failed:
            raise S3Error(S3Code.IncompleteBody, "the body was refused before")
        decoded = bytearray()
        place = 0
        try:
            while place < len(data):
                place = self._read(data, place, decoded)
        except Exception:
            self._has_failed = True
            raise
        return bytes(decoded)

    def finish(self) -> dict[str, str]:
        """Return the headers of the trailer, when all bytes were fed. Raises S3Error: IncompleteBody."""
        if not self._has_ended or self._has_failed:
            raise S3Error(S3Code.IncompleteBody, "the body ended before its last chunk")
        return self._headers

    # ---------------------------------------------------------------- each reads from a place, and returns the next

    def _read_first_line(self, data: bytes, place: int, _: bytearray) -> int:
        line, place = self._line(data, place, MAX_LINE)
        if line is None:
            return place
        found = (_SIGNED_LINE if self._signing else _PLAIN_LINE).fullmatch(line)
        if found is None:
            raise S3Error(S3Code.InvalidRequest, f"{quoted(line)} is not the first line of a chunk")
        size = int(found[1], 16)
        if size > self._missing:
            raise S3Error(S3Code.IncompleteBody, "the chunks have more bytes than x-amz-decoded-content-length names")
        self._missing -= size
        self._left = size
        self._claimed = found[2].decode() if self._signing else ""
        self._sha256 = hashlib.sha256()
        if size:
            self._read = self._read_bytes
        else:
            self._end_chunks()
        return place

    def _read_bytes(self, data: bytes, place: int, decoded: bytearray) -> int:
        piece = data[place : place + self._left]
        decoded += piece
        if self._signing:
            self._sha256.update(piece)
        self._left -= len(piece)
        if not self._left:
            self._check_chunk()
            self._read = self._read_end_of_chunk
        return place + len(piece)

    def _read_end_of_chunk(self, data: bytes, place: int, _: bytearray) -> int:
        line, place = self._line(data, place, 2)
        if line:
            raise S3Error(S3Code.InvalidRequest, "a chunk does not end with CR LF")
        if line is not None:
            self._read = self._read_first_line
        return place

    def _read_trailer(self, data: bytes, place: int, _: bytearray) -> int:
        line, place = self._line(data, place, MAX_TRAILER - len(self._signed_lines))
        if line is None:
            return place
        if line:
            self._add_header(line)
        else:
            self._end_trailer()
        return place

    def _read_nothing(self, _data: bytes, _place: int, _decoded: bytearray) -> int:
        raise S3Error(S3Code.IncompleteBody, "bytes follow the end of the chunked body")

    # ---------------------------------------------------------------- steps

    def _line(self, data: bytes, place: int, limit: int) -> tuple[bytes | None, int]:
        """The line that ends in ``data`` without its CR LF, and the place behind it; None if it does not end there."""
        from_buffer = len(self._buffer)
        self._buffer += data[place : place + limit + 2 - from_buffer]
        end = self._buffer.find(b"\r\n", max(0, from_buffer - 1))
        if end < 0:
            if len(self._buffer) >= limit + 2:
                raise S3Error(S3Code.InvalidRequest, f"a line of the chunked body has more than {limit} bytes")
            return None, len(data)
        line = bytes(self._buffer[:end])
        self._buffer.clear()
        return line, place + end + 2 - from_buffer

    def _check_chunk(self) -> None:
        if self._signing is None:
            return
        expected = self._signing.chunk(self._previous, self._sha256.hexdigest())
        if not hmac.compare_digest(expected, self._claimed):
            raise S3Error(
                S3Code.SignatureDoesNotMatch, "the signature of a chunk is not the one that the secret key gives"
            )
        self._previous = expected

    def _end_chunks(self) -> None:
        self._check_chunk()
        if self._missing:
            raise S3Error(
                S3Code.IncompleteBody, f"the chunks have {self._missing} bytes fewer than x-amz-decoded-content-length"
            )
        self._read = self._read_trailer

    def _add_header(self, line: bytes) -> None:
        found = _HEADER.fullmatch(line)
        if found is None or self._trailer is None:
            raise S3Error(S3Code.MalformedTrailerError)
        name, value = found[1].decode().lower(), found[2].decode().strip()
        if name in self._headers or name not in (*self._trailer, _SIGNATURE_HEADER):
            raise S3Error(
                S3Code.MalformedTrailerError,
                f"the trailer has a header {quoted(name)} twice, or the request did not name it",
            )
        if _SIGNATURE_HEADER in self._headers:
            raise S3Error(S3Code.MalformedTrailerError, "a header follows the signature of the trailer")
        self._headers[name] = value
        if name != _SIGNATURE_HEADER:
            self._signed_lines += f"{name}:{value}\n".encode()

    def _end_trailer(self) -> None:
        claimed = self._headers.pop(_SIGNATURE_HEADER, None)
        if self._trailer is not None and self._headers.keys() != set(self._trailer):
            raise S3Error(S3Code.MalformedTrailerError, "the trailer lacks a header that the request has named")
        if self._trailer is not None and self._signing is not None:
            expected = self._signing.trailer(self._previous, self._signed_lines)
            if claimed is None or not hmac.compare_digest(expected.encode(), claimed.encode()):
                raise S3Error(
                    S3Code.SignatureDoesNotMatch,
                    "the signature of the trailer is not the one that the secret key gives",
                )
        elif claimed is not None:
            raise S3Error(S3Code.MalformedTrailerError, "the trailer of an unsigned body has a signature")
        self._has_ended = True
        self._read = self._read_nothing


# ---------------------------------------------------------------- verification


class BodyDigests(msgspec.Struct, frozen=True, kw_only=True):
    """What a body was found to be."""

    size: int
    md5: bytes
    checksums: Mapping[str, str]
    """The checksum that the client sent, or that was asked for, by algorithm, as Base64 text."""


class BodyReader:
    """Reads the body of one request.

    Arguments: ``request`` and its verified signature; ``has_checksum_headers``: whether ``x-amz-checksum-*`` describe
    the body (of CompleteMultipartUpload they describe the object, not the document); ``algorithm``: of a checksum that
    is computed also if the client sends none.

    What `feed` returns is valid only when `finish` has returned. Raises S3Error for headers that cannot be read.
    """

    def __init__(
        self,
        request: S3HttpRequest,
        verified: VerifiedSignature,
        *,
        has_checksum_headers: bool = True,
        algorithm: str | None = None,
    ) -> None:
        form = verified.payload
        self.length = _length(request, form)
        """How many bytes `feed` will return in all."""
        self._sha256_wanted = verified.sha256
        self._sha256 = hashlib.sha256() if verified.sha256 else None
        md5 = request.header("content-md5")
        self._md5_wanted = None if md5 is None else decoded_digest(md5, 16)
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._wanted = _checksum_headers(request) if has_checksum_headers else {}
        trailer = _trailer(request, form)
        sums = {*self._wanted, *trailer} or ({algorithm} if algorithm else set())
        if algorithm is not None and algorithm not in sums:
            raise S3Error(
                S3Code.InvalidRequest, f"the upload was begun for the checksum {algorithm.upper()}, not this one"
            )
        self._sums: dict[str, RunningDigest] = {name: new_checksum(name) for name in sums}
        self._size = 0
        self._decoder: ChunkedDecoder | None = None
        if form.is_chunked:
            self._decoder = ChunkedDecoder(
                self.length,
                signing=ChunkSigning.of(verified) if form.has_signed_chunks else None,
                trailer=tuple(f"{CHECKSUM_PREFIX}{name}" for name in trailer) if form.has_trailer else None,
            )

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the body; return the bytes of the object that they stand for. Raises S3Error."""
        if self._decoder is not None:
            data = self._decoder.feed(data)
        self._size += len(data)
        if self._size > self.length:
            raise S3Error(S3Code.IncompleteBody, "the body has more bytes than Content-Length names")
        self._md5.update(data)
        if self._sha256 is not None:
            self._sha256.update(data)
        for checksum in self._sums.values():
            checksum.update(data)
        return data

    def finish(self) -> BodyDigests:
        """Return what the body was, after its last byte.

        Raises S3Error: IncompleteBody, BadDigest, XAmzContentSHA256Mismatch, or what the end of a chunked body raises.
        """
        trailer = self._decoder.finish() if self._decoder is not None else {}
        if self._size != self.length:
            raise S3Error(S3Code.IncompleteBody, f"the body has {self._size} bytes of {self.length}")
        if self._sha256 is not None and self._sha256.hexdigest() != self._sha256_wanted:
            raise S3Error(S3Code.XAmzContentSHA256Mismatch)
        md5 = self._md5.digest()
        if self._md5_wanted is not None and not hmac.compare_digest(self._md5_wanted, md5):
            raise S3Error(S3Code.BadDigest, "the body does not have the MD5 that the header Content-MD5 names")
        wanted = dict(self._wanted)
        for header, text in trailer.items():
            name = header.removeprefix(CHECKSUM_PREFIX)
            wanted[name] = _decoded_checksum(name, text)
        for name, digest in wanted.items():
            if self._sums[name].digest() != digest:
                raise S3Error(S3Code.BadDigest, f"the body does not have the {name.upper()} that the request names")
        sums = {name: encoded_digest(checksum.digest()) for name, checksum in self._sums.items()}
        return BodyDigests(size=self._size, md5=md5, checksums=sums)


def _length(request: S3HttpRequest, form: PayloadForm) -> int:
    text = request.header("x-amz-decoded-content-length" if form.is_chunked else "content-length")
    if text is None:
        if form.is_chunked or request.header("transfer-encoding") is not None:
            raise S3Error(S3Code.MissingContentLength)
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise S3Error(S3Code.MissingContentLength, "the length of the body is not a number")
    return int(text)


def _checksum_headers(request: S3HttpRequest) -> dict[str, bytes]:
    wanted = {}
    for header in {name.decode("latin-1") for name, _ in request.headers} - _OTHER_HEADERS:
        if header.startswith(CHECKSUM_PREFIX):
            name = header.removeprefix(CHECKSUM_PREFIX)
            wanted[name] = _decoded_checksum(name, request.header(header) or "")
    if len(wanted) > 1:
        raise S3Error(S3Code.InvalidRequest, "a request takes one checksum")
    return wanted


def _trailer(request: S3HttpRequest, form: PayloadForm) -> tuple[str, ...]:
    """The checksums that follow the last chunk."""
    text = request.header("x-amz-trailer")
    if text is None or not form.has_trailer:
        if text is not None:
            raise S3Error(
                S3Code.InvalidRequest, "x-amz-trailer is for bodies whose x-amz-content-sha256 ends with -TRAILER"
            )
        return ()
    names = []
    for header in map(str.strip, text.lower().split(",")):
        if not header.startswith(CHECKSUM_PREFIX):
            raise S3Error(S3Code.NotImplemented, f"a trailer with {quoted(header)} is not available on this server")
        names.append(header.removeprefix(CHECKSUM_PREFIX))
        _size_of(names[-1])
    if len(names) > 1:
        raise S3Error(S3Code.InvalidRequest, "a request takes one checksum")
    return tuple(names)


def _decoded_checksum(name: str, text: str) -> bytes:
    size = _size_of(name)
    try:
        return decoded_digest(text, size)
    except S3Error:
        raise S3Error(
            S3Code.InvalidRequest, f"{CHECKSUM_PREFIX}{name} is not the Base64 text of {size} bytes"
        ) from None


def _size_of(name: str) -> int:
    if name not in CHECKSUM_SIZES:
        raise S3Error(S3Code.NotImplemented, f"the checksum {quoted(name)} is not one of {', '.join(CHECKSUM_SIZES)}")
    return CHECKSUM_SIZES[name]
