"""The checksums of S3: their algorithms, what clients and headers call them, and their values.

A client may send one with a body, as a header, or as a trailer behind the last chunk.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from peerd.storage.s3.errors import S3Code, S3Error

CHECKSUM_SIZES: Final = {"crc32": 4, "crc32c": 4, "crc64nvme": 8, "sha1": 20, "sha256": 32}
"""The checksums by their names, as in ``x-amz-checksum-<name>``, and how many bytes each has."""

CHECKSUM_PREFIX: Final = "x-amz-checksum-"
"""Before the name of a checksum, in the header that has its value."""
CHECKSUM_ALGORITHM: Final = "x-amz-checksum-algorithm"
CHECKSUM_TYPE: Final = "x-amz-checksum-type"

_Update = Callable[[bytes, int], int]


class Checksum(msgspec.Struct, frozen=True):
    """A checksum that the client names: an algorithm as in ``x-amz-checksum-<algorithm>``, and its Base64 text."""

    algorithm: str
    value: str


class ChecksumKind(msgspec.Struct, frozen=True):
    """Which checksum an object has that is uploaded in parts: of its bytes, or of the checksums of its parts."""

    algorithm: str
    is_of_parts: bool

    @property
    def headers(self) -> dict[str, str]:
        """The kind as clients name it, and as it is kept with an upload."""
        kind = "COMPOSITE" if self.is_of_parts else "FULL_OBJECT"
        return {CHECKSUM_ALGORITHM: self.algorithm.upper(), CHECKSUM_TYPE: kind}


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


def checksum_headers(checksums: Mapping[str, str]) -> dict[str, str]:
    """Checksums, by their algorithms, as headers of a response, with the type; a hyphen is before the number of parts.

    >>> checksum_headers({"crc32": "AAAAAA==-3"})
    {'x-amz-checksum-crc32': 'AAAAAA==-3', 'x-amz-checksum-type': 'COMPOSITE'}
    """
    headers = {f"{CHECKSUM_PREFIX}{name}": value for name, value in checksums.items()}
    for name, value in checksums.items():
        headers[CHECKSUM_TYPE] = ChecksumKind(name, is_of_parts="-" in value).headers[CHECKSUM_TYPE]
    return headers


def checksum_elements(checksums: Mapping[str, str], *, has_type: bool = True) -> list[tuple[str, str | None]]:
    """Checksums, by their algorithms, as elements of a document; those of a part have no type."""
    kind = checksum_headers(checksums).get(CHECKSUM_TYPE) if has_type else None
    return [*((f"Checksum{name.upper()}", value) for name, value in checksums.items()), ("ChecksumType", kind)]


def _crc_function(name: str) -> _Update:
    if name == "crc32":
        return zlib.crc32
    from awscrt import checksums  # noqa: PLC0415 - 14 MB, which a server whose clients send no such sum does not need

    function: _Update = checksums.crc32c if name == "crc32c" else checksums.crc64nvme
    return function
