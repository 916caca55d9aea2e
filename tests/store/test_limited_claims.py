"""Limited claims: what may run at once, what may start in a period, and which key is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.store import nodes, outcomes, queues
from peerd.store.schema.tables import limits, tasks
from peerd.store.statements import new_token
from peerd.store.take import backlog, claiming, turns
from peerd.store.take.backlog import ClaimableWork
from peerd.store.take.claimer import Claimer
from peerd.store.take.turns import MAX_LEVELS
from tests.store.world import World, at_once, held
from tests.support.server_kinds import ON_SERVERS

pytestmark = pytest.mark.every_database


@pytest.fixture
def claimer(world: World) -> Claimer:
    return world.claimer("q")


def limit(world: World, key: str, **values: Any) -> None:
    """Set the limit of a queue (''), of each key ('*'), or of one key."""
    row = {"queue": "q", "limit_key": key, **values}
    world.execute(sa.insert(limits).values(**row))


def add(world: World, key: str | None, number: int = 1, **columns: Any) -> list[int]:
    """Pending tasks with a key."""
    rows = [{"queue": "q", "limit_key": key, **columns} for _ in range(number)]
    before = world.count()
    world.execute(sa.insert(tasks), rows)
    assert world.count() == before + number
    return world.read(
        lambda connection: list(connection.execute(sa.select(tasks.c.id).order_by(tasks.c.id)).scalars())[-number:]
    )


def take(world: World, claimer: Claimer, number: int = 100, **options: Any) -> list[Task]:
    return world.run(claiming.claim_limited, claimer, "q", token=new_token(), limit=number, **options).tasks


def keys(taken: list[Task]) -> dict[str | None, int]:
    return dict(Counter(task.limit_key for task in taken))


def done(world: World, claimer: Claimer, taken: list[Task]) -> None:
    refused = world.run(outcomes.complete, claimer.process_id, {held(task): None for task in taken})
    assert not refused


def test_a_plain_claim_skips_tasks_with_a_key_and_a_limited_one_those_without_and_holds_them_alike(
    world: World, claimer: Claimer
) -> None:
    add(world, "a", 2)
    add(world, None, 3)
    assert keys(world.take(claimer, 10)) == {None: 3}
    taken = take(world, claimer)
    assert keys(taken) == {"a": 2}
    for task in taken:
        found = world.get(task.id)
        moments = {"checked_at": found.checked_at, "updated_at": found.updated_at}
        assert msgspec.structs.replace(task, **moments) == found
        assert (task.status, task.lease, task.process_id) == (Status.WORKING, 1, claimer.process_id)
    done(world, claimer, taken)
    assert not take(world, claimer)


def test_no_more_than_k_of_a_key_run_at_once(world: World, claimer: Claimer) -> None:
    limit(world, "*", running=2)
    limit(world, "b", running=3)
    limit(world, "none", running=0)
    for key in ("a", "b", "c", "none"):
        add(world, key, 5)
    first = take(world, claimer)
    assert keys(first) == {"a": 2, "b": 3, "c": 2}
    assert not take(world, world.claimer("q", node="other"))
    completed, failed = (next(task for task in first if task.limit_key == key) for key in "ac")
    done(world, claimer, [completed])
    assert keys(take(world, claimer)) == {"a": 1}
    assert world.fail(failed, retry_in=60.0)
    assert keys(take(world, claimer)) == {"c": 1}


def test_a_limited_queue_is_claimed_by_limited_claims_alone_with_keys_or_without(
    world: World, claimer: Claimer
) -> None:
    limit(world, "", running=3)
    add(world, None, 5)
    add(world, "a", 5)
    assert not world.take(claimer, 10)
    first = take(world, claimer)
    assert len(first) == 3
    assert not take(world, claimer)
    done(world, claimer, first[:2])
    assert len(take(world, claimer)) == 2


def test_keys_take_turns_one_task_each_however_many_the_others_have(world: World, claimer: Claimer) -> None:
    big = add(world, "big", 200)
    add(world, "big", 1, attempts=1)
    for key in "uvwxyz":
        add(world, key, 2)
    seen = [task for _ in range(14) for task in take(world, claimer, 1)]
    assert [task.limit_key for task in seen] == ["big", *"uvwxyz", "big", *"uvwxyz"]
    assert [seen[0].id, seen[7].id] == big[:2], "within a key the usual order holds"
    add(world, "a", 50)
    add(world, "b", 1)
    assert keys(take(world, claimer, 7)) == {"a": 3, "b": 1, "big": 3}, "also in one claim of several"
    limit(world, "", running=100)
    world.execute(sa.delete(tasks).where(tasks.c.limit_key != "a", tasks.c.status == "pending"))
    add(world, None, 10)
    plain = [task.limit_key for _ in range(6) for task in take(world, claimer, 1)]
    assert plain in (["a", None] * 3, [None, "a"] * 3), "in a limited queue, those without a key have their turn too"


def test_a_higher_priority_precedes_the_order_of_keys(world: World, claimer: Claimer) -> None:
    add(world, "a", 3, priority=5)
    add(world, "b", 2, priority=50)
    add(world, "a", 1, priority=50)
    first = take(world, claimer, 4)
    assert Counter((task.priority, task.limit_key) for task in first) == {(50, "a"): 1, (50, "b"): 2, (5, "a"): 1}


def test_a_full_key_with_many_tasks_hides_no_other(world: World, claimer: Claimer) -> None:
    limit(world, "a", running=1)
    for priority in range(MAX_LEVELS + 20):
        add(world, "a", 3, priority=1000 + priority)
    add(world, "b", 2, priority=1)
    assert keys(take(world, claimer)) == {"a": 1, "b": 2}


def test_more_full_keys_than_a_claim_reads_hide_no_other_for_long_and_no_lower_priority(
    world: World, claimer: Claimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MAX_KEYS", 10)
    limit(world, "*", running=0)
    limit(world, "k45", running=1)
    for number in range(50):
        add(world, f"k{number:02}", priority=99)
    assert [task.limit_key for _ in range(6) for task in take(world, claimer)] == ["k45"]
    world.execute(sa.update(tasks).values(status="pending"))
    limit(world, "low", running=1)
    add(world, "low", 2, priority=1)
    assert keys(take(world, claimer)) == {"low": 1}
    assert [task.limit_key for _ in range(5) for task in take(world, claimer)] == ["k45"]


def test_no_more_than_so_many_start_in_a_period(world: World, claimer: Claimer) -> None:
    limit(world, "*", starts=3, period=3600.0)
    add(world, "a", 5)
    add(world, "b", 2)
    first = take(world, claimer)
    assert keys(first) == {"a": 3, "b": 2}
    done(world, claimer, first)
    answer = world.run(claiming.claim_limited, claimer, "q", token=new_token(), limit=9)
    assert answer.tasks == []
    assert answer.again_in is not None
    assert 3500 < answer.again_in <= 3600
    limit(world, "", starts=4, period=3600.0)
    for key in ("c", "d", "e", None, None, None):
        add(world, key)
    assert len(take(world, claimer)) == 4, "that of the queue counts all of it"
    assert not take(world, claimer)


def test_when_the_period_is_over_there_is_capacity_again(world: World, claimer: Claimer) -> None:
    limit(world, "*", starts=1, period=0.3)
    add(world, "a", 2)
    [first] = take(world, claimer)
    again: list[Task] = []
    while not again:
        again = take(world, claimer)
    assert first.worker_started_at is not None
    assert again[0].worker_started_at is not None
    assert (again[0].worker_started_at - first.worker_started_at).total_seconds() >= 0.3


def test_paused_queues_and_nodes_that_drain_make_no_limited_claim(world: World, claimer: Claimer) -> None:
    add(world, "a", 2)
    world.run(queues.pause, "q")
    assert not take(world, claimer)
    world.run(queues.resume, "q")
    assert len(take(world, claimer, 1)) == 1
    world.run(nodes.set_draining, "a", draining=True)
    assert not take(world, claimer)


def test_lanes_are_kept_apart(world: World, claimer: Claimer) -> None:
    add(world, "a", 1, node_id=claimer.node_id)
    add(world, "a", 1, node_id=claimer.node_id + 1000)
    add(world, "a", 1, crashes=1)
    assert keys(take(world, claimer)) == {"a": 1}
    [quarantined] = take(world, claimer, quarantined=True)
    assert quarantined.crashes == 1


def test_keys_that_differ_in_a_control_character_are_each_counted_once(world: World, claimer: Claimer) -> None:
    """MySQL sorts them as if the shorter one were padded with spaces, unlike other databases."""
    limit(world, "*", running=1)
    add(world, "a\t", 2)
    add(world, "a", 2)
    add(world, "a", 2, node_id=claimer.node_id)
    assert keys(take(world, claimer)) == {"a": 1, "a\t": 1}


@pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
def test_a_limited_claim_skips_rows_that_are_locked(world: World, claimer: Claimer) -> None:
    limit(world, "*", running=2)
    first, second, third = add(world, "a", 3)
    [other] = add(world, "b", 1)
    with world.locking(tasks, first):
        taken = take(world, claimer, 1)
        assert [task.id for task in taken] == [second], "the next one of the same key"
        taken += take(world, claimer)
        assert {task.id for task in taken} == {second, third, other}, "as many as the limit of the key allows"
    done(world, claimer, taken)
    assert [task.id for task in take(world, claimer)] == [first]
    world.empty()
    claimer = world.claimer("q")
    limit(world, "", running=2)
    *urgent, last = add(world, None, 60)
    with world.locking(tasks, *urgent):
        assert [task.id for task in take(world, claimer)] == [last], "more than a page of them"
    assert [task.id for task in take(world, claimer)] == urgent[:1]


def test_a_backlog_check_shows_keyed_tasks_beside_plain_ones(world: World) -> None:
    claimer = world.claimer("q", "other", "limited")
    found: Callable[[], ClaimableWork] = partial(world.read, backlog.find_claimable, claimer)
    assert found() == ClaimableWork()
    add(world, None, 3, priority=99)
    add(world, "a", 1, priority=5)
    add(world, "b", 1, priority=7)
    assert found() == ClaimableWork(limited={"q": -7}, plain=True)
    add(world, None, 1, crashes=1, priority=2)
    assert found() == ClaimableWork(limited={"q": -7}, quarantined={"q": -2}, plain=True)
    add(world, "a", 1, crashes=2, priority=3, node_id=claimer.node_id)
    limit(world, "", running=1)
    assert found() == ClaimableWork({"q": -99}, {"q": -2}, {"q": -3})
    world.insert(queue="other", priority=4)
    assert found().plain, "the limit of a queue is not that of another one"
    world.store.run(queues.pause, "q")
    assert found().plain, "nor is its pause"
    world.store.run(queues.pause, "other")
    assert not found().plain


def test_many_claimers_at_once_never_run_more_than_k(world: World) -> None:
    """Each claims, counts the running tasks in the table, and completes: never more run than the limits allow."""
    limit(world, "*", running=2)
    limit(world, "", running=5)
    for key in "abcd":
        add(world, key, 15)
    seen: list[Counter[str]] = []

    def work(claimer: Claimer) -> int:
        number = 0
        while world.read(lambda connection: statuses(connection)["pending"]):
            taken = take(world, claimer, 3)
            seen.append(world.read(lambda connection: statuses(connection, tasks.c.limit_key, status="working")))
            done(world, claimer, taken)
            number += len(taken)
        return number

    claimers = [world.claimer("q", node=f"n{number}") for number in range(4)]
    assert sum(at_once([partial(work, claimer) for claimer in claimers])) == 60
    assert max(running.total() for running in seen) <= 5
    assert max(count for running in seen for count in running.values()) <= 2


def statuses(connection: sa.Connection, by: sa.Column[Any] = tasks.c.status, **wanted: str) -> Counter[str]:
    """How many tasks there are of each status, or of each value of another column."""
    found = connection.execute(sa.select(by, sa.func.count()).filter_by(**wanted).group_by(by))
    return Counter(dict(found.all()))
