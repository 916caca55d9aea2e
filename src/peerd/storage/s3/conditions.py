"""Conditional headers and ranges: which requests for an object are answered with it, or with a part of it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.server import ranges
from peerd.storage.server.ranges import ANY, UNCHANGED, ContentRange, RangeNotSatisfiable

__all__ = ["ANY", "Conditions", "RequestedRange", "conditions_of", "parsed_range"]

MAX_ETAGS: Final = 100


class Conditions(ranges.Conditions, frozen=True, kw_only=True):
    """The conditions of a request of S3."""

    def failure(self, etag: str, modified: datetime) -> S3Error | None:
        """The error, PreconditionFailed or NotModified, if the conditions do not hold for an object.

        >>> Conditions(if_match=("a",)).failure("a", datetime(2026, 1, 1))
        """
        failed = self.failed({etag}, modified)
        if failed in UNCHANGED:
            return S3Error(S3Code.NotModified)
        return None if failed is None else S3Error(S3Code.PreconditionFailed, Condition=failed.title())


class RequestedRange(ranges.RequestedRange):
    """A range of an object as a client of S3 wants it."""

    def within(self, size: int) -> ContentRange:
        """The range in an object of ``size`` bytes. Raises S3Error: InvalidRange."""
        try:
            return super().within(size)
        except RangeNotSatisfiable:
            raise S3Error(S3Code.InvalidRange, ActualObjectSize=str(size)) from None


def conditions_of(request: S3HttpRequest, prefix: str = "") -> Conditions:
    """The conditions in a request's headers; ``prefix``: of the headers about a copy's source."""
    found = Conditions.of(request.header, prefix)
    if max(len(found.if_match or ()), len(found.if_none_match or ())) > MAX_ETAGS:
        raise S3Error(S3Code.InvalidArgument, f"a condition names more than {MAX_ETAGS} ETags")
    return found


def parsed_range(text: str) -> RequestedRange | None:
    """The range of a text, None if it is not one."""
    found = ranges.parse_range(text)
    return None if found is None else RequestedRange(*found)
