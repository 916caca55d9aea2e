"""Claimers that have met contention claim one after another; a claimer without contention does not wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.connection.database import Database
from peerd.store.statements import CompiledStatement, new_token
from peerd.store.take import claimer as mutex_module
from peerd.store.take import claiming
from peerd.store.take.claimer import UNUSED_AFTER_TIMEOUT, Claimer, ClaimMutex
from peerd.testing import eventually
from tests.store.claim_mutex import MANY, contended_mutex, holding_mutex, waiting
from tests.store.plans import SentStatements, recorded_statements
from tests.store.world import World
from tests.support.manual_clock import ManualClock
from tests.support.server_kinds import ON_SERVERS

pytestmark = [pytest.mark.every_database, pytest.mark.parametrize("store", ON_SERVERS, indirect=True)]


def acquires_mutex(sent: SentStatements) -> bool:
    return any("get_lock" in statement.lower() or "then 0" in statement.lower() for statement, _ in sent)


def fill(world: World, number: int = 3 * MANY) -> list[int]:
    return [one.id for one in world.run(enqueue.enqueue_many, [NewTask(queue="q")] * number)]


def take(store: Database, claimer: Claimer, mutex: ClaimMutex, limit: int = MANY) -> list[int]:
    taken = store.run_short(claiming.claim, claimer, token=new_token(), limit=limit, mutex=mutex).tasks
    return [task.id for task in taken]


def test_a_claimer_that_has_met_contention_waits_for_the_mutex(world: World) -> None:
    ids = fill(world)
    with ThreadPoolExecutor() as threads:
        with holding_mutex(world.store, "q"):
            claimed = threads.submit(take, world.store, world.claimer(), contended_mutex())
            eventually(lambda: waiting(world.store) == 1)
            assert not claimed.done()
        assert claimed.result(timeout=60) == ids[:MANY]


def test_a_claimer_without_contention_or_of_a_few_tasks_or_of_other_queues_does_not_wait_for_the_mutex(
    world: World,
) -> None:
    fill(world)
    for queue, mutex, limit, acquires in (
        ("q", ClaimMutex(), MANY, False),
        ("q", contended_mutex(), MANY - 1, False),
        ("r", contended_mutex(), MANY, True),
    ):
        with holding_mutex(world.store, queue), recorded_statements(world.store) as sent:
            assert len(take(world.store, world.claimer(), mutex, limit)) == limit
        assert (bool(sent), acquires_mutex(sent)) == (True, acquires), (queue, limit)


def test_a_mutex_that_was_not_acquired_in_time_is_not_waited_for_again(world: World) -> None:
    """Its holder may be frozen: one claim is delayed by the time-out, and later claims are not."""
    ids, mutex, claimer = fill(world), contended_mutex(), world.claimer()
    with holding_mutex(world.store, "q"):
        with recorded_statements(world.store) as sent:
            assert len(take(world.store, claimer, mutex)) == MANY
        assert acquires_mutex(sent)
        with recorded_statements(world.store) as sent:
            assert len(take(world.store, claimer, mutex)) == MANY
        assert not acquires_mutex(sent)
    assert len(take(world.store, claimer, mutex)) == len(ids) - 2 * MANY


def test_the_mutex_is_used_again_after_a_while_and_no_more_when_there_was_no_contention(world: World) -> None:
    fill(world)
    clock = ManualClock()
    mutex, claimer = ClaimMutex(clock), world.claimer()
    mutex.record_contention()
    with holding_mutex(world.store, "q"):
        take(world.store, claimer, mutex)
    clock.now += UNUSED_AFTER_TIMEOUT + 1
    mutex.record_contention()
    with recorded_statements(world.store) as sent:
        take(world.store, claimer, mutex)
    assert acquires_mutex(sent)
    clock.now += mutex_module.CONTENDED_FOR / 2
    with world.store.engines.short.connect() as connection, mutex.acquire(connection, ("q",), MANY) as is_acquired:
        assert is_acquired
    clock.now += mutex_module.CONTENDED_FOR
    assert not mutex.is_contended
    take(world.store, claimer, mutex)
    assert not mutex.is_contended, "claims one after another are no contention"


def test_a_claim_that_fails_releases_the_mutex(world: World) -> None:
    connection = world.store.engines.short.connect()
    with pytest.raises(ZeroDivisionError), contended_mutex().acquire(connection, ("q",), MANY):
        raise ZeroDivisionError
    with holding_mutex(world.store, "q"):
        pass
    connection.close()


def test_a_server_that_refuses_such_locks_is_claimed_from_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = CompiledStatement(sa.text("SELECT no_such_lock(:mutex)"))
    for name in ("_ACQUIRE_ON_MYSQL", "_ACQUIRE_ON_POSTGRESQL"):
        monkeypatch.setattr(mutex_module, name, unknown)
    fill(world)
    assert len(take(world.store, world.claimer(), contended_mutex())) == MANY


def test_two_claims_at_the_same_moment_are_contention(world: World) -> None:
    ids = fill(world)
    mutex = ClaimMutex(ManualClock())
    other = claiming.claim
    with world.store.engine.connect() as connection, ThreadPoolExecutor() as threads:
        taken = other(connection, world.claimer(), token=new_token(), limit=MANY).tasks
        claimed = threads.submit(take, world.store, world.claimer(), mutex)
        if world.store.name == "mysql":  # its candidates are read, and it loses them
            eventually(lambda: _has_sent_an_update(world.store))
        else:
            claimed.result(timeout=60)
        connection.commit()
        assert {task.id for task in taken} | set(claimed.result(timeout=60)) <= set(ids)
    assert mutex.is_contended


def _has_sent_an_update(store: Database) -> bool:
    """Whether an UPDATE of tasks runs in this database; on MySQL it gives up rows that it waited a second for."""
    updates = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'UPDATE tasks%'"
    return store.read(lambda connection: int(connection.execute(sa.text(updates)).scalar_one())) > 0
