"""The query of a page's address: what the page shows is all in there, so that an address can be kept and sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import parse_qsl, urlencode

import msgspec

Pairs = tuple[tuple[str, str], ...]


class UrlQuery(msgspec.Struct, frozen=True):
    """The parameters of an address, in their order; one name may have several values.

    >>> query = UrlQuery.parse("status=failure&where=priority>1&where=name=a&after=xyz")
    >>> query.get("status"), query.all("where"), query.get("queue")
    ('failure', ['priority>1', 'name=a'], None)
    >>> query.with_values(queue="video", after=None).text
    'status=failure&where=priority%3E1&where=name%3Da&queue=video'
    """

    pairs: Pairs = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of the text after the question mark; empty values are left out."""
        return cls(tuple(parse_qsl(text)))

    def get(self, name: str, default: str | None = None) -> str | None:
        """The last value of a name."""
        return next((value for given, value in reversed(self.pairs) if given == name), default)

    def all(self, name: str) -> list[str]:
        """All values of a name."""
        return [value for given, value in self.pairs if given == name]

    def with_values(self, **changed: str | Iterable[str] | None) -> UrlQuery:
        """The same with other values of some names; None and an empty list remove one."""
        return self.with_mapping(changed)

    def with_mapping(self, changed: Mapping[str, str | Iterable[str] | None]) -> UrlQuery:
        """As `with_values`, for names that are no identifiers."""
        pairs = [(name, value) for name, value in self.pairs if name not in changed]
        for name, given in changed.items():
            values = [] if given is None else [given] if isinstance(given, str) else list(given)
            pairs += [(name, value) for value in values]
        return UrlQuery(tuple(pairs))

    def without(self, name: str, value: str) -> UrlQuery:
        """The same without one value of a name."""
        return UrlQuery(tuple(pair for pair in self.pairs if pair != (name, value)))

    @property
    def text(self) -> str:
        """The query, without a question mark."""
        return urlencode(self.pairs)

    def address(self, path: str) -> str:
        """The address of a page with this query.

        >>> UrlQuery((("a", "1"),)).address("/tasks"), UrlQuery().address("/tasks")
        ('/tasks?a=1', '/tasks')
        """
        return f"{path}?{self.text}" if self.pairs else path


def safe_path(given: str | None) -> str | None:
    r"""A path within the app to go back to; None for anything that could lead elsewhere.

    >>> safe_path("/tasks?status=dead"), safe_path("//evil.example"), safe_path("/\\evil.example"), safe_path("https://x")
    ('/tasks?status=dead', None, None, None)
    """
    if given is None or not given.startswith("/") or given.startswith("//"):
        return None
    return given if given.isprintable() and "\\" not in given and len(given) <= 8_000 else None
