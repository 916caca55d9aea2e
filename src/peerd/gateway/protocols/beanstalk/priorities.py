"""Priorities: beanstalkd's are 0 (most urgent) to 2^32-1; those of tasks grow with the urgency."""

from __future__ import annotations

from typing import Final

NEUTRAL: Final = 65_536
"""The priority of beanstalkd's clients that is 0 in the table: the default of several of them."""
LARGEST: Final = 2**32 - 1


def to_task_priority(priority: int) -> int:
    """The priority of a task, from that of a client.

    >>> to_task_priority(65_536), to_task_priority(0)
    (0, 65536)
    """
    return NEUTRAL - priority


def to_client_priority(priority: int) -> int:
    """The priority that clients see, from that of a task, which may be more urgent than any of theirs.

    >>> to_client_priority(0), to_client_priority(10**6)
    (65536, 0)
    """
    return min(max(NEUTRAL - priority, 0), LARGEST)
