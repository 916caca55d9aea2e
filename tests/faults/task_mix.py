"""What the load consists of: mostly short tasks, and some of everything that is hard. The same seed, the same tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from tests.faults.jobs import ROWS, TIMEOUTS
from tests.faults.versions import BOTH, known_to

ATTEMPTS: Final = 40
"""So many that a task whose processes are killed around it still ends as it should."""
POISON_ATTEMPTS: Final = 3
MANUAL_ACTIONS: Final = ("cancel", "retry", "move", "move by SQL")

MakeArguments = Callable[[random.Random, float], dict[str, Any]]


class PlannedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is to be enqueued, and what a person will do to it."""

    handler: str
    args: dict[str, Any]
    options: dict[str, Any] = {}
    unique: bool = False
    manual_action: str = ""


def _brief(rng: random.Random, max_update: float) -> dict[str, Any]:
    return {"seconds": round(rng.random() * 0.05, 3)}


def _some(longest: float, shortest: float = 0.0) -> MakeArguments:
    return lambda rng, max_update: {"seconds": round(rng.uniform(shortest, longest), 2)}


def _longer_than_max_update(rng: random.Random, max_update: float) -> dict[str, Any]:
    """Longer than a task may go untouched."""
    return {"seconds": round(max_update * rng.uniform(1.1, 1.7), 1)}


def _times(most: int, **more: Any) -> MakeArguments:
    return lambda rng, max_update: {"times": rng.randint(1, most), **more}


def _no_arguments(**args: Any) -> MakeArguments:
    return lambda rng, max_update: dict(args)


MIX: Final[tuple[tuple[int, str, MakeArguments], ...]] = (
    (6800, "short", _brief),
    (600, "rows", _brief),
    (60, "rows", _times(2, seconds=0.01)),
    (400, "thread", _brief),
    (200, "deaf", _brief),
    (300, "failing", _times(2)),
    (150, "snoozing", _times(2)),
    (100, "spawner", _no_arguments()),
    (100, "parent", _no_arguments(children=2)),
    (60, "stubborn", _no_arguments(seconds=3.0, lingers=0.7)),
    (50, "withdraws", _no_arguments()),
    (50, "gives_up", _no_arguments()),
    (150, "long", _some(5.0, 1.0)),
    (50, "thread", _some(4.0, 1.0)),
    (30, "deaf", _some(3.0, 1.0)),
    (60, "blocking", _some(0.3)),
    (50, "program", _some(0.4)),
    (20, "failing_program", _times(1)),
    (40, "forking", _times(1)),
    (40, "terminating", _no_arguments()),
    (5, "long", _longer_than_max_update),
    (5, "thread", _longer_than_max_update),
    (3, "deaf", _longer_than_max_update),
    (3, "rows", _longer_than_max_update),
    (3, "program", _longer_than_max_update),
    (2, "blocking", _longer_than_max_update),
    (15, "poison", _no_arguments()),
    (200, "comes", _no_arguments()),
    (150, "goes", _no_arguments()),
    (150, "grows", _no_arguments()),
    (150, "grows", _no_arguments(by=2)),
    (30, "comes_apart", _no_arguments()),
)
"""How many of ten thousand, about; the handler; and how its arguments are made."""


def plan(seed: int, tasks: int, *, max_update: float, nodes: Sequence[str] = ()) -> Iterator[PlannedTask]:
    """So many tasks of the mix.

    Args:
        seed: the same seed gives the same tasks.
        tasks: how many.
        max_update: of the nodes' managers, seconds; a few tasks run for longer than that.
        nodes: names of nodes; where there are any, a few tasks are pinned to them. Whole rows are not: some nodes
            may have no worker for them; nor what one version of the code alone knows.
    """
    rng = random.Random(seed)
    weights = [weight for weight, _, _ in MIX]
    for _ in range(tasks):
        [(_, handler, make)] = rng.choices(MIX, weights)
        yield _vary(rng, handler, make(rng, max_update), nodes)


def _vary(rng: random.Random, handler: str, args: dict[str, Any], nodes: Sequence[str]) -> PlannedTask:
    options: dict[str, Any] = {"max_attempts": POISON_ATTEMPTS if handler == "poison" else ATTEMPTS}
    if handler in TIMEOUTS:
        options["timeout"] = TIMEOUTS[handler]
    if handler == "short" and rng.random() < 0.01:
        options["finish_in"] = round(rng.uniform(0.1, 2.0), 2)
    if "finish_in" not in options and rng.random() < 0.05:
        options["start_in"] = round(rng.uniform(0.1, 2.0), 2)
    if rng.random() < 0.1:
        options["priority"] = rng.randint(1, 20)
    may_be_pinned = handler not in ("poison", ROWS) and known_to(handler, args) == BOTH
    if nodes and may_be_pinned and rng.random() < 0.03:
        options["node"] = rng.choice(nodes)
    unique = handler == "short" and rng.random() < 0.03
    by_hand = handler in ("long", "thread", "gives_up", "stubborn") and rng.random() < 0.4
    return PlannedTask(
        handler=handler,
        args=args,
        options=options,
        unique=unique,
        manual_action=rng.choice(MANUAL_ACTIONS) if by_hand else "",
    )
