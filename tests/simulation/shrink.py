"""Makes a failing plan small: leaves out what the failure does not need.

Delta debugging (Zeller and Hildebrandt, 'Simplifying and isolating failure-inducing input', 2002) over the happenings,
then fewer nodes, processes and places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tests.simulation.plan import Happening, Plan

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, tries: int = 400) -> Plan:
    """The smallest plan found that fails as this one does.

    Args:
        plan: it fails.
        fails: whether another one fails alike.
        tries: plans to try at the most.

    >>> from tests.simulation.plan import draw_plan
    >>> small = shrink(draw_plan(1), lambda plan: any(one.what == "enqueue" for one in plan.happenings))
    >>> [one.what for one in small.happenings], small.nodes, small.workers, small.places
    (['enqueue'], 1, 1, 1)
    """
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(plan):
            left -= 1
            if fails(smaller):
                plan, progress = smaller, True
                break
            if left <= 0:
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans a step smaller, the boldest first."""
    size = len(plan.happenings)
    part = size
    while part >= 1:
        for begin in range(0, size, part):
            yield _with(plan, plan.happenings[:begin] + plan.happenings[begin + part :])
        part //= 2
    for field in ("nodes", "workers", "places"):
        for value in range(1, getattr(plan, field)):
            yield msgspec.structs.replace(plan, **{field: value})
    for number in range(len(plan.limits)):
        yield msgspec.structs.replace(plan, limits=plan.limits[:number] + plan.limits[number + 1 :])
    last = plan.happenings[-1].at if plan.happenings else 0.0
    if last < plan.seconds:
        yield msgspec.structs.replace(plan, seconds=last)


def _with(plan: Plan, happenings: tuple[Happening, ...]) -> Plan:
    return msgspec.structs.replace(plan, happenings=happenings)
