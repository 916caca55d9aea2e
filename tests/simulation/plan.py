"""What a run is made of. Drawn from a seed; shrunk by leaving out what a failure does not need."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

FAULTS: Final = {
    # between two calls
    "kill a process": 8, "kill a worker": 6, "kill a node": 3, "kill a master": 3, "stop a node": 3,
    "recycle a worker": 2, "freeze a process": 6, "freeze a node": 3, "let a node sleep": 2, "begin a second life": 1,
    "database away": 4, "step the clock": 4, "lock a row": 4,
    # of a call: of the next one, or of the next that writes an outcome, or that writes at all
    "lose the answer": 8, "delay the answer": 5, "fail the call": 5, "let the call come late": 4,
    "freeze in the answer": 5, "kill in the answer": 5, "kill before the call": 4, "kill, and the call comes late": 4,
}  # fmt: skip
USER_ACTIONS: Final = {
    "enqueue": 20, "insert by hand": 3, "cancel": 4, "retry": 3, "move": 3, "move by hand": 2, "delete": 2,
    "pause": 1, "resume": 1, "drain": 1, "undrain": 1,
}  # fmt: skip
ENQUEUING: Final = ("enqueue", "insert by hand")
HANDLERS: Final = {
    "quick": 10, "long": 6, "flaky": 4, "snoozy": 2, "stubborn": 3, "blocking": 2, "poison": 1, "parent": 2,
}  # fmt: skip
QUEUES: Final = ("q", "r")
KEYS: Final = "keys"
VERSIONS: Final = "versions"
CLIENTS: Final = "clients"
TUBE: Final = "t"
CLIENT_FAULTS: Final = {"kill a gateway": 6, "freeze a gateway": 4, "recycle a gateway": 2, "kill a node": 1}
MAX_UPDATE: Final = 60.0
"""Seconds of silence after which a holder loses what it holds."""
ONLY_NEW: Final = ("comes", "grows")
"""Handlers whose tasks need the new code: one is not in the old code, one has an argument more."""
WITHOUT: Final = 0.7
"""How often a run has no queue clients, or the same code on all nodes."""
NODES: Final = "abcd"
WITHOUT_KEYS: Final = 0.6
LIMITED: Final = ("*", "a", "")


class PlannedEvent(msgspec.Struct, frozen=True):
    """A fault or an action by hand at a moment (in seconds of virtual time).

    ``target`` and ``extent`` are numbers between 0 and 1, which choose among what is there when it happens.
    """

    at: float
    what: str
    target: float
    extent: float
    handler: str = ""


class PlannedLimit(msgspec.Struct, frozen=True):
    queue: str
    key: str
    """Empty for the queue as a whole, ``*`` for each of its keys."""
    running: int | None = None
    starts: int | None = None
    period: float | None = None


class SimulationPlan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    nodes: int
    workers: int
    executor_slots: int
    seconds: float
    """Of virtual time, after which nothing goes wrong any more."""
    events: tuple[PlannedEvent, ...]
    keys: tuple[str | None, ...] = (None,)
    limits: tuple[PlannedLimit, ...] = ()
    old_nodes: int = 0
    gateways: int = 0
    row_workers: int = 0
    clients: int = 0


def draw_plan(seed: int, focus: tuple[str, ...] = ()) -> SimulationPlan:
    """The plan of a seed: the same for the same seed, on every machine.

    Each plan has a few kinds of faults, acts and handlers, and those often: what shows only together is met sooner so
    than where everything may happen at any time (Groce and others, 'Swarm testing', 2012).

    >>> draw_plan(7) == draw_plan(7)
    True
    """
    random = Random(seed)
    focus_on_load = tuple(name for name in focus if name not in (KEYS, VERSIONS, CLIENTS))
    seconds = random.choice((15.0, 30.0, 60.0, 90.0, 150.0))
    several = ((FAULTS, 4), (USER_ACTIONS, 3), (HANDLERS, 3))
    faults, acts, handlers = (_some(random, kinds, most, focus_on_load) for kinds, most in several)
    events = [
        *(_draw_event(random, seconds / 2, {"enqueue": 1}, handlers) for _ in range(random.randint(1, 6))),
        *(_draw_event(random, seconds, faults, handlers) for _ in range(random.choice((0, 1, 2, 3, 4, 6, 8)))),
        *(_draw_event(random, seconds, acts, handlers) for _ in range(random.choice((0, 0, 2, 4, 8)))),
    ]
    plan = SimulationPlan(
        seed=seed,
        nodes=random.choice((1, 1, 2, 2, 2, 3)),
        workers=random.choice((1, 1, 1, 2)),
        executor_slots=random.choice((1, 2, 3)),
        seconds=seconds,
        events=tuple(sorted(events, key=lambda one: one.at)),
        **_draw_limits(Random(f"limits {seed}"), always=KEYS in focus),
    )
    for name, extend in ((VERSIONS, _with_versions), (CLIENTS, _with_clients)):
        random = Random(f"{name} {seed}")
        if name in focus or (not focus and random.random() > WITHOUT):
            plan = extend(plan, random)
    return plan


def _with_versions(plan: SimulationPlan, random: Random) -> SimulationPlan:
    events = [
        msgspec.structs.replace(one, handler=random.choice(ONLY_NEW))
        if one.what in ENQUEUING and random.random() < 0.5
        else one
        for one in plan.events
    ]
    nodes = max(plan.nodes, 2)
    old_nodes = random.randint(1, nodes - 1)
    return msgspec.structs.replace(plan, events=tuple(events), nodes=nodes, old_nodes=old_nodes)


def _with_clients(plan: SimulationPlan, random: Random) -> SimulationPlan:
    faults = [_draw_event(random, plan.seconds, CLIENT_FAULTS, {}) for _ in range(random.choice((0, 1, 2, 4)))]
    return msgspec.structs.replace(
        plan,
        events=tuple(sorted((*plan.events, *faults), key=lambda one: one.at)),
        gateways=random.choice((1, 1, 2)),
        clients=random.randint(2, 6),
        row_workers=random.choice((0, 1)),
    )


def _draw_limits(random: Random, *, always: bool) -> dict[str, Any]:
    if not always and random.random() < WITHOUT_KEYS:
        return {}
    keys = random.choice(((None, "a"), (None, "a", "b"), ("a", "b", "c"), ("a",), (None,)))
    kinds = random.sample(LIMITED, random.randint(1, 3))
    limits = [_draw_limit(random, queue, key) for queue in QUEUES for key in kinds if random.random() < 0.8]
    return {"keys": keys, "limits": tuple(limits)}


def _draw_limit(random: Random, queue: str, key: str) -> PlannedLimit:
    """A limit that lets all tasks of a run end in time."""
    running = random.choice((1, 1, 2, 3))
    starts, period = random.choice(((1, 3.0), (1, 20.0), (2, 30.0), (3, 20.0)))
    kind = random.choice(("running", "running", "running", "rate", "both"))
    rate = (None, None) if kind == "running" else (starts, period)
    return PlannedLimit(queue, key, None if kind == "rate" else running, *rate)


def _some(random: Random, kinds: dict[str, int], most: int, focus: tuple[str, ...]) -> dict[str, int]:
    kinds = {name: weight for name, weight in kinds.items() if name in focus} or kinds
    names = random.choices(list(kinds), weights=list(kinds.values()), k=random.randint(1, most))
    return {name: kinds[name] for name in sorted(set(names))}


def _draw_event(random: Random, seconds: float, kinds: dict[str, int], handlers: dict[str, int]) -> PlannedEvent:
    what = random.choices(list(kinds), weights=list(kinds.values()))[0]
    handler = random.choices(list(handlers), weights=list(handlers.values()))[0] if what in ENQUEUING else ""
    at = round(random.uniform(0.0, seconds), 3)
    return PlannedEvent(at, what, round(random.random(), 6), round(random.random(), 6), handler)
