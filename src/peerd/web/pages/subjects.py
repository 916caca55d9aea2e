"""What pages are about, and their addresses.

A name may hold any character that is safe in a query; in a path, `/` and `.` would mean something else. So ids stand in
the path, and names in the query.
"""

from __future__ import annotations

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

    def action(self, key: str | int, verb: str) -> str:
        """The address of an action on one.

        >>> Subject.TASK.action(17, "retry"), Subject.NODE.action("video-1", "drain")
        ('/tasks/17/retry', '/nodes/drain?name=video-1')
        """
        return f"/{self}/{key}/{verb}" if self.has_id else f"/{self}/{verb}?{urlencode({'name': key})}"
