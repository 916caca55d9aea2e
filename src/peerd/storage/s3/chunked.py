r"""A decoder of `aws-chunked` bodies, which comes in whatever pieces.

A chunk is `SIZE[;chunk-signature=HEX]\r\n`, SIZE in hex digits, that many bytes, and `\r\n`. The chunk of size 0 is the
last; behind its first line follow the headers of the trailer, if the request has announced some, and an empty line.
Each signature covers the one before it, and the first that of the request: chunks can be neither changed, nor dropped,
nor put into another order. A signed trailer ends with `x-amz-trailer-signature:HEX`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

import msgspec

from peerd.domain.quoting import quoted
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.signature import VerifiedSignature, hex_signature

MAX_LINE: Final = 256
"""The longest first line of a chunk, in bytes."""
MAX_TRAILER: Final = 4096
"""The longest trailer, in bytes with the ends of its lines."""

_SIGNATURE_HEADER: Final = "x-amz-trailer-signature"
_SIGNED_LINE: Final = re.compile(rb"([0-9a-fA-F]{1,16});chunk-signature=([0-9a-f]{64})")
_PLAIN_LINE: Final = re.compile(rb"([0-9a-fA-F]{1,16})")
_HEADER: Final = re.compile(rb"([A-Za-z0-9-]{1,100}):([\x20-\x7e\t]*)\n?")
_NO_BYTES: Final = hashlib.sha256().hexdigest()


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
