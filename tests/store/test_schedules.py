"""Schedules: which definition is valid, who fires a tick, and how each run is taken once, recorded and ended."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.errors import InvalidSchedule, RunNotFound, ScheduleNameTaken, ScheduleNotFound, ScheduleNotStored
from peerd.domain.schedule import FireTick, RunStatus, Schedule, decide_tick
from peerd.operate.new_schedule import build_schedule
from peerd.store import nodes, schedule_runs, schedules
from peerd.store.due import find_agent_work
from peerd.store.outcomes import database_now
from peerd.store.schedule_runs import ScheduleRun
from peerd.store.schedules import StoredSchedulesState
from peerd.store.schema.tables import nodes as node_table
from peerd.store.schema.tables import processes as process_table
from peerd.store.schema.tables import schedule_runs as run_table
from peerd.store.schema.tables import schedules as schedule_table
from peerd.store.schema.tables import stored_schedules as stored_table
from peerd.store.schema.types import now, seconds_from_now
from tests.store.schedule_steps import (
    PROCESS,
    SILENCE,
    clock,
    declare,
    declared,
    fire,
    identity,
    let_be_due,
    runs,
    schedule,
    silence_node,
    snapshot,
    take,
)
from tests.store.world import World, at_once


def leave(world: World, node: str) -> None:
    """Its next incarnation is another one."""
    world.run(nodes.deregister_node, node, world.incarnation(node))
    del world._nodes[node]


def test_the_newest_change_of_a_definition_stands_and_starting_again_changes_nothing(world: World) -> None:
    old, new = schedule(interval=60.0), schedule(interval=30.0)
    declare(world, old, "a")
    declare(world, old, "b")
    declare(world, new, "a")
    assert clock(world).schedule == new
    let_be_due(world)
    assert fire(world, old, "b") is None, "it is not its definition"
    assert fire(world, new, "a") is not None
    leave(world, "b")
    declare(world, old, "b")
    assert clock(world).schedule == new, "b has only started again"
    declare(world, old, "a")
    assert clock(world).schedule == old, "a was rolled back"


def test_when_no_process_alive_has_the_valid_definition_another_one_writes_its_own(world: World) -> None:
    old, new = schedule(interval=60.0), schedule(interval=30.0)
    declare(world, old, "b")
    declare(world, new, "a")

    def take_over() -> bool:
        return world.run(schedules.take_over_definition, old, identity(world, "b"), SILENCE)

    assert not take_over()
    silence_node(world, "a", SILENCE + 1)
    assert take_over()
    assert clock(world).schedule == old
    assert not take_over()


def test_a_changed_definition_keeps_the_clock_unless_its_ticks_differ(world: World) -> None:
    declare(world, schedule())
    before = clock(world)
    declare(world, schedule(args=[1]))
    assert (clock(world).anchor_at, clock(world).next_at) == (before.anchor_at, before.next_at)
    declare(world, schedule(interval=600.0))
    assert clock(world).next_at != before.next_at
    assert not snapshot(world).draining
    world.run(nodes.set_draining, "a", draining=True)
    assert snapshot(world).draining, "an agent sees that its node is drained"


def test_an_invalid_row_harms_nothing(world: World) -> None:
    declare(world, schedule())
    for text in ("", "null", '{"name": "s"}', "{" * 10_000):
        world.run(sa.Connection.execute, sa.update(schedule_table).values(definition=text, fingerprint="?"))
        assert clock(world).schedule is None
        declare(world, schedule())
        assert clock(world).schedule == schedule()


def test_a_schedule_that_no_node_has_any_more_is_purged(world: World) -> None:
    declare(world, schedule())
    old = sa.update(schedule_table).values(updated_at=seconds_from_now(-7200))
    world.execute(old)
    assert world.run(schedules.purge_schedules, 3600.0) == 0
    world.run(schedules.withdraw_schedule, "s", identity(world))
    assert world.run(schedules.purge_schedules, 3600.0) == 1
    assert world.read(schedules.list_schedule_rows) == []


def test_an_immediate_run_of_the_cluster_is_that_of_its_first_node_in_each_of_its_lives(world: World) -> None:
    given = schedule(immediate=True)
    assert [declare(world, given, node) for node in "aab"] == [True, False, False]
    leave(world, "a")
    assert not declare(world, given, "a"), "b has been there all the while"
    silence_node(world, "b", SILENCE + 1)
    leave(world, "a")
    assert declare(world, given, "a")
    assert [run.node_id for run in runs(world)] == [None, None]


def test_of_many_agents_that_fire_a_tick_one_does(world: World) -> None:
    names = [f"node-{number}" for number in range(4)]
    given = declared(world, *names)
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
    given = declared(world)
    found = clock(world)
    assert found.next_at is not None
    assert found.anchor_at is not None
    ahead = decide_tick(given, found.next_at, found.anchor_at, found.next_at + timedelta(seconds=1), "")
    assert isinstance(ahead, FireTick)
    assert world.run(schedules.fire_tick, found, given, ahead) is None
    assert runs(world) == []
    assert clock(world) == found


def test_a_tick_that_is_too_late_is_recorded_as_missed(world: World) -> None:
    given = declared(world, cron="0 0 1 1 *")
    let_be_due(world, 3600)
    run = fire(world, given)
    assert run is not None
    assert (run.status, run.finished_at is not None) == (RunStatus.MISSED, True)
    assert "late" in (run.error or "")


def test_a_disabled_schedule_skips_its_ticks(world: World) -> None:
    given = declared(world)
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


def tidy(name: str = "s") -> Schedule:
    return build_schedule(name, {"queue": "q", "task": "tidy", "body": {"depth": 3}, "interval": "10m"})


def create(world: World, name: str = "s") -> None:
    world.run(schedules.insert_schedule, tidy(name), "a test")


def stored_state(world: World) -> StoredSchedulesState | None:
    return world.read(find_agent_work, world.incarnation()).schedules_state


def test_what_was_created_is_what_every_node_reads_and_each_change_changes_what_the_agents_see(world: World) -> None:
    states = [stored_state(world)]
    for change in (partial(create, world), partial(create, world, "t"), partial(delete, world), partial(create, world)):
        change()
        states.append(stored_state(world))
    assert len(set(states)) == len(states)
    delete(world, "t")
    found = world.read(schedules.read_stored_schedules)
    assert (found.schedules, found.errors) == ([tidy()], {})


def delete(world: World, name: str = "s") -> None:
    world.run(schedules.delete_schedule, name)


def test_a_name_is_taken_by_a_stored_schedule_and_by_one_of_a_node(world: World) -> None:
    create(world)
    with pytest.raises(ScheduleNameTaken, match="created at run time"):
        create(world)
    declare(world, schedule(name="own"), "a")
    with pytest.raises(ScheduleNameTaken, match=r"in peerd\.toml of a"):
        create(world, "own")
    world.run(nodes.deregister_node, "a", world.incarnation("a"))
    create(world, "own")


def test_of_several_at_once_one_is_created(world: World) -> None:
    def try_to_create() -> bool:
        try:
            create(world)
        except ScheduleNameTaken:
            return False
        return True

    assert sorted(at_once([try_to_create] * 4)) == [False, False, False, True]


def test_a_deleted_schedule_leaves_no_clock_and_no_waiting_run(world: World) -> None:
    create(world)
    declare(world, tidy(), "a")
    run = world.run(schedule_runs.request_run, "s", None)
    delete(world)
    assert world.count(schedule_table) == 0
    ended = world.read(schedule_runs.get_run, run.id)
    assert (ended.status, ended.error) == (RunStatus.CANCELED, "its schedule was deleted")
    with pytest.raises(ScheduleNotFound):
        delete(world)
    declare(world, schedule(), "a")
    with pytest.raises(ScheduleNotStored, match=r"remove it from peerd\.toml"):
        delete(world)
    assert world.count(schedule_table) == 2


def test_a_node_that_has_read_a_schedule_before_its_deletion_does_not_bring_it_back(world: World) -> None:
    create(world)

    def declare_stored() -> bool:
        return world.run(schedules.declare_stored_schedule, tidy(), identity(world), SILENCE)

    assert declare_stored()
    assert world.count(schedule_table) == 2
    delete(world)
    assert not declare_stored()
    assert world.count(schedule_table) == 0


def test_a_row_that_is_no_storable_schedule_is_left_out(world: World) -> None:
    create(world, "t")
    definitions = ['{"name":"s","run":"os:abort","interval":1.0}', '{"name":"s","queue":"q"}', "no JSON", "[" * 5000]
    for number, definition in enumerate(definitions):
        world.execute(sa.insert(stored_table).values(name=f"s{number}", definition=definition))
    found = world.read(schedules.read_stored_schedules)
    assert [one.name for one in found.schedules] == ["t"]
    assert sorted(found.errors) == [f"s{number}" for number in range(len(definitions))]


def test_a_wrong_field_is_named() -> None:
    for fields, field in (
        ({"run": "os:abort", "interval": 5}, "run"),
        ({"queue": "q", "type": "all", "interval": 5}, "type"),
        ({"queue": "q"}, "interval"),
        ({"queue": "q", "interval": True}, "interval"),
        ({"queue": "q", "cron": "61 * * * *"}, "cron"),
        ({"queue": "q", "cron": "* * * * *", "interval": 5}, "cron"),
        ({"queue": "q", "cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"queue": "no queue", "interval": 5}, "queue"),
        ({"queue": "q", "body": float("nan"), "interval": 5}, "body"),
        ({"queue": "q", "body": "x" * 200_000, "interval": 5}, "body"),
        ({"queue": "q", "immediate": "yes", "interval": 5}, "immediate"),
        ({"queue": "q", "environments": ["production"], "interval": 5}, "environments"),
        ({"queue": "q", "limit_key": "*", "interval": 5}, "limit_key"),
    ):
        with pytest.raises(InvalidSchedule) as error:
            build_schedule("s", fields)
        assert error.value.field == field, fields
    for name in ("", " s", "s\n", "x" * 192, "\ud800", 5):
        with pytest.raises(InvalidSchedule):
            build_schedule(name, {"queue": "q", "interval": 5})  # type: ignore[arg-type]


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
    of_process = sa.update(process_table).where(process_table.c.id == claimer.process_id)
    silence_node(world, "a", SILENCE + 1)
    for change in ({"ended_at": now()}, {"ended_at": None, "checked_at": seconds_from_now(-SILENCE - 1)}):
        run = world.run(schedule_runs.request_run, "s")
        take(world, run, given)
        world.execute(of_process.values(ended_at=None))
        assert world.run(schedule_runs.mark_lost_runs, SILENCE) == []
        world.execute(of_process.values(change))
        assert world.run(schedule_runs.mark_lost_runs, SILENCE) == [run.id], change


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
