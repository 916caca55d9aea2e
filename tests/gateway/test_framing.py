"""Conformance: how bytes become commands, and the limits of their numbers, names and bodies."""

from __future__ import annotations

import pytest

from tests.gateway.beanstalk_connection import BeanstalkConnection, found, reserved
from tests.gateway.conftest import Connect, StartServer

pytestmark = pytest.mark.one_database

BAD_FORMAT = b"BAD_FORMAT\r\n"
UNKNOWN = b"UNKNOWN_COMMAND\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
PROBE = b"list-tube-used\r\n"
IN_STEP = b"USING default\r\n"
MAX_JOB_SIZE = 65535
LONGEST_LINE = 224


def ids(lines: list[bytes]) -> list[str]:
    return [repr(line)[2:-1] for line in lines]


# ---------------------------------------------------------------- lines


def test_a_line_of_224_bytes_is_read(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"x" * (LONGEST_LINE - 2) + b"\r\n") == UNKNOWN


def test_a_longer_line_is_bad_format_once_and_the_connection_stays_in_step(connection: BeanstalkConnection) -> None:
    for length in (LONGEST_LINE + 2, 300, 448, 450, 5000):
        answers = connection.ask_all(b"x" * (length - 2) + b"\r\n" + PROBE, 2)
        assert answers == [BAD_FORMAT, IN_STEP], length


@pytest.mark.unlike_beanstalkd("it overlooks an end of line that lies across the end of its buffer")
@pytest.mark.parametrize("length", [LONGEST_LINE + 1, 2 * LONGEST_LINE + 1])
def test_no_length_of_a_longer_line_is_special(connection: BeanstalkConnection, length: int) -> None:
    connection.send(b"x" * (length - 2) + b"\r\n" + PROBE)
    assert [connection.receive(2.0), connection.receive(2.0)] == [BAD_FORMAT, IN_STEP]


def test_a_known_command_on_a_longer_line_is_bad_format(connection: BeanstalkConnection) -> None:
    assert connection.ask_all(b"use " + b"a" * 250 + b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


def test_a_longer_line_may_come_in_many_packets(connection: BeanstalkConnection) -> None:
    for _ in range(10):
        connection.send(b"y" * 100)
    assert connection.ask_all(b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


def test_a_bare_newline_ends_no_line(connection: BeanstalkConnection) -> None:
    assert connection.ask_all(b"list-tube-used\n" + PROBE + PROBE, 2) == [BAD_FORMAT, IN_STEP]


@pytest.mark.unlike_beanstalkd("it looks at the first carriage return of a line only")
def test_a_bare_carriage_return_ends_no_line(connection: BeanstalkConnection) -> None:
    connection.send(b"list-tube-used\r" + PROBE + PROBE)
    assert [connection.receive(2.0), connection.receive(2.0)] == [BAD_FORMAT, IN_STEP]


@pytest.mark.since_beanstalkd_1_13("an empty line is an unknown command")
def test_an_empty_line_is_bad_format(connection: BeanstalkConnection) -> None:
    assert connection.ask_all(b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


@pytest.mark.parametrize(
    "line", [b"list\0tubes", b"use a\0b", b"use a\0", b"reserve-with-timeout 0\0", b"kick 1\0"], ids=repr
)
def test_a_zero_byte_in_a_line_is_bad_format(connection: BeanstalkConnection, line: bytes) -> None:
    assert connection.ask_all(line + b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


def test_a_command_may_come_byte_by_byte(connection: BeanstalkConnection) -> None:
    whole = b"put 0 0 60 5\r\nhello\r\n"
    for place in range(len(whole)):
        connection.send(whole[place : place + 1])
    answer = connection.receive()
    assert answer.startswith(b"INSERTED ")


@pytest.mark.parametrize("cut", range(1, 21))
def test_a_command_may_be_split_anywhere(connection: BeanstalkConnection, cut: int) -> None:
    whole = b"put 0 0 60 5\r\nhel\r\n\r\n"
    connection.send(whole[:cut])
    assert connection.ask(whole[cut:]).startswith(b"INSERTED ")
    job_id = connection.reserve()
    assert connection.ask(b"peek %d\r\n" % job_id) == found(job_id, b"hel\r\n")


def test_pipelined_commands_are_answered_in_order(connection: BeanstalkConnection) -> None:
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


def test_a_thousand_pipelined_puts_are_answered_in_order(connection: BeanstalkConnection) -> None:
    first = connection.put()
    answers = connection.ask_all(b"put 0 0 60 3\r\nabc\r\n" * 1000, 1000)
    assert answers == [b"INSERTED %d\r\n" % (first + 1 + number) for number in range(1000)]


def test_what_follows_a_blocked_reserve_waits_for_its_answer(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve\r\n" + PROBE)
    job_id = other.put(b"late")
    assert [waiting.receive(), waiting.receive()] == [reserved(job_id, b"late"), IN_STEP]


# ---------------------------------------------------------------- names of commands

NOT_COMMANDS = [
    b"foo", b"PUT 0 0 60 1", b"List-Tubes", b" list-tubes", b"kick", b"put", b"delete", b"release", b"bury",
    b"touch", b"use", b"watch", b"ignore", b"stat", b"list", b"reserv", b"kick-job", b"exit",
]  # fmt: skip
PREFIXED = [
    b"peek-readyX", b"peek-ready 1", b"peek-delayed x", b"peek-buriedx", b"list-tubesx", b"list-tubes x",
    b"list-tubes ", b"list-tube-used x", b"list-tubes-watched x", b"statsx", b"stats x", b"stats_job 1",
    b"reservex", b"reserve x", b"reserve ",
]  # fmt: skip


@pytest.mark.parametrize("line", NOT_COMMANDS, ids=ids(NOT_COMMANDS))
def test_what_begins_as_no_command_is_unknown(connection: BeanstalkConnection, line: bytes) -> None:
    assert connection.ask_all(line + b"\r\n" + PROBE, 2) == [UNKNOWN, IN_STEP]


@pytest.mark.parametrize("line", PREFIXED, ids=ids(PREFIXED))
def test_more_after_a_command_without_arguments_is_bad_format(connection: BeanstalkConnection, line: bytes) -> None:
    assert connection.ask_all(line + b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


@pytest.mark.parametrize("line", [b"quit", b"quitfoo", b"quit 1"], ids=repr)
def test_whatever_begins_with_quit_closes_the_connection_without_an_answer(
    connection: BeanstalkConnection, line: bytes
) -> None:
    connection.send(line + b"\r\n" + PROBE)
    assert connection.ends() == b""


def test_pause_tube_needs_no_space_before_its_tube(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"pause-tubedefault 0\r\n") == b"PAUSED\r\n"


# ---------------------------------------------------------------- numbers

TOO_MUCH = b"4294967296"
MOST = b"4294967295"
BAD_NUMBERS = [b"-1", b"4294967296", b"10b", b"x", b"", b"+1", b"0x1", b"1.5", b"99999999999999999999"]


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize("place", [1, 2, 3, 4], ids=["pri", "delay", "ttr", "bytes"])
def test_a_bad_number_of_put_is_bad_format_and_its_body_is_read_as_a_command(
    connection: BeanstalkConnection, place: int, number: bytes
) -> None:
    words = [b"put", b"0", b"0", b"60", b"3"]
    words[place] = number
    assert connection.ask_all(b" ".join(words) + b"\r\nabc\r\n" + PROBE, 3) == [BAD_FORMAT, UNKNOWN, IN_STEP]


BAD_LINES = [
    b"put 0 0 60 3 ", b"put 0 0 60 3 7", b"put 0 0 60", b"put 0", b"put ", b"delete x", b"delete -1", b"delete ",
    b"delete 1 ", b"delete 1x", b"delete +1", b"delete 1 2", b"delete 18446744073709551616", b"release 1",
    b"release 1 0", b"release x 0 0", b"release 1 x 0", b"release 1 0 x", b"release 1 -1 0",
    b"release 1 0 4294967296", b"release 1 4294967296 0", b"bury 1", b"bury x 0", b"bury 1 x", b"bury 1 4294967296",
    b"touch x", b"touch 18446744073709551616", b"peek x", b"peek ", b"peek -1", b"kick x", b"kick ", b"kick-job x",
    b"kick-job ", b"stats-job x", b"stats-job ", b"reserve-job x", b"reserve-job ", b"reserve-with-timeout",
    b"reserve-with-timeoutx", b"reserve-with-timeout0", b"pause-tube default", b"pause-tube default x",
    b"pause-tube default -1", b"pause-tube default 4294967296", b"pause-tube x", b"pause-tube default 1x",
]  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES, ids=ids(BAD_LINES))
def test_a_bad_argument_is_bad_format(connection: BeanstalkConnection, line: bytes) -> None:
    assert connection.ask_all(line + b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


@pytest.mark.since_beanstalkd_1_13("it waits for ever, or not at all")
@pytest.mark.parametrize("number", [b"-1", b"2147483648", b"4294967295", b"4294967296", b"x", b""], ids=repr)
def test_a_timeout_that_is_no_positive_int_is_bad_format(connection: BeanstalkConnection, number: bytes) -> None:
    assert connection.ask(b"reserve-with-timeout %b\r\n" % number, timeout=1.0) == BAD_FORMAT


def test_the_longest_timeout_is_accepted(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve-with-timeout 2147483647\r\n")
    job_id = other.put()
    assert waiting.receive() == reserved(job_id)


@pytest.mark.parametrize("line", [b"0 junk", b"0junk", b"00", b"  0"], ids=repr)
def test_what_follows_the_timeout_of_a_reserve_is_ignored(connection: BeanstalkConnection, line: bytes) -> None:
    assert connection.ask(b"reserve-with-timeout " + line + b"\r\n") == b"TIMED_OUT\r\n"


@pytest.mark.parametrize("number", [b"-1", b"1x", b"1 x", b"4294967295", b"  1"], ids=repr)
def test_kick_reads_its_number_as_far_as_it_goes(connection: BeanstalkConnection, number: bytes) -> None:
    connection.put(delay=100)
    assert connection.ask(b"kick " + number + b"\r\n") == b"KICKED 1\r\n"


LARGE_IDS = [b"9223372036854775807", b"9223372036854775808", b"18446744073709551615", b"0", b"007000000"]
BY_ID = [
    b"delete %b", b"release %b 0 0", b"bury %b 0", b"touch %b", b"peek %b", b"kick-job %b", b"stats-job %b",
    b"reserve-job %b",
]  # fmt: skip


@pytest.mark.parametrize("number", LARGE_IDS, ids=ids(LARGE_IDS))
@pytest.mark.parametrize("command", BY_ID, ids=ids(BY_ID))
def test_an_id_of_64_bits_that_no_job_has_is_not_found(
    connection: BeanstalkConnection, command: bytes, number: bytes
) -> None:
    assert connection.ask_all(command % number + b"\r\n" + PROBE, 2) == [NOT_FOUND, IN_STEP]


def test_numbers_may_have_leading_zeros_and_spaces(connection: BeanstalkConnection) -> None:
    answer = connection.ask(b"put  007   0 060  3\r\nabc\r\n")
    assert answer.startswith(b"INSERTED ")
    shown = connection.job(int(answer.split()[1]))
    assert (shown["pri"], shown["ttr"]) == ("7", "60")


@pytest.mark.parametrize("place", ["pri", "delay", "ttr"])
def test_the_largest_numbers_of_put_are_kept(connection: BeanstalkConnection, place: str) -> None:
    words = {"pri": b"5", "delay": b"0", "ttr": b"60"} | {place: MOST}
    answer = connection.ask(b"put %b 1\r\nx\r\n" % b" ".join(words.values()))
    assert answer.startswith(b"INSERTED ")
    shown = connection.job(int(answer.split()[1]))
    assert shown[place] == MOST.decode()
    assert shown["state"] == ("delayed" if place == "delay" else "ready")


def test_a_ttr_of_zero_becomes_one_second(connection: BeanstalkConnection) -> None:
    assert connection.job(connection.put(ttr=0))["ttr"] == "1"


# ---------------------------------------------------------------- names of tubes

GOOD_NAMES = [b"a", b"a" * 200, b"ABC-xyz+0/9;.$_()", b"+", b"_", b"0", b"a-"]
BAD_NAMES = [
    b"",
    b"-a",
    b"-",
    b"a" * 201,
    b"a b",
    b"a\n",
    b"a\xff",
    "ä".encode(),
    b"a:b",
    b"a,b",
    b"a*",
    b"a%",
    b"{a}",
    b"a@b",
]
BY_TUBE = [b"use %b", b"watch %b", b"ignore %b", b"stats-tube %b", b"pause-tube %b 0"]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=ids(GOOD_NAMES))
def test_a_good_name_of_a_tube_is_accepted(connection: BeanstalkConnection, name: bytes) -> None:
    connection.use(name)
    assert connection.ask(b"watch %b\r\n" % name) == b"WATCHING 2\r\n"
    assert connection.tube(name)["name"] == name.decode()
    assert connection.ask(b"pause-tube %b 0\r\n" % name) == b"PAUSED\r\n"
    assert connection.ask(b"ignore %b\r\n" % name) == b"WATCHING 1\r\n"


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
@pytest.mark.parametrize("command", BY_TUBE, ids=ids(BY_TUBE))
def test_a_bad_name_of_a_tube_is_bad_format(connection: BeanstalkConnection, command: bytes, name: bytes) -> None:
    assert connection.ask_all(command % name + b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


@pytest.mark.parametrize(
    "line", [b"use  a", b"use a ", b"watch a ", b"ignore  default", b"stats-tube default "], ids=repr
)
def test_a_space_too_many_around_a_name_is_bad_format(connection: BeanstalkConnection, line: bytes) -> None:
    assert connection.ask_all(line + b"\r\n" + PROBE, 2) == [BAD_FORMAT, IN_STEP]


def test_pause_tube_alone_allows_spaces_before_its_name(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"pause-tube  default  0\r\n") == b"PAUSED\r\n"


# ---------------------------------------------------------------- bodies

BODIES = [
    b"",
    b"\r\n",
    b"\0",
    b"a\r\nb\r\n",
    b"\n",
    b"put 0 0 60 1\r\nx",
    bytes(range(256)),
    b"\xff" * 1000,
    "prüfung".encode(),
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_body_comes_back_byte_by_byte(connection: BeanstalkConnection, body: bytes) -> None:
    job_id = connection.put(body)
    assert connection.ask(b"peek %d\r\n" % job_id) == found(job_id, body)
    assert connection.ask(b"reserve\r\n") == reserved(job_id, body)


def test_the_largest_body_comes_back(connection: BeanstalkConnection) -> None:
    body = bytes(range(256)) * 255 + bytes(255)
    assert len(body) == MAX_JOB_SIZE
    job_id = connection.put(body)
    assert connection.ask(b"reserve\r\n") == reserved(job_id, body)


@pytest.mark.parametrize("size", [MAX_JOB_SIZE + 1, 70_000, 1_000_000])
def test_a_larger_body_is_thrown_away_and_the_connection_stays_in_step(
    connection: BeanstalkConnection, size: int
) -> None:
    answers = connection.ask_all(b"put 0 0 60 %d\r\n%b\r\n" % (size, b"\n" * size) + PROBE, 2)
    assert answers == [b"JOB_TOO_BIG\r\n", IN_STEP]
    assert connection.ask(b"peek-ready\r\n") == NOT_FOUND


def test_a_larger_body_is_answered_before_it_has_come_or_after_but_once(connection: BeanstalkConnection) -> None:
    connection.send(b"put 0 0 60 100000\r\n")
    for _ in range(10):
        connection.send(b"z" * 10_000)
    assert connection.ask_all(b"\r\n" + PROBE, 2) == [b"JOB_TOO_BIG\r\n", IN_STEP]


def test_a_body_without_its_end_is_refused_and_the_rest_is_read_as_commands(connection: BeanstalkConnection) -> None:
    answers = connection.ask_all(b"put 0 0 60 3\r\nabcdeword\r\n" + PROBE, 3)
    assert answers == [b"EXPECTED_CRLF\r\n", UNKNOWN, IN_STEP]
    assert connection.ask(b"peek-ready\r\n") == NOT_FOUND


def test_after_a_body_without_its_end_the_next_bytes_may_be_a_command(connection: BeanstalkConnection) -> None:
    assert connection.ask_all(b"put 0 0 60 3\r\nabc\r!" + PROBE, 2) == [b"EXPECTED_CRLF\r\n", IN_STEP]


def test_the_limit_of_a_body_is_an_option(start_server: StartServer) -> None:
    server = start_server("-z", "10")
    with server.connect() as connection:
        assert connection.statistics()["max-job-size"] == "10"
        connection.put(b"0123456789")
        assert connection.ask_all(b"put 0 0 60 11\r\n01234567890\r\n" + PROBE, 2) == [b"JOB_TOO_BIG\r\n", IN_STEP]
