"""A database that is away: repeated attempts to connect leave nothing in memory, and become less frequent."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import DatabaseOutageEnded, DatabaseOutageStarted, Event, EventBus
from peerd.store.connection.database import Database, DatabaseThreads
from peerd.store.connection.outages import MOST_RELAPSES, STEADY_AFTER, OutageTracker
from peerd.store.outcomes import ClaimId, TaskProgress
from peerd.work.active_claims import ActiveClaims, Toucher

UNREACHABLE = ["mysql://peerd@127.0.0.1:9/peerd", "postgresql://peerd@127.0.0.1:9/peerd"]
WAYS = ["run", "run_short", "run_group", "read"]
KILL_ITSELF = {"mysql": "KILL CONNECTION_ID()", "postgresql": "SELECT pg_terminate_backend(pg_backend_pid())"}
HELD = ClaimId(1, 1)


def garbage_of(fail: Callable[[], None]) -> int:
    """Objects that only the collector frees, left by something that is done twice; the first time brings imports."""
    fail()
    gc.collect()
    gc.disable()
    gc.freeze()  # what is there is not looked at
    try:
        fail()
        return gc.collect()
    finally:
        gc.enable()


def anything(connection: Connection) -> None:
    """An operation that is never reached."""


def break_off(connection: Connection) -> None:
    connection.exec_driver_sql(KILL_ITSELF[connection.dialect.name])
    connection.exec_driver_sql("SELECT 1")


@pytest.mark.parametrize("url", UNREACHABLE)
def test_a_failed_connect_leaves_nothing_to_the_garbage_collector(url: str) -> None:
    database = Database(url)

    def fail(way: str) -> None:
        with pytest.raises(DatabaseUnavailable):
            getattr(database, way)(anything)

    assert {way: garbage_of(partial(fail, way)) for way in WAYS} == dict.fromkeys(WAYS, 0)


@pytest.mark.parametrize("url", UNREACHABLE)
def test_a_failed_connect_in_an_event_loop_leaves_nothing_to_the_garbage_collector(url: str) -> None:
    threads = DatabaseThreads(Database(url))

    async def attempt() -> None:
        await threads.run(anything)

    async def fail() -> None:
        try:
            await attempt()
        except DatabaseUnavailable as error:
            assert error.reason  # noqa: PT017 - what pytest.raises keeps of it would be counted

    with asyncio.Runner() as runner:
        assert garbage_of(lambda: runner.run(fail())) == 0
    threads.close()


def test_a_connection_that_is_lost_in_the_middle_leaves_nothing_to_the_garbage_collector(server_database: str) -> None:
    database = Database(server_database)

    def fail() -> None:
        with pytest.raises(DatabaseUnavailable):
            database.run(break_off)

    assert garbage_of(fail) == 0
    database.close()


def test_touching_pauses_longer_and_longer_while_the_database_is_away() -> None:
    active_claims = ActiveClaims()
    active_claims.begin_claim(token=1)
    active_claims.end_claim(1, [HELD])
    toucher = Toucher(
        Database(UNREACHABLE[1]),
        process_id=1,
        active_claims=active_claims,
        update=3.0,
        lost=lambda _: None,
        outages=OutageTracker(EventBus(), clock=lambda: 0.0),
        events=EventBus(),
    )
    now, rounds = 0.0, 0
    while now < 60.0 and rounds < 1000:  # a minute, in which the handler reports its progress all the time
        active_claims.report(HELD, TaskProgress(min(now / 60.0, 1.0)))
        now += toucher.round(now)
        rounds += 1
    assert rounds <= 40


def test_a_database_that_comes_and_goes_is_lost_until_it_is_steady() -> None:
    events: list[Event] = []
    now = 100.0
    tracker = OutageTracker(EventBus(events.append), lambda: now)
    refused = DatabaseUnavailable("it takes no writes")
    for _ in range(30):
        now += 0.5
        tracker.lost(refused)
        now += 0.5
        tracker.found()
    started = [event for event in events if isinstance(event, DatabaseOutageStarted)]
    ended = [event for event in events if isinstance(event, DatabaseOutageEnded)]
    assert (len(started), len(ended)) == (MOST_RELAPSES + 1, MOST_RELAPSES), "it is lost"
    now += STEADY_AFTER
    tracker.found()
    assert isinstance(events[-1], DatabaseOutageEnded)
    assert 25.0 < events[-1].seconds < 40.0, "of all of the time since the last relapse that was reported"
    now += STEADY_AFTER
    for _ in range(2):
        tracker.lost(refused)
    tracker.found()
    assert len(events) == 2 * (MOST_RELAPSES + 2), "a later outage is reported at once, and so is its end"
