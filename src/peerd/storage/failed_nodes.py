"""Nodes that have failed lately: puts and gets go to the others first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

AVOIDED_FOR: Final = 30.0
"""Seconds in which a node that has failed is the last that is asked."""


class FailedNodes:
    """Remembers which nodes have failed, so that the others are asked first; thread-safe.

    Args:
        clock: seconds that never go back.

    >>> failed = FailedNodes(lambda: 7.0)
    >>> failed.note("http://a")
    >>> failed.last(["http://a", "http://b"])
    ['http://b', 'http://a']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, float] = {}

    def note(self, url: str) -> None:
        """A node has failed."""
        self._failed[url] = self._clock()

    def last(self, urls: Sequence[str]) -> list[str]:
        """The nodes in their order, those that have failed lately behind the others."""
        since = self._clock() - AVOIDED_FOR
        return sorted(urls, key=lambda url: self._failed.get(url, float("-inf")) > since)
