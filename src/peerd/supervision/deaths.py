"""The deaths that the agent has not acknowledged yet. Each is told again to every new agent until it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAXIMUM: Final = 10_000
"""How many are kept while no agent takes them; beyond it the oldest are left to the sweep of frozen tasks."""


class Deaths:
    """A small ledger.

    Example:
        >>> deaths = Deaths()
        >>> deaths.record({"slot": "video-1", "pid": 17})
        {'type': 'death', 'id': 1, 'slot': 'video-1', 'pid': 17}
        >>> deaths.acknowledge(1)
        >>> deaths.unacknowledged
        []
    """

    def __init__(self) -> None:
        self._last = 0
        self._kept: dict[int, Mapping[str, object]] = {}

    def record(self, death: Mapping[str, object]) -> Mapping[str, object]:
        """Keep a death; return the message that tells it."""
        self._last += 1
        message = {"type": "death", "id": self._last, **death}
        self._kept[self._last] = message
        if len(self._kept) > MAXIMUM:
            del self._kept[next(iter(self._kept))]
        return message

    def acknowledge(self, number: object) -> None:
        """Forget a death that the agent has dealt with; an unknown number is no error."""
        if isinstance(number, int):
            self._kept.pop(number, None)

    @property
    def unacknowledged(self) -> list[Mapping[str, object]]:
        """The messages of all that are kept, oldest first."""
        return list(self._kept.values())
