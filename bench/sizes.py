"""How much a run measures."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks for each measurement, by batch; and how often.

    ``enqueue``, ``hold`` (claim and complete) and ``drain`` give tasks by batch (drain: by tasks at once).
    """

    rounds: int
    enqueue: Mapping[int, int]
    hold: Mapping[int, int]
    drain: Mapping[int, int]
    pick_ups: int


FULL = Sizes(
    rounds=5,
    enqueue={1: 200, 1000: 10_000},
    hold={1: 200, 10: 1_500, 100: 6_000},
    drain={10: 2_000, 100: 5_000},
    pick_ups=60,
)
QUICK = Sizes(
    rounds=3,
    enqueue={1: 60, 1000: 4_000},
    hold={1: 60, 10: 500, 100: 2_000},
    drain={10: 500, 100: 1_500},
    pick_ups=8,
)
TINY = Sizes(rounds=1, enqueue={1: 3, 1000: 20}, hold={1: 3, 10: 20}, drain={10: 30}, pick_ups=1)
"""To see that it works, as the tests do; its figures say nothing."""

BY_NAME = {"full": FULL, "quick": QUICK, "tiny": TINY}
