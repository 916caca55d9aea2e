"""Conditional headers and ranges: which requests for an object are answered with it, or with a part of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest

ANY: Final = "*"
MAX_ETAGS: Final = 100

_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a request. ETags are without quotes; ``*`` stands for any object. None: no such condition."""

    if_match: tuple[str, ...] | None = None
    if_none_match: tuple[str, ...] | None = None
    if_modified_since: datetime | None = None
    if_unmodified_since: datetime | None = None

    def failure(self, etag: str, modified: datetime) -> S3Error | None:
        """The error, PreconditionFailed or NotModified, if the conditions do not hold for an object; they are looked at
        in the order of RFC 9110, 13.2.2: a condition on ETags replaces the one on times.

        >>> Conditions(if_match=("a",)).failure("a", datetime(2026, 1, 1, tzinfo=UTC))
        """
        modified = modified.replace(microsecond=0)
        if self.if_match is not None:
            if not _matches(self.if_match, etag):
                return S3Error(S3Code.PreconditionFailed, Condition="If-Match")
        elif self.if_unmodified_since is not None and modified > self.if_unmodified_since:
            return S3Error(S3Code.PreconditionFailed, Condition="If-Unmodified-Since")
        if self.if_none_match is not None:
            if _matches(self.if_none_match, etag):
                return S3Error(S3Code.NotModified)
        elif self.if_modified_since is not None and modified <= self.if_modified_since:
            return S3Error(S3Code.NotModified)
        return None


class RequestedRange(msgspec.Struct, frozen=True):
    """A range of bytes as the client wants it: from ``first`` to ``last``; without ``first``: the ``last`` bytes."""

    first: int | None
    last: int | None

    def within(self, size: int) -> tuple[int, int]:
        """The first byte, and the one behind the last, in an object of ``size`` bytes. Raises S3Error: InvalidRange.

        >>> RequestedRange(5, None).within(10), RequestedRange(0, 99).within(10), RequestedRange(None, 3).within(10)
        ((5, 10), (0, 10), (7, 10))
        """
        if self.first is None:
            start, stop = max(0, size - (self.last or 0)), size
        else:
            start, stop = self.first, size if self.last is None else min(size, self.last + 1)
        if start >= stop:
            raise S3Error(S3Code.InvalidRange, ActualObjectSize=str(size))
        return start, stop


def conditions_of(request: S3HttpRequest, prefix: str = "") -> Conditions:
    """The conditions in a request's headers; ``prefix`` is that of the headers of a copy's source."""
    return Conditions(
        if_match=_etags(request.header(f"{prefix}if-match")),
        if_none_match=_etags(request.header(f"{prefix}if-none-match")),
        if_modified_since=_time(request.header(f"{prefix}if-modified-since")),
        if_unmodified_since=_time(request.header(f"{prefix}if-unmodified-since")),
    )


def parsed_range(text: str) -> RequestedRange | None:
    """The range of a text. None for the whole object: also, as HTTP has it, if the text cannot be read, or names
    several ranges.

    >>> parsed_range("bytes=0-99"), parsed_range("bytes=9-5"), parsed_range("bytes=0-1,5-6")
    (RequestedRange(first=0, last=99), None, None)
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None
    first, last = (int(digits) if digits else None for digits in found.groups())
    if first is not None and last is not None and last < first:
        return None
    return RequestedRange(first, last)


def _matches(etags: tuple[str, ...], etag: str) -> bool:
    return ANY in etags or etag in etags


def _etags(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    etags = tuple(piece.strip().removeprefix("W/").strip('"') for piece in text.split(","))
    if len(etags) > MAX_ETAGS:
        raise S3Error(S3Code.InvalidArgument, f"a condition names more than {MAX_ETAGS} ETags")
    return etags


def _time(text: str | None) -> datetime | None:
    """A date of HTTP; one that cannot be read is no condition (RFC 9110, 13.1.3)."""
    if text is None:
        return None
    try:
        time = parsedate_to_datetime(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
