"""Ticks: each is fired once, by any node and with any clock, or is recorded as missed."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from peerd.domain.errors import ScheduleNotFound
from peerd.domain.schedule import FireTick, RunStatus, decide_tick
from peerd.store import schedules
from peerd.store.outcomes.recording import database_now
from peerd.testing import eventually
from tests.store.schedule_steps import clock, declare, fire, let_be_due, runs, schedule
from tests.store.world import World, at_once


def test_of_many_agents_that_fire_a_tick_one_does(world: World) -> None:
    given = schedule()
    names = [f"node-{number}" for number in range(4)]
    for name in names:
        declare(world, given, name)
    for _ in range(5):
        let_be_due(world)
        fired = at_once([partial(fire, world, given, name) for name in names])
        assert len([run for run in fired if run is not None]) <= 1
    for name in names:
        fire(world, given, name)
    ticks = Counter(run.tick_at for run in runs(world))
    assert len(ticks) == 5
    assert set(ticks.values()) == {1}
    assert clock(world).turn == 6, "one for its definition, and one for each tick"


def test_a_node_whose_clock_is_ahead_cannot_fire_early(world: World) -> None:
    given = schedule()
    declare(world, given)
    found = clock(world)
    assert found.next_at is not None
    assert found.anchor_at is not None
    ahead = decide_tick(given, found.next_at, found.anchor_at, found.next_at + timedelta(seconds=1), "")
    assert isinstance(ahead, FireTick)
    assert world.run(schedules.fire_tick, found, given, ahead) is None
    assert runs(world) == []
    assert clock(world) == found


def test_ticks_of_an_interval_keep_to_their_anchor_however_late_they_are_fired(world: World) -> None:
    given = schedule(interval=0.1, overlap="allow")
    declare(world, given)
    anchor = clock(world).anchor_at
    assert anchor is not None
    for _ in range(3):
        eventually(lambda: fire(world, given), every=0.03)  # at some moment after the tick
    for run in runs(world):
        assert (run.tick_at - anchor) % timedelta(seconds=0.1) == timedelta()


def test_each_node_has_a_clock_of_its_own_but_for_the_cluster(world: World) -> None:
    given = schedule(type="worker")
    for node in ("a", "b"):
        declare(world, given, node)
        let_be_due(world, node_id=world.node(node))
        run = fire(world, given, node, world.node(node))
        assert run is not None
        assert run.node_id == world.node(node)
    assert clock(world).next_at is None
    assert len(runs(world)) == 2


def test_a_tick_that_is_too_late_is_recorded_as_missed(world: World) -> None:
    given = schedule(cron="0 0 1 1 *")
    declare(world, given)
    let_be_due(world, 3600)
    run = fire(world, given)
    assert run is not None
    assert (run.status, run.finished_at is not None) == (RunStatus.MISSED, True)
    assert "late" in (run.error or "")
    nightly = schedule(cron="0 0 1 1 *", misfire="run_once")
    declare(world, nightly)
    let_be_due(world, 3600)
    run = fire(world, nightly)
    assert run is not None
    assert run.status is RunStatus.WAITING


def test_a_disabled_schedule_skips_its_ticks(world: World) -> None:
    given = schedule()
    declare(world, given)
    world.run(schedules.set_schedule_disabled, "s", disabled=True)
    let_be_due(world, 3600)
    seen = clock(world)
    assert seen.disabled
    now = world.read(database_now)
    assert world.run(schedules.skip_tick, seen, given, now)
    found = clock(world)
    assert found.next_at is not None
    assert found.next_at > now
    assert runs(world) == []
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'x'; known are: s"):
        world.run(schedules.set_schedule_disabled, "x", disabled=True)
