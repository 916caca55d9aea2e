"""Which conditions are reported, of those that are examined again and again: when one begins, goes on, or has ended."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec


class ConditionChanges(msgspec.Struct, frozen=True):
    """What is to be reported.

    Attributes:
        present: conditions that have begun, or that were reported long ago and go on.
        ended: conditions that were reported and are over, with the seconds for which they have lasted.
    """

    present: list[str]
    ended: dict[str, float]


@dataclass(slots=True)
class OngoingConditions:
    """The conditions that hold. Each is reported at its begin, then each ``repeat_every`` seconds, then at its end.

    >>> conditions = OngoingConditions(repeat_every=900.0)
    >>> conditions.update({"video"}, 0.0)
    ConditionChanges(present=['video'], ended={})
    >>> conditions.update({"video"}, 60.0)
    ConditionChanges(present=[], ended={})
    >>> conditions.update(set(), 120.0)
    ConditionChanges(present=[], ended={'video': 120.0})
    """

    repeat_every: float
    _began: dict[str, float] = field(default_factory=dict)
    _reported: dict[str, float] = field(default_factory=dict)

    def resume(self, key: str, began: float, reported: float) -> None:
        """Go on with a condition that another one has reported.

        >>> conditions = OngoingConditions(repeat_every=900.0)
        >>> conditions.resume("video", began=0.0, reported=100.0)
        >>> conditions.update({"video"}, 999.0), conditions.update(set(), 1_100.0).ended
        (ConditionChanges(present=[], ended={}), {'video': 1100.0})
        """
        self._began[key] = began
        self._reported[key] = reported

    def update(self, found: Collection[str], now: float) -> ConditionChanges:
        """Take those that hold now, by a monotonic clock in seconds."""
        ended = {key: now - self._began.pop(key) for key in sorted(self._began.keys() - set(found))}
        for key in ended:
            del self._reported[key]
        present = [
            key for key in sorted(found) if key not in self._reported or now - self._reported[key] >= self.repeat_every
        ]
        for key in present:
            self._began.setdefault(key, now)
            self._reported[key] = now
        return ConditionChanges(present, ended)
