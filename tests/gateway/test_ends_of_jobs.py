"""Conformance: `delete`, `release`, `bury` and `touch`: what a holder does with its job, and what others may do."""

from __future__ import annotations

import pytest

from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import DELETED, NOT_FOUND, STATES, TIMED_OUT, put_in_state, wait_until_waiting

# ---------------------------------------------------------------- delete


@pytest.mark.parametrize("state", STATES)
def test_anybody_deletes_a_job_that_is(connect: Connect, state: str) -> None:
    owner, other = connect(), connect()
    job_id = put_in_state(owner, state)
    assert other.ask(b"delete %d\r\n" % job_id) == DELETED
    assert owner.ask(b"peek %d\r\n" % job_id) == NOT_FOUND


def test_the_holder_deletes_a_reserved_job_and_nobody_else(connect: Connect) -> None:
    holder, other = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    assert other.ask(b"delete %d\r\n" % job_id) == NOT_FOUND
    assert holder.ask(b"delete %d\r\n" % job_id) == DELETED
    assert holder.ask(b"delete %d\r\n" % job_id) == NOT_FOUND


# ---------------------------------------------------------------- release, bury, touch


def test_release_makes_a_job_ready_with_another_priority(connection: BeanstalkConnection) -> None:
    job_id = connection.put(priority=5)
    connection.reserve()
    assert connection.ask(b"release %d 7 0\r\n" % job_id) == b"RELEASED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["delay"], shown["releases"]) == ("ready", "7", "0", "1")


def test_release_with_a_delay_makes_a_job_delayed(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    connection.reserve()
    assert connection.ask(b"release %d 0 100\r\n" % job_id) == b"RELEASED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["delay"]) == ("delayed", "100")
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_release_wakes_a_client_that_waits(connect: Connect) -> None:
    holder, waiting = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(holder, 1)
    assert holder.ask(b"release %d 0 0\r\n" % job_id) == b"RELEASED\r\n"
    assert waiting.receive() == reserved(job_id)


def test_bury_puts_a_reserved_job_aside_with_another_priority(connection: BeanstalkConnection) -> None:
    job_id = connection.put(priority=5)
    connection.reserve()
    assert connection.ask(b"bury %d 9\r\n" % job_id) == b"BURIED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["buries"]) == ("buried", "9", "1")
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_touch_gives_the_whole_ttr_again(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=100)
    connection.reserve()
    assert connection.ask(b"touch %d\r\n" % job_id) == b"TOUCHED\r\n"
    assert int(connection.job(job_id)["time-left"]) in (99, 100)


OF_THE_HOLDER = [b"release %d 0 0\r\n", b"bury %d 0\r\n", b"touch %d\r\n"]


@pytest.mark.parametrize("command", OF_THE_HOLDER, ids=["release", "bury", "touch"])
@pytest.mark.parametrize("state", STATES)
def test_what_only_a_holder_may_do_is_not_found_for_a_job_that_is(
    connection: BeanstalkConnection, state: str, command: bytes
) -> None:
    job_id = put_in_state(connection, state)
    assert connection.ask(command % job_id) == NOT_FOUND
    assert connection.job(job_id)["state"] == state


@pytest.mark.parametrize("command", OF_THE_HOLDER, ids=["release", "bury", "touch"])
def test_what_only_a_holder_may_do_is_not_found_for_others(connect: Connect, command: bytes) -> None:
    holder, other = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    assert other.ask(command % job_id) == NOT_FOUND
    assert holder.job(job_id)["state"] == "reserved"
