"""Whether the cluster keeps files: only then the navigation has pages about them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from peerd.domain.access import Right
from peerd.domain.errors import PeerdError
from peerd.web.pages.rendering import PageRequest

ASK_AGAIN_AFTER: Final = 10.0
"""Seconds after which it is read again where there was neither a disk nor a bucket; later it is not."""


class StorageUse:
    """What is known about it in one process."""

    def __init__(self) -> None:
        self._is_used = False
        self._read_at = -ASK_AGAIN_AFTER

    async def find_for(self, page: PageRequest) -> None:
        """Set `PageRequest.has_storage` for a viewer that may see files."""
        actor = page.actor
        if not actor.may(Right.VIEW) or actor.queues is not None:
            return
        if not self._is_used and time.monotonic() - self._read_at >= ASK_AGAIN_AFTER:
            with suppress(PeerdError):  # what the page itself reads shows it
                self._is_used = await page.read("storage is used", page.client.files.are_used)
                self._read_at = time.monotonic()
        page.has_storage = self._is_used
