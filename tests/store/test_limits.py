"""Stored limits, the report of their use, and the purge of starts that count no more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from peerd.domain.lifecycle import Status
from peerd.domain.limit import Limit, Rate
from peerd.store.due import read_due_maintenance
from peerd.store.limits import LimitState, list_limits, purge_limit_starts, remove_limit, set_limit
from peerd.store.schema.tables import limit_starts, limits
from peerd.store.schema.types import seconds_from_now
from peerd.store.statements import new_token
from peerd.store.take import claiming
from peerd.testing import eventually, insert_task
from tests.store.world import World, at_once

pytestmark = pytest.mark.every_database


def listed(world: World, queue: str | None = None) -> list[LimitState]:
    return world.read(list_limits, queue)


def limit(world: World, **parts: Any) -> None:
    world.run(set_limit, Limit(**({"queue": "q"} | parts)))


def run_tasks(world: World, *keys: str | None, queue: str = "q") -> None:
    for key in keys:
        insert_task(world.store, Status.WORKING, queue=queue, limit_key=key)


def starts(world: World, *rows: tuple[str, int, float], queue: str = "q", counts_for: float = 60.0) -> None:
    """Starts of keys, as a claim writes them: how many, and how many seconds ago."""
    turns = iter(range(world.count(limit_starts), 10**6))
    for key, number, ago in rows:
        values = {
            "queue": queue,
            "limit_key": key,
            "turn": next(turns),
            "starts": number,
            "started_at": seconds_from_now(-ago),
            "counts_until": seconds_from_now(counts_for - ago),
        }
        world.execute(sa.insert(limit_starts).values(values))


def test_a_queue_each_key_and_a_key_have_limits_which_are_replaced_as_a_whole_and_removed(world: World) -> None:
    limit(world, running=3, rate=Rate(100, 60.0))
    limit(world, rate=Rate(5, 0.25))
    for number, (queue, key) in enumerate((("q", "*"), ("q", "acme"), ("q", "Acme"), ("r", "*"))):
        limit(world, queue=queue, key=key, running=number)
    found = [(state.queue, state.key, state.running, state.starts, state.period) for state in listed(world)]
    assert found[0] == ("q", "", None, 5, 0.25)
    assert [one[:3] for one in found[1:]] == [("q", "*", 0), ("q", "Acme", 2), ("q", "acme", 1), ("r", "*", 3)]
    assert [world.run(remove_limit, "q", "*") for _ in range(2)] == [True, False]
    assert [[state.key for state in listed(world, queue)] for queue in "qr"] == [["", "Acme", "acme"], ["*"]]


def test_several_sets_of_one_limit_at_once_leave_one(world: World) -> None:
    wanted = [Limit(queue="q", running=number, rate=Rate(number + 1, 60.0)) for number in range(8)]
    at_once([partial(world.run, set_limit, one) for one in wanted])
    [state] = listed(world)
    assert state.running is not None
    assert state.starts == state.running + 1


def test_a_limit_counts_what_runs_in_its_queue_or_with_its_key(world: World) -> None:
    limit(world, running=3)
    for key in ("a", "A"):
        limit(world, key=key, running=3)
    limit(world, key="*", running=2)
    limit(world, queue="other", running=3)
    run_tasks(world, None, None, "a", "a", "b", "c", "c", "c", "d", "d")
    run_tasks(world, None, "a", queue="third")
    for status in (Status.PENDING, Status.DONE, Status.FAILURE, Status.SCHEDULED):
        insert_task(world.store, status, queue="q", limit_key="a")
    states = {(state.queue, state.key): (state.running_now, state.full_keys) for state in listed(world)}
    assert states == {
        ("q", ""): (10, None),
        ("q", "a"): (2, None),
        ("q", "A"): (0, None),
        ("other", ""): (0, None),
        ("q", "*"): (None, 2),  # c and d; a has a limit of its own
    }
    limit(world, key="c", running=9)
    assert {state.key: state.full_keys for state in listed(world, "q")}["*"] == 1


def test_starts_count_for_the_period_of_the_limit_and_fill_a_key_too(world: World) -> None:
    limit(world, rate=Rate(100, 60.0))
    limit(world, key="a", rate=Rate(10, 10.0))
    limit(world, key="b", running=1)
    starts(world, ("", 7, 1.0), ("", 20, 40.0), ("", 50, 61.0), ("a", 3, 1.0), ("a", 4, 30.0), ("b", 5, 1.0))
    starts(world, ("", 900, 1.0), ("a", 900, 1.0), queue="other")
    assert {state.key: state.starts_now for state in listed(world)} == {"": 27, "a": 3, "b": None}
    limit(world, queue="r", key="*", running=2, rate=Rate(10, 60.0))
    limit(world, queue="r", key="own", rate=Rate(1000, 60.0))
    run_tasks(world, "a", "b", "b", queue="r")
    starts(world, ("a", 9, 1.0), ("c", 6, 1.0), ("c", 4, 50.0), ("d", 10, 61.0), ("own", 500, 1.0), queue="r")
    states = {state.key: (state.starts_now, state.full_keys) for state in listed(world, "r")}
    assert states == {"*": (None, 2), "own": (500, None)}, "b is full by its running tasks, and c by its starts"


def test_what_would_be_no_limit_or_no_key_is_refused_by_the_database(world: World) -> None:
    for values in (
        "(running) VALUES (1)",
        "(queue, running) VALUES ('q', -1)",
        "(queue, starts) VALUES ('q', 5)",
        "(queue, period) VALUES ('q', 5)",
        "(queue, starts, period) VALUES ('q', 0, 5)",
        "(queue, starts, period) VALUES ('q', 5, 0)",
    ):
        with pytest.raises(DBAPIError):
            world.sql(f"INSERT INTO limits {values}")
        assert world.count(limits) == 0, values
    for key in ("", "*"):
        with pytest.raises(DBAPIError):
            world.sql(f"INSERT INTO tasks (queue, limit_key) VALUES ('q', '{key}')")
        assert world.count() == 0, key


def claim_limited(world: World) -> int:
    """The number of tasks that one limited claim takes."""
    claimer, token = world.claimer("q"), new_token()
    return len(world.run(claiming.claim_limited, claimer, "q", token=token, limit=100).tasks)


def test_no_limit_written_with_sql_stops_its_queue_and_what_is_no_number_limits_nothing(world: World) -> None:
    """SQLite keeps a text in any column, and it is larger than all numbers; PostgreSQL has infinity and NaN."""
    counted: dict[str, int | None] = {"NULL, 5, 1e300": 3, "NULL, 5, 'infinity'": 3, "NULL, 5, 'nan'": None}
    if world.store.name == "sqlite":
        counted["NULL, 5, 'infinity'"] = None
    for values in (*counted, "1.5, 3.5, 1e-300", "'x', NULL, NULL", "NULL, 'y', 'z'", "'x', 'y', 'z'"):
        for key in ("", "*", "a"):
            world.empty()
            try:
                world.sql(
                    f"INSERT INTO limits (queue, limit_key, running, starts, period) VALUES ('q', '{key}', {values})"
                )
            except DBAPIError:
                continue  # this database refuses it
            if "x" not in values:
                starts(world, (key, 3, 3600.0), counts_for=3600.0)
            [state] = listed(world)
            if key != "*" and values in counted:
                assert state.starts_now == counted[values], (values, key)
            if "'" in values and values not in counted:
                assert (state.running, state.starts, state.period) == (None, None, None), values
            assert state.full_keys == (0 if key == "*" else None), (values, key)
            world.add(limit_key="a")
            assert claim_limited(world) == 1, (values, key)


def test_starts_that_count_no_more_are_purged_in_batches_and_by_one_node_each(world: World) -> None:
    limit(world, rate=Rate(10, 0.3))
    for key in ("a", "b", None):
        world.add(limit_key=key)
    assert (claim_limited(world), world.run(purge_limit_starts)) == (3, 0)
    eventually(lambda: world.run(purge_limit_starts))
    assert world.count(limit_starts) == 0
    starts(world, ("", 1, 61.0), ("", 2, 1.0), ("a", 3, 61.0), ("a", 4, 62.0), ("b", 5, 30.0))
    starts(world, ("a", 6, 61.0), queue="other")
    assert [world.run(purge_limit_starts, 3) for _ in range(3)] == [3, 1, 0]
    assert world.scalars(sa.select(limit_starts.c.starts).order_by(limit_starts.c.starts)) == [2, 5]
    starts(world, *[(f"k{number % 5}", 1, 61.0) for number in range(40)])
    purge: Callable[[], int] = partial(world.run, purge_limit_starts, 100)
    assert sum(at_once([purge] * 4)) == 40


def test_due_maintenance_shows_when_the_next_start_counts_no_more(world: World) -> None:
    assert world.read(read_due_maintenance).start is None
    starts(world, ("a", 1, 10.0), ("", 1, 20.0))
    due_maintenance = world.read(read_due_maintenance)
    assert due_maintenance.start is not None
    assert (due_maintenance.start - due_maintenance.now).total_seconds() == pytest.approx(40.0, abs=3.0)
