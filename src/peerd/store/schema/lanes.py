"""Lanes: the parts of a queue's pending tasks, and their numbers.

A lane has the tasks for any node (0), those pinned to one node (its id), or those of either that are quarantined
because they have crashed a process (below 0). The first tasks of a lane are an exact range of the claim's index.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

Lanes = tuple[int, ...]
LANE: Final = "CASE WHEN crashes > 0 THEN -1 - COALESCE(node_id, 0) ELSE COALESCE(node_id, 0) END"
"""The value of the column ``lane`` of a task."""


def quarantined_lane(lane: int) -> int:
    """The lane of the tasks of a lane that have crashed a process; of such a lane, the one that they would be in.

    >>> quarantined_lane(0), quarantined_lane(7), quarantined_lane(-8)
    (-1, -8, 7)
    """
    return -1 - lane


@lru_cache(maxsize=64)
def lanes_of_node(node_id: int) -> Lanes:
    """The lanes of tasks that a process of this node may run beside others."""
    return 0, node_id


@lru_cache(maxsize=64)
def quarantined_lanes(node_id: int) -> Lanes:
    """The lanes of tasks that a process of this node must run alone."""
    return tuple(map(quarantined_lane, lanes_of_node(node_id)))


@lru_cache(maxsize=64)
def all_lanes(node_id: int) -> Lanes:
    """The lanes from which a queue client may reserve.

    No handler runs in the process that reserves for a client, so a quarantined task endangers nothing in it.
    """
    return lanes_of_node(node_id) + quarantined_lanes(node_id)
