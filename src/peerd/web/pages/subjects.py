"""What pages are about, and their addresses.

A name may hold any character that is safe in a query; in a path, `/` and `.` would mean something else. So ids stand in
the path, and names in the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import urlencode


class Subject(StrEnum):
    """Of what a page or an action is. The value is the first part of the path."""

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
