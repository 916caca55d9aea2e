"""The addresses of pages: what they are about, and their queries.

A name may hold any character that is safe in a query; in a path, `/` and `.` would mean something else. So ids stand in
the path, and names in the query. What a page shows is all in its query, so that an address can be kept and sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Self
from urllib.parse import parse_qsl, urlencode

import msgspec


class Subject(StrEnum):
    """What a page or an action is about. The value is the first part of the path."""

    TASK = "tasks"
    BULK = "bulk"
    QUEUE = "queues"
    LIMIT = "limits"
    NODE = "nodes"
    PROCESS = "processes"
    SCHEDULE = "schedules"
    ALERT = "alerts"
    USER = "users"
    TOKEN = "tokens"  # noqa: S105 - no password
    AUDIT = "audit"
    FILE = "files"
    DISK = "disks"

    @property
    def has_id(self) -> bool:
        """Whether one of them is named by a number."""
        return self in {Subject.TASK, Subject.BULK, Subject.TOKEN, Subject.PROCESS, Subject.DISK}

    def page(self, key: str | int) -> str:
        """The address of the page of one.

        >>> Subject.TASK.page(17), Subject.QUEUE.page("a/b")
        ('/tasks/17', '/queues/show?name=a%2Fb')
        """
        return f"/{self}/{key}" if self.has_id else f"/{self}/show?{urlencode({'name': key})}"

    @classmethod
    def of_finding(cls, about: Mapping[str, str], *, may_operate: bool) -> str:
        """The address of what a finding is about; empty where there is no such page.

        >>> Subject.of_finding({"queue": "mail", "node": "b"}, may_operate=True)
        '/bulk/new?queue=mail&node=b&status=pending&verb=move'
        """
        if about.keys() == {"queue", "node"}:
            pinned = urlencode({**about, "status": "pending"})
            return f"/bulk/new?{pinned}&verb=move" if may_operate else f"/tasks?{pinned}"
        if "status" in about or "handler" in about:
            return f"/tasks?{urlencode({'name' if key == 'handler' else key: value for key, value in about.items()})}"
        for kind, subject in (("queue", cls.QUEUE), ("node", cls.NODE), ("disk", cls.DISK)):
            if kind in about:
                return subject.page(about[kind])
        return "/storage" if "storage" in about else "/alerts" if about else ""

    def action(self, key: str | int, verb: str) -> str:
        """The address of an action on one.

        >>> Subject.TASK.action(17, "retry"), Subject.NODE.action("video-1", "drain")
        ('/tasks/17/retry', '/nodes/drain?name=video-1')
        """
        return f"/{self}/{key}/{verb}" if self.has_id else f"/{self}/{verb}?{urlencode({'name': key})}"


def list_address(bucket: str, prefix: str = "") -> str:
    """The address of a list of files.

    >>> list_address("films", "2026/")
    '/files/list?bucket=films&prefix=2026%2F'
    """
    return f"/files/list?{urlencode({'bucket': bucket} | ({'prefix': prefix} if prefix else {}))}"


def folder_of(key: str) -> str:
    """The part of a key up to its last slash.

    >>> folder_of("2026/one.mov"), folder_of("one.mov")
    ('2026/', '')
    """
    return key[: key.rfind("/") + 1]


# ---------------------------------------------------------------- queries


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
        """The query that is the text after a question mark; empty values are left out."""
        return cls(tuple(parse_qsl(text)))

    def get(self, name: str, default: str | None = None) -> str | None:
        """The last value of a name."""
        return next((value for given, value in reversed(self.pairs) if given == name), default)

    def all(self, name: str) -> list[str]:
        """All values of a name."""
        return [value for given, value in self.pairs if given == name]

    def with_values(self, **changed: str | Iterable[str] | None) -> UrlQuery:
        """This query with other values of some names; None and an empty list remove one."""
        return self.with_mapping(changed)

    def with_mapping(self, changed: Mapping[str, str | Iterable[str] | None]) -> UrlQuery:
        """This query with other values of names that may be no identifiers, as by `with_values`."""
        pairs = [(name, value) for name, value in self.pairs if name not in changed]
        for name, given in changed.items():
            values = [] if given is None else [given] if isinstance(given, str) else list(given)
            pairs += [(name, value) for value in values]
        return UrlQuery(tuple(pairs))

    def without(self, name: str, value: str) -> UrlQuery:
        """This query without one value of a name."""
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
