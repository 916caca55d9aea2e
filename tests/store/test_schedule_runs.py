"""Runs of schedules: each is taken once, is recorded, and ends, also when its process or its node is gone."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.errors import RunNotFound
from peerd.domain.schedule import RunStatus, Schedule
from peerd.store import schedule_runs
from peerd.store.nodes import nodes
from peerd.store.schedule_runs import ScheduleRun
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.tables import processes as process_table
from peerd.store.schema.tables import schedule_runs as run_table
from tests.store.schedule_steps import (
    PROCESS,
    SILENCE,
    declared,
    fire,
    identity,
    let_be_due,
    runs,
    silence_node,
    snapshot,
    take,
)
from tests.store.world import World, at_once


def test_a_waiting_run_is_taken_by_one_of_many(world: World) -> None:
    names = [f"node-{number}" for number in range(4)]
    given = declared(world, *names)
    run = world.run(schedule_runs.request_run, "s", "[1]")
    assert all(snapshot(world, node=name).waiting == [run] for name in names)
    taken = at_once([partial(take, world, run, given, name) for name in names])
    [[won]] = [one for one in taken if one]
    assert (won.status, won.slot, won.pid, won.args) == (RunStatus.RUNNING, *PROCESS, "[1]")
    assert won.started_at is not None
    assert sum(len(snapshot(world, node=name).running) for name in names) == 1


def test_a_run_of_all_processes_has_a_row_for_each(world: World) -> None:
    given = declared(world, type="all")
    run = world.run(schedule_runs.request_run, "s")
    taken = take(world, run, given, "a", ("w-1", 1), ("w-2", 2), ("w-3", 3))
    assert [(one.slot, one.pid, one.tick_at) for one in taken] == [
        (f"w-{number}", number, run.tick_at) for number in (1, 2, 3)
    ]
    assert taken == snapshot(world).running
    for one in taken[1:]:
        world.run(schedule_runs.end_run, one.id, RunStatus.DONE)
    assert world.run(schedule_runs.release_run, taken[0], for_any_node=True)
    assert len(snapshot(world).waiting) == 1, "its process ended before it received the run"


def test_a_tick_that_overlaps_an_earlier_run_is_skipped_queued_or_allowed(world: World) -> None:
    for overlap, expected in (("skip", "skipped"), ("queue", "waiting"), ("allow", "waiting")):
        world.empty()
        given = declared(world, overlap=overlap)
        [running] = take(world, fired(world, given), given)
        second = fired(world, given)
        assert second.status == expected, overlap
        if overlap == "queue":
            assert take(world, second, given) == []
            assert world.run(schedule_runs.end_run, running.id, RunStatus.DONE)
        assert overlap == "skip" or take(world, second, given), overlap


def fired(world: World, given: Schedule) -> ScheduleRun:
    """The run of a tick that is due."""
    let_be_due(world)
    run = fire(world, given)
    assert run is not None
    return run


def test_of_nodes_that_take_different_waiting_runs_at_once_one_does(world: World) -> None:
    given = declared(world, "a", "b", overlap="queue")
    for _ in range(3):
        waiting = [fired(world, given) for _ in range(2)]
        calls = [partial(take, world, run, given, name) for run, name in zip(waiting, ("a", "b"), strict=True)]
        assert sorted(map(len, at_once(calls))) == [0, 1]
        for run in runs(world):
            world.run(schedule_runs.end_run, run.id, RunStatus.DONE)
            world.run(schedule_runs.end_run, run.id, RunStatus.REFUSED, "the end of the test", was=run.status)


def test_a_run_ends_once(world: World) -> None:
    given = declared(world)
    [run] = take(world, world.run(schedule_runs.request_run, "s"), given)
    assert world.run(schedule_runs.end_run, run.id, RunStatus.FAILED, "boom\x00", "x" * 100_000)
    assert not world.run(schedule_runs.end_run, run.id, RunStatus.DONE)
    found = world.read(schedule_runs.get_run, run.id)
    assert (found.status, found.error) == (RunStatus.FAILED, "boom\N{REPLACEMENT CHARACTER}")
    assert len(found.traceback or "") <= schedule_runs.MAX_ERROR_LENGTH
    with pytest.raises(RunNotFound):
        world.read(schedule_runs.get_run, run.id + 1)


def test_a_task_is_enqueued_once_for_a_tick_and_the_next_waits_for_its_end(world: World) -> None:
    given = declared(world, "a", "b", queue="q", task="t", body='{"a":1}', limit_key="acme")
    run = fired(world, given)
    calls = [partial(world.run, schedule_runs.enqueue_run, run, given, identity(world, name)) for name in ("a", "b")]
    [done] = [one for one in at_once(calls) if one is not None]
    assert done.status is RunStatus.ENQUEUED
    assert done.task_id is not None
    task = world.get(done.task_id)
    assert (task.queue, task.name, task.body, task.limit_key) == ("q", "t", '{"a":1}', "acme")
    assert world.count() == 1
    skipped = fired(world, given)
    assert skipped.status is RunStatus.SKIPPED
    world.set(task.id, status="done")
    following = fired(world, given)
    assert following.status is RunStatus.WAITING


def test_a_run_whose_node_is_gone_is_lost_and_run_again_by_another_where_the_policy_decides(world: World) -> None:
    for misfire in ("skip", "run_once"):
        world.empty()
        given = declared(world, "a", "b", misfire=misfire)
        run = fired(world, given)
        take(world, run, given, "a")
        assert world.run(schedule_runs.mark_lost_runs, SILENCE) == []
        silence_node(world, "a", SILENCE + 1)
        assert world.run(schedule_runs.mark_lost_runs, SILENCE) == [run.id]
        assert world.read(schedule_runs.get_run, run.id).status is RunStatus.LOST
        assert not world.run(schedule_runs.end_run, run.id, RunStatus.DONE), "it thaws, and its write is refused"
        again = [(one.tick_at, one.number, one.status) for one in runs(world) if one.origin == "again"]
        assert again == ([(run.tick_at, 2, RunStatus.WAITING)] if misfire == "run_once" else [])
        assert not again or take(world, runs(world)[-1], given, "b")


def test_a_run_is_not_lost_while_its_process_sends_heartbeats_though_its_node_has_no_agent(world: World) -> None:
    given = declared(world)
    claimer = world.claimer(pid=PROCESS[1])
    run = world.run(schedule_runs.request_run, "s")
    take(world, run, given)
    silence_node(world, "a", SILENCE + 1)
    assert world.run(schedule_runs.mark_lost_runs, SILENCE) == []
    silent = sa.update(process_table).where(process_table.c.id == claimer.process_id)
    world.execute(silent.values(checked_at=seconds_from_now(-SILENCE - 1)))
    assert world.run(schedule_runs.mark_lost_runs, SILENCE) == [run.id]


def test_a_run_of_an_earlier_incarnation_is_lost_when_the_new_one_is_old_enough(world: World) -> None:
    given = declared(world)
    run = world.run(schedule_runs.request_run, "s")
    take(world, run, given)
    world.run(nodes.register_incarnation, "a", "another life", replaces=world.incarnation("a"))
    assert world.run(schedule_runs.mark_lost_runs, SILENCE) == []
    began = sa.update(node_table).values(started_at=seconds_from_now(-SILENCE - 1))
    world.execute(began)
    assert world.run(schedule_runs.mark_lost_runs, SILENCE) == [run.id]


def test_ended_runs_are_purged_by_their_age_and_their_number(world: World) -> None:
    given = declared(world)
    for _ in range(5):
        [run] = take(world, world.run(schedule_runs.request_run, "s"), given)
        world.run(schedule_runs.end_run, run.id, RunStatus.DONE)
    waiting = world.run(schedule_runs.request_run, "s")
    assert world.run(schedule_runs.purge_runs, 10, 3600.0) == 0
    assert world.run(schedule_runs.purge_runs, 3, 3600.0) == 3
    assert len(runs(world)) == 3
    old = sa.update(run_table).values(finished_at=seconds_from_now(-7200))
    world.execute(old.where(run_table.c.status == "done"))
    assert world.run(schedule_runs.purge_runs, 10, 3600.0) == 2
    assert runs(world) == [waiting]
