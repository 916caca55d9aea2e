"""Short words for what the tests of schedules do: declare one, let it be due, fire its tick, take a run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peerd.domain.schedule import Schedule, Wait, decide
from peerd.store import schedule_runs, schedules
from peerd.store.schedule_runs import Here, Run
from peerd.store.schedules import THE_CLUSTER, Clock, Sight
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.tables import schedules as schedule_table
from tests.store.world import World

SILENCE = 10.0
PROCESS = ("w-1", 4711)


def schedule(**given: Any) -> Schedule:
    trigger = {} if {"interval", "cron", "immediate"} & set(given) else {"interval": 60.0}
    what = {} if "queue" in given else {"run": "m:f"}
    return Schedule(**{"name": "s", **what, **trigger, **given})


def here(world: World, node: str = "a") -> Here:
    return Here(world.node(node), world.incarnation(node))


def declare(world: World, given: Schedule, node: str = "a") -> bool:
    return world.store.run(schedules.declare, given, here(world, node), SILENCE)


def sight(world: World, *names: str, node: str = "a") -> Sight:
    return world.store.read(schedules.look, names or ("s",), here(world, node))


def clock(world: World, node_id: int = THE_CLUSTER, node: str = "a") -> Clock:
    return sight(world, node=node).clocks["s", node_id]


def let_be_due(world: World, seconds: float = 0.0, node_id: int = THE_CLUSTER) -> None:
    """Let the next tick have come so long ago."""
    row = sa.update(schedule_table).where(schedule_table.c.node_id == node_id)
    world.store.run(lambda c: c.execute(row.values(next_at=seconds_from_now(-seconds))))


def fire(world: World, given: Schedule, node: str = "a", node_id: int = THE_CLUSTER) -> Run | None:
    """Look, decide and fire, as an agent does."""
    seen = sight(world, node=node)
    found = seen.clocks["s", node_id]
    assert found.anchor_at is not None
    decided = decide(given, found.next_at, found.anchor_at, seen.now, "")
    if isinstance(decided, Wait):
        return None
    return world.store.run(schedules.tick, found, given, decided)


def take(world: World, run: Run, given: Schedule, node: str = "a", *processes: tuple[str, int]) -> list[Run]:
    return world.store.run(schedule_runs.take, run, given, here(world, node), processes or [PROCESS])


def runs(world: World) -> list[Run]:
    return world.store.read(schedule_runs.list_runs)[::-1]


def silence_node(world: World, node: str, seconds: float) -> None:
    row = sa.update(node_table).where(node_table.c.name == node)
    world.store.run(lambda c: c.execute(row.values(checked_at=seconds_from_now(-seconds))))
