"""What requests for a content ask for, and how they are answered: conditions and ranges (RFC 9110, 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple, Self

import msgspec

from peerd.domain.files import StoredFile
from peerd.storage.file_headers import metadata_headers

ANY: Final = "*"
UNCHANGED: Final = frozenset({"if-none-match", "if-modified-since"})
"""Conditions that do not hold where the client has the content already."""
_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


class RangeNotSatisfiable(ValueError):
    """The range begins behind the end of the content."""


class ContentRange(NamedTuple):
    """The bytes from ``start`` to before ``stop``."""

    start: int
    stop: int


class RequestedRange(NamedTuple):
    """A range as a client wants it: from ``first`` to ``last``; without ``first``, the ``last`` bytes of all."""

    first: int | None
    last: int | None

    def within(self, size: int) -> ContentRange:
        """The range in a content of so many bytes. Raises RangeNotSatisfiable.

        >>> RequestedRange(2, 4).within(10), RequestedRange(7, None).within(10), RequestedRange(None, 3).within(10)
        (ContentRange(start=2, stop=5), ContentRange(start=7, stop=10), ContentRange(start=7, stop=10))
        """
        if self.first is None:
            start, stop = max(0, size - (self.last or 0)), size
        else:
            start, stop = self.first, size if self.last is None else min(size, self.last + 1)
        if start >= stop:
            raise RangeNotSatisfiable
        return ContentRange(start, stop)


def parse_range(text: str | None) -> RequestedRange | None:
    """The range that a header asks for; None: all, because it asks for none, for several, or cannot be read.

    >>> parse_range("bytes=0-99"), parse_range("bytes=9-5"), parse_range("bytes=0-1,5-6")
    (RequestedRange(first=0, last=99), None, None)
    """
    found = _RANGE.fullmatch((text or "").replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(digits) if digits else None for digits in found.groups())
    if first is not None and last is not None and last < first:
        return None
    return RequestedRange(first, last)


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a request. Entity tags are without quotes; ``*`` stands for any. None: no such condition."""

    if_match: tuple[str, ...] | None = None
    if_none_match: tuple[str, ...] | None = None
    if_modified_since: datetime | None = None
    if_unmodified_since: datetime | None = None

    @classmethod
    def of(cls, header: Callable[[str], str | None], prefix: str = "") -> Self:
        """The conditions in the headers of a request.

        Args:
            header: gives the text of a header.
            prefix: what the names of the headers begin with.
        """
        return cls(
            if_match=tags_of(header(f"{prefix}if-match"), are_weak_equal=False),
            if_none_match=tags_of(header(f"{prefix}if-none-match")),
            if_modified_since=_date(header(f"{prefix}if-modified-since")),
            if_unmodified_since=_date(header(f"{prefix}if-unmodified-since")),
        )

    def failed(self, tags: set[str], modified: datetime) -> str | None:
        """The header whose condition does not hold for a content, in the order of RFC 9110, 13.2.2; None: all hold.

        A condition on entity tags replaces the one on times.

        Args:
            tags: the entity tags that the content has.
            modified: when the version was put.
        """
        second = modified.replace(microsecond=0)
        if self.if_match is not None:
            if not tags & set(self.if_match) and ANY not in self.if_match:
                return "if-match"
        elif self.if_unmodified_since is not None and second > self.if_unmodified_since:
            return "if-unmodified-since"
        if self.if_none_match is not None:
            if tags & set(self.if_none_match) or ANY in self.if_none_match:
                return "if-none-match"
        elif self.if_modified_since is not None and second <= self.if_modified_since:
            return "if-modified-since"
        return None


class ContentAnswer(NamedTuple):
    """How a GET of a content is answered.

    Attributes:
        status: 200 or 206 with bytes; else 304, 412 or 416.
        headers: the length and the range of the body.
        part: the bytes of the body; None: there is none.
    """

    status: HTTPStatus
    headers: dict[str, str]
    part: ContentRange | None = None


def answer_to_get(method: str, headers: Mapping[str, str], file: StoredFile) -> ContentAnswer:
    """How a GET or HEAD of a version is answered: by its conditions first, then, of a GET, by its range.

    Args:
        method: of the request.
        headers: of the request, with names in lower case.
        file: the version.
    """
    tags = {file.etag or file.blake3, file.blake3}
    failed = Conditions.of(headers.get).failed(tags, file.created_at)
    if failed is not None:
        return ContentAnswer(HTTPStatus.NOT_MODIFIED if failed in UNCHANGED else HTTPStatus.PRECONDITION_FAILED, {})
    has_range = method == "GET" and range_still_holds(headers, tags, file.created_at)
    return answer_with_range(headers.get("range") if has_range else None, file.size)


def answer_with_range(text: str | None, size: int) -> ContentAnswer:
    """How a GET of a content of so many bytes is answered, by its range alone.

    >>> answer_with_range("bytes=7-", 10).headers, answer_with_range("bytes=10-", 10).headers
    ({'content-length': '3', 'content-range': 'bytes 7-9/10'}, {'content-range': 'bytes */10'})
    """
    wanted = parse_range(text)
    if wanted is None:
        return ContentAnswer(HTTPStatus.OK, {"content-length": str(size)}, ContentRange(0, size))
    try:
        start, stop = wanted.within(size)
    except RangeNotSatisfiable:
        return ContentAnswer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"content-range": f"bytes */{size}"})
    headers = {"content-length": str(stop - start), "content-range": f"bytes {start}-{stop - 1}/{size}"}
    return ContentAnswer(HTTPStatus.PARTIAL_CONTENT, headers, ContentRange(start, stop))


def headers_of(file: StoredFile) -> dict[str, str]:
    """The headers of a content: a browser neither shows nor runs it as a page of the site, as it may be anything."""
    headers = {
        "content-type": file.content_type or "application/octet-stream",
        "accept-ranges": "bytes",
        "etag": f'"{file.etag or file.blake3}"',
        "last-modified": http_date(file.created_at),
        "x-peerd-blake3": file.blake3,
        "x-peerd-version": str(file.version),
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return headers | metadata_headers(file.metadata)


def http_date(moment: datetime) -> str:
    """A time as HTTP writes it.

    >>> http_date(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    'Fri, 02 Jan 2026 03:04:05 GMT'
    """
    return format_datetime(moment.astimezone(UTC), usegmt=True)


def range_still_holds(headers: Mapping[str, str], tags: set[str], modified: datetime) -> bool:
    """Whether If-Range allows a part: the client has the rest of this content, and not of another one."""
    condition = headers.get("if-range")
    if condition is None:
        return True
    if condition.startswith(('"', "W/")):
        return not condition.startswith("W/") and condition.strip('"') in tags
    return _date(condition) == modified.replace(microsecond=0)


def tags_of(text: str | None, *, are_weak_equal: bool = True) -> tuple[str, ...] | None:
    """The entity tags in a header that are compared with strong ones; ``*`` for any.

    >>> tags_of('"a", W/"b"'), tags_of('"a", W/"b"', are_weak_equal=False), tags_of("*"), tags_of('"*"'), tags_of(None)
    (('a', 'b'), ('a',), ('*',), ('"*"',), None)
    """
    if text is None:
        return None
    pieces = [piece.strip() for piece in text.split(",")]
    tags = [piece.removeprefix("W/") for piece in pieces if are_weak_equal or not piece.startswith("W/")]
    return tuple(tag if tag == f'"{ANY}"' else tag.strip('"') for tag in tags)


def _date(text: str | None) -> datetime | None:
    """A date of HTTP; one that cannot be read is no condition (RFC 9110, 13.1.3)."""
    if text is None:
        return None
    try:
        time = parsedate_to_datetime(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
