"""Reduces a failing plan: leaves out all that the failure does not need.

Delta debugging (Zeller and Hildebrandt, 'Simplifying and isolating failure-inducing input', 2002) over the happenings,
then fewer nodes, processes and executor slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tests.simulation.plan import PlannedEvent, SimulationPlan

Fails = Callable[[SimulationPlan], bool]


def shrink(plan: SimulationPlan, fails: Fails, tries: int = 400) -> SimulationPlan:
    """The smallest plan found that fails as this one does."""
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


def _smaller(plan: SimulationPlan) -> Iterator[SimulationPlan]:
    size = len(plan.events)
    part = size
    while part >= 1:
        for begin in range(0, size, part):
            yield _with(plan, plan.events[:begin] + plan.events[begin + part :])
        part //= 2
    for field in ("nodes", "workers", "executor_slots", "gateways", "row_workers", "clients"):
        for value in range(1, getattr(plan, field)):
            yield msgspec.structs.replace(plan, **{field: value})
    for number in range(len(plan.limits)):
        yield msgspec.structs.replace(plan, limits=plan.limits[:number] + plan.limits[number + 1 :])
    last = plan.events[-1].at if plan.events else 0.0
    if last < plan.seconds:
        yield msgspec.structs.replace(plan, seconds=last)


def _with(plan: SimulationPlan, events: tuple[PlannedEvent, ...]) -> SimulationPlan:
    return msgspec.structs.replace(plan, events=events)
