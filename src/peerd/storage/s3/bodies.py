"""The body of a request: decoded if it is chunked, and compared with every length, digest and checksum it came with."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
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
from peerd.storage.s3.chunked import ChunkedDecoder, ChunkSigning
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import PayloadForm, VerifiedSignature

_OTHER_HEADERS: Final = frozenset({"x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"})


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
        self._length = _length(request, form)
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
                self._length,
                signing=ChunkSigning.of(verified) if form.has_signed_chunks else None,
                trailer=tuple(f"{CHECKSUM_PREFIX}{name}" for name in trailer) if form.has_trailer else None,
            )

    @property
    def length(self) -> int:
        """How many bytes `feed` will return in all."""
        return self._length

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the body; return the bytes of the object that they stand for. Raises S3Error."""
        if self._decoder is not None:
            data = self._decoder.feed(data)
        self._size += len(data)
        if self._size > self._length:
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
        if self._size != self._length:
            raise S3Error(S3Code.IncompleteBody, f"the body has {self._size} bytes of {self._length}")
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
