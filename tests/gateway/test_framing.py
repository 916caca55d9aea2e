"""Conformance: bytes of a socket become commands. What a line may be is a table in tests/unit/gateway."""

from __future__ import annotations

from tests.gateway.beanstalk_connection import BeanstalkConnection, found, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import NOT_FOUND

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
    assert connection.ask_all(commands, 7) == [
        b"USING t\r\n",
        b"INSERTED %d\r\n" % (first + 1),
        reserved(first, b"a"),
        found(first + 1, b"b"),
        b"WATCHING 2\r\n",
        reserved(first + 1, b"b"),
        b"USING t\r\n",
    ]
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
