"""Conformance: what bytes become commands, the ways to reserve, and what holders and others may do with a job."""

from __future__ import annotations

import time

from tests.gateway.beanstalk_connection import (
    DELETED,
    NOT_FOUND,
    RESERVE_NOW,
    STATES,
    TIMED_OUT,
    BeanstalkConnection,
    begin_to_wait,
    put_in_state,
    reserved,
    wait_until_waiting,
)
from tests.gateway.conftest import Connect

BAD_FORMAT = b"BAD_FORMAT\r\n"
UNKNOWN = b"UNKNOWN_COMMAND\r\n"
TOO_BIG = b"JOB_TOO_BIG\r\n"
PROBE = b"list-tube-used\r\n"
IN_STEP = b"USING default\r\n"
REFUSED: dict[bytes, list[bytes]] = {
    b"x" * 222 + b"\r\n": [UNKNOWN],
    **{b"x" * (length - 2) + b"\r\n": [BAD_FORMAT] for length in (225, 226, 450, 5000)},
    b"list-tube-used\n" + PROBE: [BAD_FORMAT],
    b"delete 1x\r\n": [BAD_FORMAT],
    b"put 0 0 60 -3\r\nabc\r\n": [BAD_FORMAT, UNKNOWN],
    b"put 0 0 60 3\r\nabcdeword\r\n": [b"EXPECTED_CRLF\r\n", UNKNOWN],
    b"\r\n": [UNKNOWN],
    b"put 0 0 60 3\r\nabcde\r\n": [b"EXPECTED_CRLF\r\n", UNKNOWN],
    b"put 0 0 60 3\r\nabc\r!": [b"EXPECTED_CRLF\r\n"],
    **{b"put 0 0 60 %d\r\n%b\r\n" % (size, b"\n" * size): [TOO_BIG] for size in (65_536, 1_000_000)},
}
"""What is sent, and what is answered before the next command is understood."""


def test_what_is_refused_leaves_the_connection_in_step(connection: BeanstalkConnection) -> None:
    answers = {sent: connection.ask_all(sent + PROBE, len(due) + 1) for sent, due in REFUSED.items()}
    assert answers == {sent: [*due, IN_STEP] for sent, due in REFUSED.items()}
    assert connection.ask(b"peek-ready\r\n") == NOT_FOUND


def test_pipelined_commands_are_answered_in_order(connect: Connect) -> None:
    connection, other = connect(), connect()
    first = connection.put(b"a")
    commands = b"use t\r\nput 0 0 60 1\r\nb\r\nreserve\r\npeek-ready\r\nwatch t\r\nreserve\r\nlist-tube-used\r\n"
    assert b"".join(connection.ask_all(commands, 7)) == (
        b"USING t\r\nINSERTED %d\r\nRESERVED %d 1\r\na\r\n" % (first + 1, first)
        + b"FOUND %d 1\r\nb\r\nWATCHING 2\r\nRESERVED %d 1\r\nb\r\nUSING t\r\n" % (first + 1, first + 1)
    )
    answers = connection.ask_all(b"put 0 0 60 3\r\nabc\r\n" * 1000, 1000)
    assert answers == [b"INSERTED %d\r\n" % (first + 2 + number) for number in range(1000)]
    other.send(b"reserve\r\n" + PROBE)
    job_id = connect().put(b"late")
    assert [other.receive(), other.receive()] == [reserved(job_id, b"late"), IN_STEP]


def test_numbers_beyond_those_of_a_database_have_their_answers(connection: BeanstalkConnection) -> None:
    for command in (
        b"delete %d", b"release %d 0 0", b"bury %d 0", b"touch %d", b"peek %d", b"kick-job %d", b"stats-job %d",
        b"reserve-job %d",
    ):  # fmt: skip
        for number in (2**63 - 1, 2**63, 2**64 - 1):
            assert connection.ask(command % number + b"\r\n") == NOT_FOUND, (command, number)
    most = 2**32 - 1
    for priority, delay, ttr, kept in ((most, 0, most, most), (5, most, 0, 1)):
        shown = connection.job(connection.put(priority=priority, delay=delay, ttr=ttr))
        assert (shown["pri"], shown["delay"], shown["ttr"]) == (str(priority), str(delay), str(kept))
    assert connection.ask(b"reserve-with-timeout 2147483647\r\n").startswith(b"RESERVED ")


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
        ("reserved", b"release %d 0 0\r\n"), ("delayed", b"kick-job %d\r\n"), ("buried", b"kick-job %d\r\n"),
        ("delayed", b"kick 1\r\n"), ("buried", b"kick 1\r\n"),
    ):  # fmt: skip
        job_id = put_in_state(owner, state)
        begin_to_wait(owner, waiting)
        owner.ask(command % job_id if b"%d" in command else command)
        assert waiting.receive() == reserved(job_id), (state, command)
        assert waiting.ask(b"delete %d\r\n" % job_id) == DELETED
