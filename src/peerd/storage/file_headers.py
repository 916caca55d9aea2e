"""What is stored with a content: as values, as headers of a put, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import StoredFile
from peerd.domain.quoting import quoted
from peerd.domain.units import parse_duration

METADATA: Final = "x-peerd-meta-"
METADATA_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
MAX_METADATA: Final = 8 * 1024
MAX_METADATA_NAMES: Final = 64
"""Each is a header of a response, and the standard library's client, as those of S3, reads a hundred of these."""
MAX_CONTENT_TYPE: Final = 255
MAX_EXPIRES_IN: Final = 100 * 366 * 86_400.0
"""Seconds; a time that no database has would become none, so that the file would never expire."""


class PutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored with a content.

    Attributes:
        class_name: None: the class of the bucket.
        content_type: such as ``video/mp4``.
        metadata: names and values.
        expires_in: seconds after which the file is removed by itself; None: never.
        only_new: refuse to replace a file.
        size: bytes that the content must have; None: any.
        blake3: that it must have, in hex; None: any.
    """

    class_name: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    expires_in: float | None = None
    only_new: bool = False
    size: int | None = None
    blake3: str | None = None

    def __post_init__(self) -> None:
        if self.blake3 is not None:  # it is compared with a version's
            msgspec.structs.force_setattr(self, "blake3", self.blake3.lower())

    def check(self) -> None:
        """Refuse what no header can have. Raises InvalidFile."""
        name = self.class_name
        if name is not None and not (name.isascii() and name.isprintable()):
            raise InvalidFile("class_name", f"{quoted(name)} is no name of a class")
        kind = self.content_type
        if kind is not None and not (kind.isascii() and kind.isprintable() and len(kind) <= MAX_CONTENT_TYPE):
            raise InvalidFile(
                "content_type", f"{quoted(kind)} is not printable ASCII of at most {MAX_CONTENT_TYPE} characters"
            )
        if self.expires_in is not None and self.expires_in > MAX_EXPIRES_IN:
            raise InvalidFile("expires_in", "a file expires within a hundred years, or never")
        if len(self.metadata) > MAX_METADATA_NAMES:
            raise InvalidFile("metadata", f"it has more than {MAX_METADATA_NAMES} names")
        if len(set(map(str.lower, self.metadata))) < len(self.metadata):
            raise InvalidFile("metadata", "names that differ in capitals alone are one, as in headers of HTTP")
        for name in self.metadata:
            if not METADATA_NAME.fullmatch(name):
                raise InvalidFile("metadata", f"{quoted(name)} is no name: a-z, 0-9, - and _, as in headers of HTTP")


class PutTarget(msgspec.Struct, frozen=True):
    """Where a content is put, and what is stored with it."""

    bucket: str
    key: str
    options: PutOptions = PutOptions()

    @property
    def path(self) -> str:
        """The bucket and the key."""
        return f"{self.bucket}/{self.key}"


def put_headers(options: PutOptions) -> dict[str, str]:
    """The headers of a put, which say what is stored with the content. Raises InvalidFile."""
    options.check()
    optional = {
        "content-type": options.content_type,
        "x-peerd-class": options.class_name,
        "x-peerd-expires-in": None if options.expires_in is None else f"{options.expires_in:f}s",
        "x-peerd-blake3": options.blake3,
        "if-none-match": "*" if options.only_new else None,
        "content-length": None if options.size is None else str(options.size),
    }
    return metadata_headers(options.metadata) | {name: one for name, one in optional.items() if one is not None}


def options_of(headers: Mapping[str, str]) -> PutOptions:
    """What the headers of a put say is stored with the content. Raises InvalidFile.

    >>> options_of({"x-peerd-class": "safe", "x-peerd-meta-take": "3", "x-peerd-expires-in": "7d"}).expires_in
    604800.0
    """
    if "content-range" in headers:  # of curl -C, whose body is the rest of a file alone (RFC 9110, 9.3.4)
        raise InvalidFile("content-range", "a put has all bytes of a file")
    metadata = {
        name.removeprefix(METADATA): unquote(value) for name, value in headers.items() if name.startswith(METADATA)
    }
    if sum(len(name) + len(value) for name, value in metadata.items()) > MAX_METADATA:
        raise InvalidFile("metadata", f"it is larger than {MAX_METADATA} bytes")
    try:
        expires_in = parse_duration(headers["x-peerd-expires-in"]) if "x-peerd-expires-in" in headers else None
    except ValueError as error:
        raise InvalidFile("expires_in", str(error)) from error
    length = headers.get("content-length", "")
    options = PutOptions(
        class_name=headers.get("x-peerd-class"),
        content_type=headers.get("content-type"),
        metadata=metadata,
        expires_in=expires_in,
        only_new=headers.get("if-none-match", "").strip() == "*",
        size=int(length) if length.isascii() and length.isdigit() else None,
        blake3=headers.get("x-peerd-blake3"),
    )
    options.check()
    return options


def file_as_json(file: StoredFile) -> dict[str, Any]:
    """A version as answers have it; its id is a text, since JavaScript cannot hold it as a number."""
    fields: dict[str, Any] = msgspec.to_builtins(file)
    return fields | {"id": str(file.id)}


def metadata_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """The headers of metadata; a blank at an end would be none of a header's value.

    >>> metadata_headers({"take": "drei ä", "note": " x"})
    {'x-peerd-meta-take': 'drei %C3%A4', 'x-peerd-meta-note': '%20x'}
    """
    return {
        f"{METADATA}{name.lower()}": quote(value, safe=" " if value == value.strip() else "")
        for name, value in metadata.items()
    }
