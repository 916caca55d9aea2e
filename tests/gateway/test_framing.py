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
LARGEST = 65535
REFUSED: dict[bytes, list[bytes]] = {
    b"x" * 222 + b"\r\n": [UNKNOWN],
    **{b"x" * (length - 2) + b"\r\n": [BAD_FORMAT] for length in (225, 226, 300, 449, 450, 5000)},
    b"use " + b"a" * 250 + b"\r\n": [BAD_FORMAT],
    b"\r\n": [BAD_FORMAT],
    b"list-tube-used\n" + PROBE: [BAD_FORMAT],
    b"list-tube-used\r" + PROBE: [BAD_FORMAT],
    b"list\0tubes\r\n": [BAD_FORMAT],
    b"delete 1x\r\n": [BAD_FORMAT],
    b"use -a\r\n": [BAD_FORMAT],
    b"put 0 0 60 -3\r\nabc\r\n": [BAD_FORMAT, UNKNOWN],
    b"put 0 0 60 3\r\nabcdeword\r\n": [b"EXPECTED_CRLF\r\n", UNKNOWN],
    b"put 0 0 60 3\r\nabc\r!": [b"EXPECTED_CRLF\r\n"],
    **{b"put 0 0 60 %d\r\n%b\r\n" % (size, b"\n" * size): [TOO_BIG] for size in (LARGEST + 1, 70_000, 1_000_000)},
}
"""What is sent, and what is answered before the next command is understood."""
BODIES = (
    b"", b"\r\n", b"\0", b"a\r\nb\r\n", b"\n", b"put 0 0 60 1\r\nx", bytes(range(256)), b"\xff" * 1000,
    "prüfung".encode(), bytes(LARGEST),
)  # fmt: skip


def test_what_is_refused_leaves_the_connection_in_step(connection: BeanstalkConnection) -> None:
    answers = {sent: connection.ask_all(sent + PROBE, len(due) + 1) for sent, due in REFUSED.items()}
    assert answers == {sent: [*due, IN_STEP] for sent, due in REFUSED.items()}
    assert connection.ask(b"peek-ready\r\n") == NOT_FOUND


def test_lines_and_bodies_may_come_in_many_packets(connection: BeanstalkConnection) -> None:
    put = b"put 0 0 60 5\r\nhel\r\n\r\n"
    for packets in (
        [put[place : place + 1] for place in range(len(put))],
        *([put[:cut], put[cut:]] for cut in range(1, len(put))),
    ):
        for packet in packets:
            connection.send(packet)
        assert connection.receive().startswith(b"INSERTED "), packets
        job_id = connection.reserve()
        assert connection.ask(b"peek %d\r\n" % job_id) == found(job_id, b"hel\r\n"), packets
    for begin, answer in (
        (b"y", BAD_FORMAT),
        (b"put 0 0 60 1000\r\n", b"INSERTED"),
        (b"put 0 0 60 70000\r\n", TOO_BIG),
    ):
        connection.send(begin)
        for _ in range(70 if answer is TOO_BIG else 1):
            connection.send(b"y" * 1000)
        first, second = connection.ask_all(b"\r\n" + PROBE, 2)
        assert (first[: len(answer)], second) == (answer, IN_STEP)


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


def test_quit_closes_the_connection_without_an_answer(connection: BeanstalkConnection) -> None:
    connection.send(b"quit\r\n" + PROBE)
    assert connection.ends() == b""


def test_an_id_of_64_bits_that_no_job_has_is_not_found(connection: BeanstalkConnection) -> None:
    for command in (
        b"delete %b", b"release %b 0 0", b"bury %b 0", b"touch %b", b"peek %b", b"kick-job %b", b"stats-job %b",
        b"reserve-job %b",
    ):  # fmt: skip
        for number in (b"9223372036854775807", b"9223372036854775808", b"18446744073709551615", b"0", b"007000000"):
            assert connection.ask(command % number + b"\r\n") == NOT_FOUND, (command, number)


def test_the_largest_numbers_are_kept(connect: Connect) -> None:
    connection, waiting = connect(), connect()
    most = 2**32 - 1
    for given, kept in (
        ((b"007", b" 0", b"060"), (7, 0, 60)),
        ((b"%d" % most, b"0", b"60"), (most, 0, 60)),
        ((b"5", b"%d" % most, b"60"), (5, most, 60)),
        ((b"5", b"0", b"%d" % most), (5, 0, most)),
        ((b"5", b"0", b"0"), (5, 0, 1)),
    ):
        answer = connection.ask(b"put %b 1\r\nx\r\n" % b" ".join(given))
        shown = connection.job(int(answer.split()[1]))
        assert (shown["pri"], shown["delay"], shown["ttr"]) == tuple(map(str, kept))
        assert shown["state"] == ("delayed" if kept[1] else "ready")
    waiting.watch_only(b"t")
    waiting.send(b"reserve-with-timeout 2147483647\r\n")
    connection.use(b"t")
    job_id = connection.put()
    assert waiting.receive() == reserved(job_id)


def test_a_body_comes_back_byte_by_byte(connection: BeanstalkConnection) -> None:
    for body in BODIES:
        job_id = connection.put(body)
        assert connection.ask(b"peek %d\r\n" % job_id) == found(job_id, body)
        assert connection.ask(b"reserve\r\n") == reserved(job_id, body)
