"""Counts of jobs for statistics, which are not counted anew while that would take much of the time.

A count walks the pending jobs of a tube, or of all; meanwhile the operations of all clients wait. A count of few jobs
is made each time, even if it took long: then the machine was busy, and not with counting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy.engine import Connection

from peerd.store import jobs
from peerd.store.jobs.types import TubeCounts

FEW: Final = 1000
"""Jobs whose count is made each time."""
QUICK: Final = 0.05
"""Seconds of a count that may be made each time."""
VALID_FOR: Final = 10.0
"""How long a slower count is used, as a multiple of the time that it has taken."""
LONGEST: Final = 1.0
"""Seconds for which a count is used at the most."""


class TableCounts:
    """The counts of one process. Its methods are called on the thread of the batches, so they need no lock."""

    def __init__(self) -> None:
        self._kept: dict[str | None, tuple[float, TubeCounts]] = {}
        """By tube, until when a count is valid; None is all tubes."""

    def of_tube(self, connection: Connection, tube: str) -> TubeCounts:
        """The jobs of a tube in each state."""
        return self._count(tube, lambda: jobs.tube_counts(connection, tube))

    def of_all(self, connection: Connection) -> TubeCounts:
        """The jobs of all tubes in each state."""
        return self._count(None, lambda: jobs.cluster_counts(connection))

    def _count(self, tube: str | None, count: Callable[[], TubeCounts]) -> TubeCounts:
        began = time.monotonic()
        until, kept = self._kept.pop(tube, (0.0, None))
        if kept is not None and began < until:
            self._kept[tube] = (until, kept)
            return kept
        counts = count()
        now = time.monotonic()
        if counts.jobs > FEW and now - began > QUICK:
            self._kept = {name: kept for name, kept in self._kept.items() if kept[0] > now}
            self._kept[tube] = (now + min(VALID_FOR * (now - began), LONGEST), counts)
        return counts
