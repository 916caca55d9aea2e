"""The checksums that a client may send with a body: as a header, or as a trailer behind the last chunk."""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final, Protocol

from peerd.storage.s3.errors import S3Code, S3Error

CHECKSUM_SIZES: Final = {"crc32": 4, "crc32c": 4, "crc64nvme": 8, "sha1": 20, "sha256": 32}
"""The checksums by their names, as in ``x-amz-checksum-<name>``, and how many bytes each has."""

_Update = Callable[[bytes, int], int]


class RunningDigest(Protocol):
    """A digest of bytes that come in pieces."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""

    def digest(self) -> bytes:
        """The digest of all bytes so far."""


class RunningCrc:
    """A cyclic redundancy check of bytes that come in pieces; ``name`` is crc32, crc32c or crc64nvme.

    >>> crc = RunningCrc("crc32c")
    >>> crc.update(b"12345")
    >>> crc.update(b"6789")
    >>> crc.digest().hex()
    'e3069283'
    """

    def __init__(self, name: str) -> None:
        self._add = _crc_function(name)
        self._size = CHECKSUM_SIZES[name]
        self._crc = 0

    def update(self, data: bytes, /) -> None:
        """Add bytes."""
        self._crc = self._add(data, self._crc)

    def digest(self) -> bytes:
        """The sum of all bytes so far, most significant byte first."""
        return self._crc.to_bytes(self._size, "big")


def new_checksum(name: str) -> RunningDigest:
    """A checksum of no bytes yet; ``name`` is one of `CHECKSUM_SIZES`."""
    match name:
        case "sha1":
            return hashlib.sha1(usedforsecurity=False)
        case "sha256":
            return hashlib.sha256()
        case _:
            return RunningCrc(name)


def decoded_digest(text: str, size: int) -> bytes:
    r"""The digest of a Base64 text. Raises S3Error: InvalidDigest if it has not ``size`` bytes.

    >>> decoded_digest("AAAAAQ==", 4)
    b'\x00\x00\x00\x01'
    """
    try:
        digest = b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise S3Error(S3Code.InvalidDigest) from error
    if len(digest) != size or encoded_digest(digest) != text:
        raise S3Error(S3Code.InvalidDigest)
    return digest


def encoded_digest(digest: bytes) -> str:
    """A digest as Base64 text."""
    return b64encode(digest).decode()


def _crc_function(name: str) -> _Update:
    if name == "crc32":
        return zlib.crc32
    from awscrt import checksums  # noqa: PLC0415 - 14 MB, which a server whose clients send no such sum does not need

    function: _Update = checksums.crc32c if name == "crc32c" else checksums.crc64nvme
    return function
