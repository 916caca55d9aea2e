"""Conformance: `peek` and `kick` in all their forms."""

from __future__ import annotations

import pytest

from tests.gateway.beanstalk_connection import BeanstalkConnection, found, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import NOT_FOUND, STATES, put_in_state, wait_until_waiting

# ---------------------------------------------------------------- peek


@pytest.mark.parametrize("state", STATES)
def test_peek_shows_a_job_that_is(connect: Connect, state: str) -> None:
    owner, other = connect(), connect()
    job_id = put_in_state(owner, state, b"look")
    assert other.ask(b"peek %d\r\n" % job_id) == found(job_id, b"look")


def test_peek_shows_a_job_that_another_has_reserved(connect: Connect) -> None:
    owner, other = connect(), connect()
    job_id = owner.put(b"look")
    owner.reserve()
    assert other.ask(b"peek %d\r\n" % job_id) == found(job_id, b"look")


def test_peek_of_a_state_looks_at_the_used_tube(connection: BeanstalkConnection) -> None:
    for state in STATES:
        put_in_state(connection, state)
    connection.use(b"other")
    for state in STATES:
        assert connection.ask(b"peek-%b\r\n" % state.encode()) == NOT_FOUND


def test_peek_ready_shows_the_lowest_priority_then_the_oldest(connection: BeanstalkConnection) -> None:
    connection.put(b"late", priority=2)
    first = connection.put(b"first", priority=1)
    connection.put(b"second", priority=1)
    assert connection.ask(b"peek-ready\r\n") == found(first, b"first")


def test_peek_delayed_shows_the_job_that_is_due_first(connection: BeanstalkConnection) -> None:
    connection.put(b"later", delay=200)
    soonest = connection.put(b"soonest", delay=100)
    connection.put(b"latest", delay=300)
    assert connection.ask(b"peek-delayed\r\n") == found(soonest, b"soonest")


def test_peek_buried_shows_the_job_that_was_buried_first(connection: BeanstalkConnection) -> None:
    low, high = connection.put(priority=9), connection.put(priority=1)
    for job_id, priority in ((low, 9), (high, 1)):
        connection.ask(b"reserve-job %d\r\n" % job_id)
        connection.ask(b"bury %d %d\r\n" % (job_id, priority))
    assert connection.ask(b"peek-buried\r\n") == found(low)


# ---------------------------------------------------------------- kick, kick-job


def test_kick_takes_buried_jobs_in_the_order_of_their_burial(connection: BeanstalkConnection) -> None:
    jobs = [connection.put(priority=9 - number) for number in range(3)]
    for job_id in reversed(jobs):
        connection.ask(b"reserve-job %d\r\n" % job_id)
        connection.ask(b"bury %d 0\r\n" % job_id)
    assert connection.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert [connection.job(job_id)["state"] for job_id in jobs] == ["buried", "ready", "ready"]


def test_kick_leaves_delayed_jobs_alone_while_there_are_buried_ones(connection: BeanstalkConnection) -> None:
    delayed, buried = connection.put(delay=100), put_in_state(connection, "buried")
    assert connection.ask(b"kick 10\r\n") == b"KICKED 1\r\n"
    assert [connection.job(delayed)["state"], connection.job(buried)["state"]] == ["delayed", "ready"]


def test_kick_takes_delayed_jobs_that_are_due_first(connection: BeanstalkConnection) -> None:
    jobs = {delay: connection.put(delay=delay) for delay in (300, 100, 200)}
    assert connection.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert {delay: connection.job(job_id)["state"] for delay, job_id in jobs.items()} == {
        100: "ready",
        200: "ready",
        300: "delayed",
    }


def test_kick_looks_at_the_used_tube_alone(connection: BeanstalkConnection) -> None:
    put_in_state(connection, "buried")
    connection.use(b"other")
    assert connection.ask(b"kick 10\r\n") == b"KICKED 0\r\n"


def test_a_kicked_job_keeps_its_priority_and_its_delay_and_counts_the_kick(connection: BeanstalkConnection) -> None:
    job_id = connection.put(priority=5, delay=100)
    assert connection.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["delay"], shown["kicks"]) == ("ready", "5", "100", "1")


def test_kick_wakes_a_client_that_waits(connect: Connect) -> None:
    kicker, waiting = connect(), connect()
    job_id = kicker.put(delay=100)
    waiting.send(b"reserve\r\n")
    wait_until_waiting(kicker, 1)
    assert kicker.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    assert waiting.receive() == reserved(job_id)


@pytest.mark.parametrize("state", ["delayed", "buried"])
def test_kick_job_makes_a_job_ready_that_is(connect: Connect, state: str) -> None:
    owner, other = connect(), connect()
    job_id = put_in_state(owner, state)
    other.use(b"elsewhere")
    assert other.ask(b"kick-job %d\r\n" % job_id) == b"KICKED\r\n"
    shown = owner.job(job_id)
    assert (shown["state"], shown["kicks"]) == ("ready", "1")


def test_kick_job_does_not_find_a_job_that_is_ready_or_reserved(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    assert connection.ask(b"kick-job %d\r\n" % job_id) == NOT_FOUND
    connection.reserve()
    assert connection.ask(b"kick-job %d\r\n" % job_id) == NOT_FOUND
