"""Schedules that are created at run time: what may be stored, which names are taken, and what a deletion leaves."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.errors import InvalidSchedule, ScheduleNameTaken, ScheduleNotFound, ScheduleNotStored
from peerd.domain.schedule import RunStatus
from peerd.operate.new_schedule import build_schedule
from peerd.store import schedule_runs, stored_schedules
from peerd.store.maintenance.due import find_agent_work
from peerd.store.nodes import nodes
from peerd.store.schema.tables import schedules as schedule_table
from peerd.store.schema.tables import stored_schedules as stored_table
from peerd.store.stored_schedules import StoredSchedulesState
from tests.store.schedule_steps import SILENCE, declare, identity, schedule
from tests.store.world import World, at_once

TIDY = build_schedule("s", {"queue": "q", "task": "tidy", "body": {"depth": 3}, "interval": "10m"})


def create(world: World, name: str = "s") -> None:
    given = build_schedule(name, {"queue": "q", "task": "tidy", "body": {"depth": 3}, "interval": "10m"})
    world.run(stored_schedules.insert_schedule, given, "a test")


def state(world: World) -> StoredSchedulesState | None:
    return world.read(find_agent_work, world.incarnation()).schedules_state


def test_what_was_created_is_what_every_node_reads_and_each_change_changes_what_the_agents_see(world: World) -> None:
    states = [state(world)]
    for change in (partial(create, world), partial(create, world, "t"), partial(delete, world), partial(create, world)):
        change()
        states.append(state(world))
    assert len(set(states)) == len(states)
    delete(world, "t")
    found = world.read(stored_schedules.read_stored_schedules)
    assert (found.schedules, found.errors) == ([TIDY], {})


def delete(world: World, name: str = "s") -> None:
    world.run(stored_schedules.delete_schedule, name)


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
    declare(world, TIDY, "a")
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
        return world.run(stored_schedules.declare_stored_schedule, TIDY, identity(world), SILENCE)

    assert declare_stored()
    assert world.count(schedule_table) == 2
    delete(world)
    assert not declare_stored()
    assert world.count(schedule_table) == 0


def test_a_row_that_is_no_storable_schedule_is_left_out(world: World) -> None:
    create(world, "t")
    definitions = [
        '{"name":"s","run":"os:abort","interval":1.0}',
        '{"name":"s","queue":"q"}',
        "no JSON",
        "[" * 5000,
        "{}",
    ]
    for number, definition in enumerate(definitions):
        world.execute(sa.insert(stored_table).values(name=f"s{number}", definition=definition))
    found = world.read(stored_schedules.read_stored_schedules)
    assert [one.name for one in found.schedules] == ["t"]
    assert sorted(found.errors) == [f"s{number}" for number in range(len(definitions))]


def test_a_wrong_field_is_named() -> None:
    for fields, field in (
        ({"run": "os:abort", "interval": 5}, "run"),
        ({"queue": "q", "type": "os:abort", "interval": 5}, "type"),
        ({"queue": "q", "type": "all", "interval": 5}, "type"),
        ({"queue": "q"}, "interval"),
        ({"queue": "q", "interval": "soon"}, "interval"),
        ({"queue": "q", "interval": 0.01}, "interval"),
        ({"queue": "q", "interval": True}, "interval"),
        ({"queue": "q", "cron": "61 * * * *"}, "cron"),
        ({"queue": "q", "cron": "* * * * *", "interval": 5}, "cron"),
        ({"queue": "q", "cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"queue": "no queue", "interval": 5}, "queue"),
        ({"queue": "q", "task": "t" * 500, "interval": 5}, "task"),
        ({"queue": "q", "body": float("nan"), "interval": 5}, "body"),
        ({"queue": "q", "body": "x" * 200_000, "interval": 5}, "body"),
        ({"queue": "q", "overlap": "maybe", "interval": 5}, "overlap"),
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
