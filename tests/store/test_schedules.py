"""Schedules: one tick is fired once, whoever tries and whatever their clocks say; every run is on record, and ends."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.errors import RunNotFound, ScheduleNotFound
from peerd.domain.schedule import Fire, RunStatus, Schedule, Wait, decide
from peerd.store import nodes, schedule_runs, schedules
from peerd.store.clock import seconds_from_now
from peerd.store.finish import database_now
from peerd.store.schedule_runs import Here, Run
from peerd.store.schedules import THE_CLUSTER, Clock, Sight
from peerd.store.tables import nodes as node_table
from peerd.store.tables import processes as process_table
from peerd.store.tables import schedule_runs as run_table
from peerd.store.tables import schedules as schedule_table
from peerd.testing import eventually
from tests.store.world import World, at_once

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


def statuses(world: World) -> list[str]:
    return [str(run.status) for run in runs(world)]


def silence_node(world: World, node: str, seconds: float) -> None:
    row = sa.update(node_table).where(node_table.c.name == node)
    world.store.run(lambda c: c.execute(row.values(checked_at=seconds_from_now(-seconds))))


# ---------------------------------------------------------------- ticks


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
    ahead = decide(given, found.next_at, found.anchor_at, found.next_at + timedelta(seconds=1), "")
    assert isinstance(ahead, Fire)
    assert world.store.run(schedules.tick, found, given, ahead) is None
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


def test_a_tick_that_is_too_late_is_on_record_as_missed(world: World) -> None:
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


def test_what_is_disabled_passes_its_ticks_over(world: World) -> None:
    given = schedule()
    declare(world, given)
    world.store.run(schedules.set_disabled, "s", disabled=True)
    let_be_due(world, 3600)
    seen = clock(world)
    assert seen.disabled
    now = world.store.read(database_now)
    assert world.store.run(schedules.pass_over, seen, given, now)
    found = clock(world)
    assert found.next_at is not None
    assert found.next_at > now
    assert runs(world) == []
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'x'; known are: s"):
        world.store.run(schedules.set_disabled, "x", disabled=True)


# ---------------------------------------------------------------- definitions


def test_the_newest_change_of_a_definition_stands_and_starting_again_changes_nothing(world: World) -> None:
    old, new = schedule(interval=60.0), schedule(interval=30.0)
    declare(world, old, "a")
    declare(world, old, "b")
    declare(world, new, "a")
    assert clock(world).schedule == new
    world.store.run(nodes.leave, "b", world.incarnation("b"))
    del world._nodes["b"]
    declare(world, old, "b")
    assert clock(world).schedule == new, "b has only started again"
    declare(world, old, "a")
    assert clock(world).schedule == old, "a was rolled back"


def test_a_node_fires_no_tick_of_a_definition_that_is_not_its_own(world: World) -> None:
    old, new = schedule(interval=60.0), schedule(interval=30.0)
    declare(world, old, "b")
    declare(world, new, "a")
    let_be_due(world)
    assert fire(world, old, "b") is None
    assert fire(world, new, "a") is not None


def test_when_nobody_alive_means_what_stands_another_one_writes_its_own(world: World) -> None:
    old, new = schedule(interval=60.0), schedule(interval=30.0)
    declare(world, old, "b")
    declare(world, new, "a")

    def stand_in() -> bool:
        return world.store.run(schedules.stand_in, old, here(world, "b"), SILENCE)

    assert not stand_in()
    silence_node(world, "a", SILENCE + 1)
    assert stand_in()
    assert clock(world).schedule == old
    assert not stand_in()


def test_a_changed_definition_lets_the_clock_go_on_unless_it_ticks_otherwise(world: World) -> None:
    declare(world, schedule())
    before = clock(world)
    declare(world, schedule(args=[1]))
    assert (clock(world).anchor_at, clock(world).next_at) == (before.anchor_at, before.next_at)
    declare(world, schedule(interval=600.0))
    assert clock(world).next_at != before.next_at


def test_a_row_that_somebody_has_spoilt_harms_nobody(world: World) -> None:
    declare(world, schedule())
    for text in ("", "null", "[]", '{"name": 1}', '{"name": "s"}', "{" * 10_000):
        world.store.run(sa.Connection.execute, sa.update(schedule_table).values(definition=text, fingerprint="?"))
        assert clock(world).schedule is None
        declare(world, schedule())
        assert clock(world).schedule == schedule()


# ---------------------------------------------------------------- immediate


def test_an_immediate_run_is_not_repeated_in_one_life_of_a_node(world: World) -> None:
    given = schedule(immediate=True, type="worker")
    assert declare(world, given)
    assert not declare(world, given), "another process of the agent"
    assert [(run.origin, run.node_id) for run in runs(world)] == [("start", world.node("a"))]
    world.store.run(nodes.leave, "a", world.incarnation("a"))
    del world._nodes["a"]
    assert declare(world, given), "the node was started again"


def test_an_immediate_run_of_the_cluster_is_that_of_its_first_node(world: World) -> None:
    given = schedule(immediate=True)
    assert declare(world, given, "a")
    assert not declare(world, given, "b")
    world.store.run(nodes.leave, "a", world.incarnation("a"))
    del world._nodes["a"]
    assert not declare(world, given, "a"), "b has been there all the while"
    silence_node(world, "b", SILENCE + 1)
    world.store.run(nodes.leave, "a", world.incarnation("a"))
    del world._nodes["a"]
    assert declare(world, given, "a")
    assert [run.node_id for run in runs(world)] == [None, None]


# ---------------------------------------------------------------- runs


def test_a_waiting_run_is_taken_by_one_of_many(world: World) -> None:
    given = schedule()
    names = [f"node-{number}" for number in range(4)]
    for name in names:
        declare(world, given, name)
    run = world.store.run(schedule_runs.request_run, "s", "[1]")
    assert all(sight(world, node=name).waiting == [run] for name in names)
    taken = at_once([partial(take, world, run, given, name) for name in names])
    [[won]] = [one for one in taken if one]
    assert (won.status, won.slot, won.pid, won.args) == (RunStatus.RUNNING, *PROCESS, "[1]")
    assert won.started_at is not None
    assert sum(len(sight(world, node=name).running) for name in names) == 1


def test_a_run_of_all_processes_has_a_row_for_each(world: World) -> None:
    given = schedule(type="all")
    declare(world, given)
    run = world.store.run(schedule_runs.request_run, "s")
    taken = take(world, run, given, "a", ("w-1", 1), ("w-2", 2), ("w-3", 3))
    assert [(one.slot, one.pid, one.tick_at) for one in taken] == [
        (f"w-{number}", number, run.tick_at) for number in (1, 2, 3)
    ]
    assert taken == sight(world).running


@pytest.mark.parametrize("overlap, expected", [("skip", "skipped"), ("queue", "waiting"), ("allow", "waiting")])
def test_a_tick_that_overlaps_an_earlier_run_is_skipped_queued_or_allowed(
    world: World, overlap: Any, expected: str
) -> None:
    given = schedule(overlap=overlap)
    declare(world, given)
    let_be_due(world)
    first = fire(world, given)
    assert first is not None
    [running] = take(world, first, given)
    let_be_due(world)
    second = fire(world, given)
    assert second is not None
    assert second.status == expected
    if overlap == "queue":
        assert take(world, second, given) == []
        assert world.store.run(schedule_runs.end_run, running.id, RunStatus.DONE)
        assert take(world, second, given)
    elif overlap == "allow":
        assert take(world, second, given)


def test_of_nodes_that_take_different_waiting_runs_at_once_one_does(world: World) -> None:
    given = schedule(overlap="queue")
    for name in ("a", "b"):
        declare(world, given, name)
    for _ in range(3):
        waiting = []
        for _number in range(2):
            let_be_due(world)
            run = fire(world, given)
            assert run is not None
            waiting.append(run)
        calls = [partial(take, world, run, given, name) for run, name in zip(waiting, ("a", "b"), strict=True)]
        assert sorted(map(len, at_once(calls))) == [0, 1]
        for run in runs(world):
            world.store.run(schedule_runs.end_run, run.id, RunStatus.DONE)
            world.store.run(schedule_runs.give_up, run.id, RunStatus.REFUSED, "the end of the test")


def test_a_run_ends_once(world: World) -> None:
    given = schedule()
    declare(world, given)
    [run] = take(world, world.store.run(schedule_runs.request_run, "s"), given)
    assert world.store.run(schedule_runs.end_run, run.id, RunStatus.FAILED, "boom\x00", "x" * 100_000)
    assert not world.store.run(schedule_runs.end_run, run.id, RunStatus.DONE)
    found = world.store.read(schedule_runs.get_run, run.id)
    assert (found.status, found.error) == (RunStatus.FAILED, "boom\N{REPLACEMENT CHARACTER}")
    assert len(found.traceback or "") <= schedule_runs.LONGEST_ERROR
    with pytest.raises(RunNotFound):
        world.store.read(schedule_runs.get_run, run.id + 1)


def test_a_task_that_is_enqueued_has_the_key_of_its_schedule(world: World) -> None:
    given = schedule(queue="q", limit_key="acme")
    declare(world, given)
    run = world.store.run(schedule_runs.request_run, "s")
    done = world.store.run(schedule_runs.enqueue_run, run, given, here(world, "a"))
    assert done is not None
    assert done.task_id is not None
    assert world.get(done.task_id).limit_key == "acme"


def test_a_task_is_enqueued_once_for_a_tick_and_the_next_waits_for_its_end(world: World) -> None:
    given = schedule(queue="q", task="t", body='{"a":1}')
    for name in ("a", "b"):
        declare(world, given, name)
    let_be_due(world)
    run = fire(world, given)
    assert run is not None
    calls = [partial(world.store.run, schedule_runs.enqueue_run, run, given, here(world, name)) for name in ("a", "b")]
    [done] = [one for one in at_once(calls) if one is not None]
    assert done.status is RunStatus.ENQUEUED
    assert done.task_id is not None
    task = world.get(done.task_id)
    assert (task.queue, task.name, task.body, task.limit_key) == ("q", "t", '{"a":1}', None)
    assert world.count() == 1
    let_be_due(world)
    skipped = fire(world, given)
    assert skipped is not None
    assert skipped.status is RunStatus.SKIPPED
    world.complete(world.take_one())
    let_be_due(world)
    following = fire(world, given)
    assert following is not None
    assert following.status is RunStatus.WAITING


def test_the_runs_of_a_dead_process_end_with_its_cause(world: World) -> None:
    given = schedule(type="all")
    declare(world, given)
    run = world.store.run(schedule_runs.request_run, "s")
    first, second = take(world, run, given, "a", ("w-1", 1), ("w-2", 2))
    assert world.store.run(schedule_runs.end_runs_of_process, here(world), 1, "killed by SIGKILL") == [first]
    ended = world.store.read(schedule_runs.get_run, first.id)
    assert (ended.status, ended.error) == (RunStatus.DIED, "its process died: killed by SIGKILL")
    assert world.store.read(schedule_runs.get_run, second.id).is_open


@pytest.mark.parametrize("misfire", ["skip", "run_once"])
def test_a_run_whose_node_is_gone_is_lost_and_run_again_by_another_where_the_policy_says_so(
    world: World, misfire: Any
) -> None:
    given = schedule(misfire=misfire)
    for name in ("a", "b"):
        declare(world, given, name)
    let_be_due(world)
    run = fire(world, given)
    assert run is not None
    take(world, run, given, "a")
    assert world.store.run(schedule_runs.lose_runs, SILENCE) == []
    silence_node(world, "a", SILENCE + 1)
    assert world.store.run(schedule_runs.lose_runs, SILENCE) == [run.id]
    assert world.store.read(schedule_runs.get_run, run.id).status is RunStatus.LOST
    assert not world.store.run(schedule_runs.end_run, run.id, RunStatus.DONE), "it thaws, and is told"
    again = [(one.tick_at, one.number, one.status) for one in runs(world) if one.origin == "again"]
    assert again == ([(run.tick_at, 2, RunStatus.WAITING)] if misfire == "run_once" else [])
    if again:
        assert take(world, runs(world)[-1], given, "b")


def test_a_run_is_not_lost_while_its_process_beats_though_its_node_has_no_agent(world: World) -> None:
    given = schedule()
    declare(world, given)
    claimer = world.claimer(pid=PROCESS[1])
    run = world.store.run(schedule_runs.request_run, "s")
    take(world, run, given)
    silence_node(world, "a", SILENCE + 1)
    assert world.store.run(schedule_runs.lose_runs, SILENCE) == []
    silent = sa.update(process_table).where(process_table.c.id == claimer.process_id)
    world.store.run(lambda c: c.execute(silent.values(checked_at=seconds_from_now(-SILENCE - 1))))
    assert world.store.run(schedule_runs.lose_runs, SILENCE) == [run.id]


def test_a_run_of_an_earlier_life_is_lost_when_the_new_one_is_old_enough(world: World) -> None:
    given = schedule()
    declare(world, given)
    run = world.store.run(schedule_runs.request_run, "s")
    take(world, run, given)
    world.store.run(nodes.register, "a", "another life", replaces=world.incarnation("a"))
    assert world.store.run(schedule_runs.lose_runs, SILENCE) == []
    began = sa.update(node_table).values(started_at=seconds_from_now(-SILENCE - 1))
    world.store.run(lambda c: c.execute(began))
    assert world.store.run(schedule_runs.lose_runs, SILENCE) == [run.id]


def test_a_run_whose_process_went_before_it_had_it_waits_again(world: World) -> None:
    given = schedule()
    declare(world, given)
    run = world.store.run(schedule_runs.request_run, "s")
    [taken] = take(world, run, given)
    assert world.store.run(schedule_runs.put_back, taken, for_any_node=True)
    assert sight(world).waiting == [run]


# ---------------------------------------------------------------- keeping


def test_ended_runs_are_purged_by_their_age_and_their_number(world: World) -> None:
    given = schedule()
    declare(world, given)
    for _ in range(5):
        [run] = take(world, world.store.run(schedule_runs.request_run, "s"), given)
        world.store.run(schedule_runs.end_run, run.id, RunStatus.DONE)
    waiting = world.store.run(schedule_runs.request_run, "s")
    assert world.store.run(schedule_runs.purge_runs, 10, 3600.0) == 0
    assert world.store.run(schedule_runs.purge_runs, 3, 3600.0) == 3
    assert len(runs(world)) == 3
    old = sa.update(run_table).values(finished_at=seconds_from_now(-7200))
    world.store.run(lambda c: c.execute(old.where(run_table.c.status == "done")))
    assert world.store.run(schedule_runs.purge_runs, 10, 3600.0) == 2
    assert runs(world) == [waiting]


def test_a_schedule_that_no_node_has_any_more_is_purged(world: World) -> None:
    declare(world, schedule())
    old = sa.update(schedule_table).values(updated_at=seconds_from_now(-7200))
    world.store.run(lambda c: c.execute(old))
    assert world.store.run(schedules.purge_schedules, 3600.0) == 0
    world.store.run(schedules.withdraw, "s", here(world))
    assert world.store.run(schedules.purge_schedules, 3600.0) == 1
    assert world.store.read(schedules.list_clocks) == []


def test_what_people_insert_with_sql_alone_is_a_request(world: World) -> None:
    declare(world, schedule())
    world.store.run(lambda c: c.execute(sa.text("INSERT INTO schedule_runs (schedule) VALUES ('s')")))
    [run] = sight(world).waiting
    assert (run.origin, run.number, run.args) == ("hand", 1, None)
    assert isinstance(run.tick_at, datetime)
    assert take(world, run, schedule())


def test_an_agent_sees_that_its_node_is_drained(world: World) -> None:
    declare(world, schedule())
    assert not sight(world).draining
    world.store.run(nodes.set_draining, "a", draining=True)
    assert sight(world).draining
