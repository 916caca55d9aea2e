"""Conformance: the ways to reserve, and what holders and others may do with a job."""

from __future__ import annotations

import time

from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved
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


# ---------------------------------------------------------------- reserve


def test_a_reserve_waits_until_a_job_is_put(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve-with-timeout 100\r\n")
    wait_until_waiting(other, 1)
    assert waiting.answer_that_came() is None
    job_id = other.put(b"at last")
    assert waiting.receive() == reserved(job_id, b"at last")


def test_a_reserve_ends_with_its_timeout(connect: Connect) -> None:
    waiting, other = connect(), connect()
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
