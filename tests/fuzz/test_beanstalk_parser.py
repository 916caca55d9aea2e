"""beanstalkd's protocol: any bytes in any pieces give the same commands, in bounded memory."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from peerd.gateway.beanstalk.commands import MAX_LINE, READERS, Command, CommandParser
from tests.fuzz.conftest import searched

MAX_JOB_SIZE = 40

numbers = st.sampled_from([0, 1, 5, 40, 41, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**64 - 1, 2**64]).map(b"%d".__mod__)
junk = st.sampled_from(
    [b"", b" ", b"\r", b"\n", b"\r\n", b"\0", b"-1", b"x", b"\xff", b"mail", b"-a", b"a" * 201, b"\r\r\n"]
)
beginnings = st.sampled_from([*READERS])
lines = st.tuples(beginnings, st.lists(numbers | junk, max_size=4).map(b" ".join)).map(b"".join)
puts = st.tuples(numbers, numbers, numbers, st.integers(0, 60)).map(b"put %b %b %b %d\r\n".__mod__)
bodies = st.binary(max_size=60).map(lambda body: b"put 0 0 0 %d\r\n%b\r\n" % (len(body), body))
long_lines = st.integers(MAX_LINE - 4, 3 * MAX_LINE).map(lambda length: b"a" * length)
pieces = lines.map(lambda line: line + b"\r\n") | puts | bodies | long_lines | junk | st.binary(max_size=20)
streams = st.lists(pieces, max_size=12).map(b"".join)


def commands_of(parts: list[bytes]) -> list[Command]:
    parser = CommandParser(MAX_JOB_SIZE)
    commands: list[Command] = []
    for part in parts:
        parser.feed(part)
        commands += parser
        assert parser.buffered < MAX_LINE + MAX_JOB_SIZE
        assert not (parser.is_within_line and parser.is_within_body)
    return commands


def split(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(stream) + 1) for place in places)
    return [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


@searched(250)
@given(stream=streams, places=st.lists(st.integers(0, 5000), max_size=10))
@example(stream=b"a" * 223 + b"\r\nuse a\r\n", places=[224])
@example(stream=b"put 0 0 0 41\r\n" + b"x" * 41 + b"\r\nuse a\r\n", places=[56, 57])
def test_the_pieces_in_which_a_stream_arrives_do_not_matter(stream: bytes, places: list[int]) -> None:
    whole = commands_of([stream])
    assert commands_of(split(stream, places)) == whole
    assert commands_of([stream[place : place + 1] for place in range(len(stream))]) == whole


@searched(120)
@given(stream=streams, command=st.sampled_from([b"use a\r\n", b"put 0 0 1 1\r\na\r\n"]))
def test_after_a_whole_line_the_next_command_is_understood(stream: bytes, command: bytes) -> None:
    parser = CommandParser(MAX_JOB_SIZE)
    parser.feed(stream)
    before = list(parser)
    if parser.buffered == 0 and not parser.is_within_body and not parser.is_within_line:
        parser.feed(command)
        assert len(list(parser)) == 1, before
