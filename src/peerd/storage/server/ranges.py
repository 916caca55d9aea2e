"""Ranges and conditions of requests (RFC 9110, sections 13 and 14), as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final, NamedTuple

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_TAG: Final = re.compile(r'(?:W/)?"([^"]*)"')


class RangeNotSatisfiable(ValueError):
    """The range begins behind the end of the content."""


class ContentRange(NamedTuple):
    """The bytes from ``start`` to before ``stop``."""

    start: int
    stop: int


def parse_range(text: str | None, size: int) -> ContentRange | None:
    """The range that a header asks for; None: all, because it asks for none, or for several.

    Raises:
        RangeNotSatisfiable: it begins behind the end.

    >>> parse_range("bytes=2-4", 10), parse_range("bytes=-3", 10), parse_range("bytes=7-", 10), parse_range(None, 10)
    (ContentRange(start=2, stop=5), ContentRange(start=7, stop=10), ContentRange(start=7, stop=10), None)
    """
    found = _RANGE.fullmatch((text or "").replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        length = min(int(found[2]), size)
        if not length:
            raise RangeNotSatisfiable
        return ContentRange(size - length, size)
    start = int(found[1])
    stop = min(int(found[2]) + 1, size) if found[2] else size
    if found[2] and int(found[2]) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable
    return ContentRange(start, stop)


def tags_of(text: str) -> set[str]:
    """The entity tags in a header; ``*`` for any.

    >>> sorted(tags_of('"a", W/"b"')), tags_of("*")
    (['a', 'b'], {'*'})
    """
    return {"*"} if text.strip() == "*" else set(_TAG.findall(text))


def failed_condition(headers: Mapping[str, str], tags: set[str], modified: datetime) -> int | None:
    """The status of a response to a GET or HEAD whose condition does not hold: 412 or 304; None: it holds.

    Args:
        headers: with names in lower case.
        tags: the entity tags that the content has.
        modified: when the version was put.
    """
    second = modified.replace(microsecond=0)
    if "if-match" in headers:
        if not tags_of(headers["if-match"]) & {*tags, "*"}:
            return 412
    elif (since := _date(headers.get("if-unmodified-since"))) is not None and second > since:
        return 412
    if "if-none-match" in headers:
        if tags_of(headers["if-none-match"]) & {*tags, "*"}:
            return 304
    elif (since := _date(headers.get("if-modified-since"))) is not None and second <= since:
        return 304
    return None


def range_still_holds(headers: Mapping[str, str], tags: set[str], modified: datetime) -> bool:
    """Whether If-Range allows a part: the content is still the one of which the client has the rest."""
    condition = headers.get("if-range")
    if condition is None:
        return True
    if condition.startswith(('"', "W/")):
        return not condition.startswith("W/") and bool(tags_of(condition) & tags)
    return _date(condition) == modified.replace(microsecond=0)


def http_date(moment: datetime) -> str:
    """A time as HTTP writes it.

    >>> http_date(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    'Fri, 02 Jan 2026 03:04:05 GMT'
    """
    return format_datetime(moment.astimezone(UTC), usegmt=True)


def _date(text: str | None) -> datetime | None:
    try:
        found = None if text is None else parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)
