"""The navigation of the pages: its links, and what it shows beside them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from peerd.domain.access import Actor, Right
from peerd.domain.errors import PeerdError
from peerd.domain.lifecycle import Status
from peerd.operate.client import AioClient
from peerd.web.pages.formats import number
from peerd.web.pages.read_cache import ReadCache, visibility_of

READ_AGAIN_AFTER: Final = 10.0
"""Seconds. That there is a disk or a bucket is not read again."""
MOST_ALERTS: Final = 100


class NavigationLink(msgspec.Struct, frozen=True):
    """An entry of the navigation."""

    label: str
    path: str
    right: Right = Right.VIEW
    needs_all_queues: bool = False
    """Whether an actor that is restricted to queues sees nothing there."""
    needs_storage: bool = False
    """Whether the link is shown only where there is a disk or a bucket."""

    def is_for(self, actor: Actor) -> bool:
        """Whether an actor may see its page."""
        return actor.may(self.right) and not (self.needs_all_queues and actor.queues is not None)


NAVIGATION: Final = {
    "": (NavigationLink("Overview", "/"), NavigationLink("Alerts", "/alerts")),
    "Work": (
        NavigationLink("Tasks", "/tasks"),
        NavigationLink("Errors", "/errors"),
        NavigationLink("Handlers", "/handlers"),
        NavigationLink("Log lines", "/logs"),
        NavigationLink("Bulk actions", "/bulk"),
        NavigationLink("Queues", "/queues"),
        NavigationLink("Limits", "/limits"),
        NavigationLink("Schedules", "/schedules", needs_all_queues=True),
    ),
    "Cluster": (NavigationLink("Nodes", "/nodes"), NavigationLink("Processes", "/processes")),
    "Storage": (
        NavigationLink("Storage", "/storage", needs_all_queues=True, needs_storage=True),
        NavigationLink("Files", "/files", needs_all_queues=True, needs_storage=True),
        NavigationLink("Disks", "/disks", needs_all_queues=True, needs_storage=True),
    ),
    "Access": (
        NavigationLink("Audit log", "/audit", Right.ADMIN),
        NavigationLink("Users", "/users", Right.ADMIN),
        NavigationLink("Tokens", "/tokens", Right.ADMIN),
    ),
}
"""By group; the first one has no name."""


class NavigationFacts(msgspec.Struct):
    """What the navigation shows beside its links: dead tasks, alerts that are on, and whether there are files at all.

    Attributes:
        marks: what it says beside a link, by the path: how many tasks are dead, how many alerts are on.
        has_storage: whether it leads to files and disks.
    """

    marks: dict[str, str] = {}
    has_storage: bool = False


def links_for(actor: Actor, facts: NavigationFacts) -> dict[str, list[NavigationLink]]:
    """The links that an actor sees, by group."""
    return {
        group: [one for one in links if one.is_for(actor) and (facts.has_storage or not one.needs_storage)]
        for group, links in NAVIGATION.items()
    }


class NavigationReader:
    """Reads the facts of one process; all viewers that may see the same share them."""

    def __init__(self) -> None:
        self._cache = ReadCache(READ_AGAIN_AFTER)
        self._has_storage = False

    async def read(self, client: AioClient) -> NavigationFacts:
        """The facts that the actor of a client may see."""
        facts, actor = NavigationFacts(), client.actor
        with suppress(PeerdError):  # what the page itself reads shows it
            if actor.may(Right.VIEW):
                facts.marks = await self._cache.read(visibility_of(actor), partial(_read_marks, client))
                if actor.queues is None:
                    self._has_storage = self._has_storage or await self._cache.read("storage", client.files.are_used)
                    facts.has_storage = self._has_storage
        return facts


async def _read_marks(client: AioClient) -> dict[str, str]:
    counted = await client.statistics.counts(statuses=[Status.DEAD])
    alerts = len((await client.alerts.list(on=True, limit=MOST_ALERTS)).items)
    dead = counted.counts.get(Status.DEAD, 0)
    marks = {"/tasks": f"{number(dead)}{'+' * (Status.DEAD in counted.at_least)} dead"} if dead else {}
    return marks | ({"/alerts": f"{alerts}{'+' * (alerts == MOST_ALERTS)} on"} if alerts else {})
