"""What the navigation shows beside its links: dead tasks, alerts that are on, and whether there are files at all."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from peerd.domain.access import Right
from peerd.domain.errors import PeerdError
from peerd.domain.lifecycle import Status
from peerd.operate.client import AioClient
from peerd.web.pages.formats import number
from peerd.web.pages.read_cache import ReadCache, visibility_of
from peerd.web.pages.rendering import PageRequest

READ_AGAIN_AFTER: Final = 10.0
"""Seconds. That there is a disk or a bucket is not read again."""
MOST_ALERTS: Final = 100


class NavigationFacts:
    """What is known about it in one process; all viewers that may see the same share it."""

    def __init__(self) -> None:
        self._cache = ReadCache(READ_AGAIN_AFTER)
        self._has_storage = False

    async def find_for(self, page: PageRequest) -> None:
        """Set `PageRequest.marks` and `PageRequest.has_storage` for a viewer that may see them."""
        actor, client = page.actor, page.client
        if not actor.may(Right.VIEW):
            return
        with suppress(PeerdError):  # what the page itself reads shows it
            page.marks = await self._cache.read(visibility_of(actor), partial(_read_marks, client))
            if actor.queues is None:
                self._has_storage = self._has_storage or await self._cache.read("storage", client.files.are_used)
                page.has_storage = self._has_storage


async def _read_marks(client: AioClient) -> dict[str, str]:
    counted = await client.statistics.counts(statuses=[Status.DEAD])
    alerts = len((await client.alerts.list(on=True, limit=MOST_ALERTS)).items)
    dead = counted.counts.get(Status.DEAD, 0)
    marks = {"/tasks": f"{number(dead)}{'+' * (Status.DEAD in counted.at_least)} dead"} if dead else {}
    return marks | ({"/alerts": f"{alerts}{'+' * (alerts == MOST_ALERTS)} on"} if alerts else {})
