"""Conformance: `put`, the ways to reserve, what holders and others may do with a job, `peek` and `kick`."""

from __future__ import annotations

import time

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection, found, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import (
    DELETED,
    NOT_FOUND,
    RESERVE_NOW,
    STATES,
    TIMED_OUT,
    begin_to_wait,
    put_in_state,
    wait_until_waiting,
)

ANSWERS = {
    # command: for a job that is ready, delayed, buried, reserved by who asks, and by another
    b"delete %d": ("DELETED", "DELETED", "DELETED", "DELETED", "NOT_FOUND"),
    b"release %d 0 0": ("NOT_FOUND", "NOT_FOUND", "NOT_FOUND", "RELEASED", "NOT_FOUND"),
    b"bury %d 0": ("NOT_FOUND", "NOT_FOUND", "NOT_FOUND", "BURIED", "NOT_FOUND"),
    b"touch %d": ("NOT_FOUND", "NOT_FOUND", "NOT_FOUND", "TOUCHED", "NOT_FOUND"),
    b"kick-job %d": ("NOT_FOUND", "KICKED", "KICKED", "NOT_FOUND", "NOT_FOUND"),
    b"reserve-job %d": ("RESERVED", "RESERVED", "RESERVED", "NOT_FOUND", "NOT_FOUND"),
    b"peek %d": ("FOUND", "FOUND", "FOUND", "FOUND", "FOUND"),
}
BECOMES = {"DELETED": None, "RELEASED": "ready", "BURIED": "buried", "KICKED": "ready", "RESERVED": "reserved"}


def test_each_command_does_its_part_with_a_job_in_each_state(connect: Connect) -> None:
    asking, other = connect(), connect()
    states = (*STATES, "reserved", "reserved")
    for command, due in ANSWERS.items():
        owners = (other, other, other, asking, other)
        jobs = [put_in_state(owner, state) for owner, state in zip(owners, states, strict=True)]
        answers = [asking.ask(command % job_id + b"\r\n") for job_id in jobs]
        assert tuple(answer.split()[0].decode() for answer in answers) == due, command
        for job_id, state, answer in zip(jobs, states, due, strict=True):
            becomes = BECOMES.get(answer, state)
            shown = other.ask(b"stats-job %d\r\n" % job_id)
            assert shown == NOT_FOUND if becomes is None else f"\nstate: {becomes}\n".encode() in shown, command


# ---------------------------------------------------------------- put, use


def test_put_answers_with_ids_that_grow_and_gives_none_twice(connect: Connect) -> None:
    one, other = connect(), connect()
    given = [one.put(), other.put(), one.put(), other.put()]
    assert given == sorted(set(given))
    assert one.ask(b"delete %d\r\n" % given[-1]) == DELETED
    assert one.put() > given[-1]


def test_put_uses_default_until_another_tube_is_used_which_is_not_watched(connection: BeanstalkConnection) -> None:
    first = connection.put()
    assert connection.ask(b"use other\r\n") == b"USING other\r\n"
    second = connection.put()
    assert [connection.job(first)["tube"], connection.job(second)["tube"]] == ["default", "other"]
    assert connection.reserve() == first
    assert connection.ask(RESERVE_NOW) == TIMED_OUT


# ---------------------------------------------------------------- reserve


def test_a_reserve_waits_until_a_job_is_put(connect: Connect) -> None:
    waiting, other = connect(), connect()
    for command in (b"reserve\r\n", b"reserve-with-timeout 100\r\n"):
        waiting.send(command)
        wait_until_waiting(other, 1)
        assert waiting.answer_that_came() is None
        job_id = other.put(b"at last")
        assert waiting.receive() == reserved(job_id, b"at last")


def test_a_reserve_ends_with_its_timeout(connect: Connect) -> None:
    waiting, other = connect(), connect()
    assert waiting.ask(RESERVE_NOW) == TIMED_OUT
    began = time.monotonic()
    assert waiting.ask(b"reserve-with-timeout 1\r\n") == TIMED_OUT
    assert time.monotonic() - began >= 1.0
    assert other.tube()["current-waiting"] == "0"
    other.put(delay=100)
    put_in_state(other, "reserved")
    assert waiting.ask(RESERVE_NOW) == TIMED_OUT


def test_a_client_that_ends_its_side_while_it_waits_gets_timed_out(connect: Connect) -> None:
    waiting, other = connect(), connect()
    begin_to_wait(other, waiting)
    waiting.send_end()
    assert waiting.receive() == TIMED_OUT


def test_a_client_that_has_left_gets_no_job(connect: Connect) -> None:
    gone, other = connect(), connect()
    begin_to_wait(other, gone)
    gone.close()
    wait_until_waiting(other, 0)
    job_id = other.put()
    assert other.reserve() == job_id


def test_reserve_job_ignores_the_watch_list_and_the_pause(connect: Connect) -> None:
    producer, taker = connect(), connect()
    producer.use(b"elsewhere")
    jobs = {state: put_in_state(producer, state, b"body") for state in STATES}
    assert producer.ask(b"pause-tube elsewhere 100\r\n") == b"PAUSED\r\n"
    for job_id in jobs.values():
        assert taker.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id, b"body")


# ---------------------------------------------------------------- what changes


def test_each_command_changes_what_stats_job_shows(connection: BeanstalkConnection) -> None:
    for command, due in (
        (b"release %d 7 0\r\n", {"state": "ready", "pri": "7", "delay": "0", "releases": "1"}),
        (b"release %d 7 100\r\n", {"state": "delayed", "pri": "7", "delay": "100", "releases": "1"}),
        (b"bury %d 9\r\n", {"state": "buried", "pri": "9", "buries": "1"}),
    ):
        job_id = put_in_state(connection, "reserved", priority=5)
        assert not connection.ask(command % job_id).startswith(b"NOT")
        shown = connection.job(job_id)
        assert {name: shown[name] for name in due} == due
        assert command.endswith(b"7 0\r\n") == (connection.ask(RESERVE_NOW) != TIMED_OUT)
    job_id = connection.put(priority=5, delay=100)
    connection.use(b"elsewhere")
    assert connection.ask(b"kick-job %d\r\n" % job_id) == b"KICKED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["delay"], shown["kicks"]) == ("ready", "5", "100", "1")


def test_touch_gives_the_whole_ttr_again(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=100)
    connection.reserve()
    eventually(lambda: int(connection.job(job_id)["time-left"]) < 99)
    began = time.monotonic()
    assert connection.ask(b"touch %d\r\n" % job_id) == b"TOUCHED\r\n"
    assert int(connection.job(job_id)["time-left"]) >= 99 - (time.monotonic() - began)


def test_what_makes_a_job_ready_wakes_a_client_that_waits(connect: Connect) -> None:
    owner, waiting = connect(), connect()
    for state, command in (
        ("reserved", b"release %d 0 0\r\n"),
        ("delayed", b"kick-job %d\r\n"),
        ("buried", b"kick-job %d\r\n"),
        ("delayed", b"kick 1\r\n"),
        ("buried", b"kick 1\r\n"),
    ):
        job_id = put_in_state(owner, state)
        begin_to_wait(owner, waiting)
        owner.ask(command % job_id if b"%d" in command else command)
        assert waiting.receive() == reserved(job_id), (state, command)
        assert waiting.ask(b"delete %d\r\n" % job_id) == DELETED


# ---------------------------------------------------------------- peek, kick


def test_peek_of_a_state_shows_the_first_job_of_the_used_tube(connection: BeanstalkConnection) -> None:
    connection.put(b"late", priority=2)
    ready = connection.put(b"first", priority=1)
    connection.put(b"second", priority=1)
    delayed = [connection.put(b"%d" % delay, delay=delay) for delay in (200, 100, 300)][1]
    buried, other = connection.put(priority=9), connection.put(priority=0)
    for job_id in (buried, other):
        connection.ask_all(b"reserve-job %d\r\nbury %d 0\r\n" % (job_id, job_id), 2)
    peeks = b"peek-ready\r\npeek-delayed\r\npeek-buried\r\n"
    assert connection.ask_all(peeks, 3) == [found(ready, b"first"), found(delayed, b"100"), found(buried)]
    connection.use(b"other")
    assert connection.ask_all(peeks, 3) == [NOT_FOUND] * 3


def test_kick_takes_buried_jobs_in_the_order_of_their_burial_and_else_delayed_ones_that_are_due_first(
    connection: BeanstalkConnection,
) -> None:
    buried = [connection.put(priority=9 - number) for number in range(3)]
    for job_id in reversed(buried):
        connection.ask_all(b"reserve-job %d\r\nbury %d 0\r\n" % (job_id, job_id), 2)
    delayed = [connection.put(delay=delay) for delay in (300, 100, 200)]

    def states() -> list[str]:
        return [connection.job(job_id)["state"] for job_id in (*buried, *delayed)]

    connection.use(b"other")
    assert connection.ask(b"kick 10\r\n") == b"KICKED 0\r\n"
    connection.use(b"default")
    assert connection.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert states() == ["buried", "ready", "ready", "delayed", "delayed", "delayed"]
    assert connection.ask(b"kick 10\r\n") == b"KICKED 1\r\n"
    assert states() == ["ready", "ready", "ready", "delayed", "delayed", "delayed"]
    assert connection.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert states() == ["ready", "ready", "ready", "delayed", "ready", "ready"]
