"""``peerd audit --follow``: the last entries of the audit log, and those that come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from peerd.cli.following import PAGE, read_pages
from peerd.operate.client import Client
from peerd.store.audit import AuditEntry, AuditTail

OVERLAP: Final = PAGE // 5
"""Ids that are read again: an entry whose transaction ends later has a smaller id than one that was read before it."""


class AuditFollower:
    """Reads the entries of a filter in the order in which they come, each once.

    Args:
        client: of the command.
        wanted: the filter, as for ``client.audit.page``.
    """

    def __init__(self, client: Client, **wanted: Any) -> None:
        self._audit = client.audit
        self._wanted = wanted
        self._known: set[int] = set()
        """Those of the last ids that were read."""

    def read(self, last: int, since: str | None) -> Iterator[AuditEntry]:
        """The last entries, at most so many and of such an age, and then new ones, without an end."""
        start = self._audit.newer()
        earlier = self._read_behind(start.next).items
        self._known = {entry.id for entry in earlier if entry.id <= int(start.next)}
        for entry in reversed(self._audit.page(**self._wanted, since=since, limit=last).items):
            self._known.add(entry.id)
            yield entry
        for tail in read_pages(lambda after: self._read_behind(after or start.next), lambda _: False):
            yield from [entry for entry in tail.items if entry.id not in self._known]
            oldest = int(tail.next) - OVERLAP
            self._known |= {entry.id for entry in tail.items}
            self._known = {entry_id for entry_id in self._known if entry_id > oldest}

    def _read_behind(self, position: str) -> AuditTail:
        return self._audit.newer(after=str(max(int(position) - OVERLAP, 0)), **self._wanted, limit=PAGE)
