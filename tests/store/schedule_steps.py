"""Helpers of the tests of schedules: declare one, make it due, fire its tick, take a run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from peerd.domain.schedule import Schedule, WaitForTick, decide_tick
from peerd.store import schedule_runs, schedules
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun
from peerd.store.schedules import CLUSTER_ROW, ScheduleRow, ScheduleSnapshot
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.tables import schedules as schedule_table
from peerd.store.schema.types import seconds_from_now
from tests.store.world import World

SILENCE = 10.0
PROCESS = ("w-1", 4711)


def schedule(**given: Any) -> Schedule:
    trigger = {} if {"interval", "cron", "immediate"} & set(given) else {"interval": 60.0}
    what = {} if "queue" in given else {"run": "m:f"}
    return Schedule(**{"name": "s", **what, **trigger, **given})


def identity(world: World, node: str = "a") -> NodeIdentity:
    return NodeIdentity(world.node(node), world.incarnation(node))


def declare(world: World, given: Schedule, node: str = "a") -> bool:
    return world.run(schedules.declare_schedule, given, identity(world, node), SILENCE)


def declared(world: World, *nodes: str, **how: Any) -> Schedule:
    """A schedule that nodes have declared."""
    given = schedule(**how)
    for node in nodes or ("a",):
        declare(world, given, node)
    return given


def snapshot(world: World, *names: str, node: str = "a") -> ScheduleSnapshot:
    return world.read(schedules.read_snapshot, names or ("s",), identity(world, node))


def clock(world: World, node_id: int = CLUSTER_ROW, node: str = "a") -> ScheduleRow:
    return snapshot(world, node=node).rows["s", node_id]


def let_be_due(world: World, seconds: float = 0.0, node_id: int = CLUSTER_ROW) -> None:
    """Backdate the next tick."""
    row = sa.update(schedule_table).where(schedule_table.c.node_id == node_id)
    world.execute(row.values(next_at=seconds_from_now(-seconds)))


def fire(world: World, given: Schedule, node: str = "a", node_id: int = CLUSTER_ROW) -> ScheduleRun | None:
    """Read the schedules, decide and fire, as an agent does."""
    seen = snapshot(world, node=node)
    found = seen.rows["s", node_id]
    assert found.anchor_at is not None
    decided = decide_tick(given, found.next_at, found.anchor_at, seen.now, "")
    if isinstance(decided, WaitForTick):
        return None
    return world.run(schedules.fire_tick, found, given, decided)


def take(
    world: World, run: ScheduleRun, given: Schedule, node: str = "a", *processes: tuple[str, int]
) -> list[ScheduleRun]:
    return world.run(schedule_runs.claim_run, run, given, identity(world, node), processes or [PROCESS])


def runs(world: World) -> list[ScheduleRun]:
    return world.read(schedule_runs.list_runs)[::-1]


def silence_node(world: World, node: str, seconds: float) -> None:
    row = sa.update(node_table).where(node_table.c.name == node)
    world.execute(row.values(checked_at=seconds_from_now(-seconds)))
