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
    rounds=7,
    enqueue={1: 500, 1000: 20_000},
    hold={1: 400, 10: 3_000, 100: 12_000},
    drain={10: 4_000, 100: 8_000},
    pick_ups=100,
)
QUICK = Sizes(
    rounds=3,
    enqueue={1: 100, 1000: 5_000},
    hold={1: 100, 10: 800, 100: 3_000},
    drain={10: 1_000, 100: 2_000},
    pick_ups=12,
)
TINY = Sizes(rounds=1, enqueue={1: 3, 1000: 20}, hold={1: 3, 10: 20}, drain={10: 30}, pick_ups=1)
"""To see that it works, as the tests do; its figures say nothing."""

BY_NAME = {"full": FULL, "quick": QUICK, "tiny": TINY}
