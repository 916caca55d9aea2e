"""Conformance: `put`, `use`, and the ways to reserve."""

from __future__ import annotations

import pytest

from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import DELETED, NOT_FOUND, STATES, TIMED_OUT, put_in_state, wait_until_waiting

# ---------------------------------------------------------------- put, use


def test_put_answers_with_ids_that_grow(connect: Connect) -> None:
    one, other = connect(), connect()
    given = [one.put(), other.put(), one.put(), other.put()]
    assert given == sorted(set(given))


def test_put_uses_default_until_another_tube_is_used(connection: BeanstalkConnection) -> None:
    first = connection.put()
    assert connection.ask(b"use other\r\n") == b"USING other\r\n"
    second = connection.put()
    assert [connection.job(first)["tube"], connection.job(second)["tube"]] == ["default", "other"]


def test_an_id_is_never_given_twice(connection: BeanstalkConnection) -> None:
    first = connection.put()
    assert connection.ask(b"delete %d\r\n" % first) == DELETED
    assert connection.put() > first


def test_a_job_that_is_put_with_a_delay_is_delayed(connection: BeanstalkConnection) -> None:
    job_id = connection.put(delay=100)
    assert connection.job(job_id)["state"] == "delayed"
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_use_does_not_watch(connection: BeanstalkConnection) -> None:
    connection.use(b"other")
    connection.put()
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


# ---------------------------------------------------------------- reserve


def test_reserve_waits_until_a_job_is_put(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(other, 1)
    assert waiting.answer_that_came() is None
    job_id = other.put(b"at last")
    assert waiting.receive() == reserved(job_id, b"at last")


def test_reserve_with_timeout_0_answers_at_once(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT
    job_id = connection.put()
    assert connection.ask(b"reserve-with-timeout 0\r\n") == reserved(job_id)


def test_reserve_with_timeout_gives_a_job_that_comes_in_time(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve-with-timeout 100\r\n")
    wait_until_waiting(other, 1)
    job_id = other.put()
    assert waiting.receive() == reserved(job_id)


def test_reserve_with_timeout_1_answers_after_a_second(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve-with-timeout 1\r\n")
    wait_until_waiting(other, 1)
    assert waiting.answer_that_came() is None
    assert waiting.receive() == TIMED_OUT
    assert other.tube()["current-waiting"] == "0"


def test_a_reserved_job_is_given_to_nobody_else(connect: Connect) -> None:
    holder, other = connect(), connect()
    holder.put()
    holder.reserve()
    assert other.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_a_client_that_ends_its_side_while_it_waits_gets_timed_out(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(other, 1)
    waiting.send_end()
    assert waiting.receive() == TIMED_OUT


def test_a_client_that_has_left_gets_no_job(connect: Connect) -> None:
    gone, other = connect(), connect()
    gone.send(b"reserve\r\n")
    wait_until_waiting(other, 1)
    gone.close()
    wait_until_waiting(other, 0)
    job_id = other.put()
    assert other.reserve() == job_id


# ---------------------------------------------------------------- reserve-job


@pytest.mark.parametrize("state", STATES)
def test_reserve_job_takes_a_job_that_is(connection: BeanstalkConnection, state: str) -> None:
    job_id = put_in_state(connection, state, b"body")
    assert connection.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id, b"body")
    assert connection.job(job_id)["state"] == "reserved"


def test_reserve_job_does_not_take_a_reserved_job_not_even_ones_own(connect: Connect) -> None:
    holder, other = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    command = b"reserve-job %d\r\n" % job_id
    assert [holder.ask(command), other.ask(command)] == [NOT_FOUND, NOT_FOUND]


def test_reserve_job_ignores_the_watch_list_and_the_pause(connect: Connect) -> None:
    producer, taker = connect(), connect()
    producer.use(b"elsewhere")
    job_id = producer.put()
    assert producer.ask(b"pause-tube elsewhere 100\r\n") == b"PAUSED\r\n"
    assert taker.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id)
