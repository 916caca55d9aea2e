from __future__ import annotations

from peerd.gateway.protocols.beanstalk import replies
from peerd.gateway.protocols.beanstalk.commands import (
    AuthCommand,
    Command,
    DeleteCommand,
    InvalidCommand,
    PutCommand,
    QuitCommand,
    StatsCommand,
    UseCommand,
)
from peerd.gateway.protocols.beanstalk.parser import MAX_LINE, CommandParser

BAD_FORMAT = InvalidCommand(replies.BAD_FORMAT)
TOO_BIG = InvalidCommand(replies.JOB_TOO_BIG, counter="cmd-put")
EXPECTED_CRLF = InvalidCommand(replies.EXPECTED_CRLF, counter="cmd-put")
UNAUTHORIZED = InvalidCommand(replies.UNAUTHORIZED)


def parsed(data: bytes, parser: CommandParser | None = None, *, at_once: int = 1 << 20) -> list[Command]:
    """The commands of data that arrives in pieces of a size."""
    parser = parser or CommandParser()
    commands: list[Command] = []
    for start in range(0, len(data), at_once):
        parser.feed(data[start : start + at_once])
        commands += parser
    return commands


def test_commands_that_arrive_in_any_pieces_are_in_order() -> None:
    data = (
        b"use a\r\nput   1 2  3 4\r\nbody\r\ndelete 5\r\nput 0 0 0 0\r\n\r\nput 0 0 9 6\r\n\r\n\0\xff\r\n\r\nuse b\r\n"
    )
    most = 2**32 - 1
    for at_once in (1, 7, 1000):
        assert parsed(data + b"put %d %d %d 1\r\na\r\n" % (most, most, most), at_once=at_once) == [
            UseCommand("a"),
            PutCommand(1, 2, 3, b"body"),
            DeleteCommand(5),
            PutCommand(0, 0, 1, b""),
            PutCommand(0, 0, 9, b"\r\n\0\xff\r\n"),
            UseCommand("b"),
            PutCommand(most, most, most, b"a"),
        ]


def test_commands_are_made_as_they_are_asked_for() -> None:
    parser = CommandParser()
    parser.feed(b"use a\r\nuse b\r\n")
    assert parser.next_command() == UseCommand("a")
    parser.feed(b"use c\r\nuse")
    assert parser.buffered == len(b"use b\r\nuse c\r\nuse")
    assert list(parser) == [UseCommand("b"), UseCommand("c")]
    assert parser.next_command() is None
    parser.feed(b" d\r\n")
    assert parser.next_command() == UseCommand("d")
    assert parser.buffered == 0


def test_a_line_of_224_bytes_is_read_and_a_longer_one_is_discarded_to_its_end() -> None:
    lengths = (MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 2 * MAX_LINE - 1, 2 * MAX_LINE, 5000)
    for at_once in (1, 10, 10_000):
        line = b"a" * (MAX_LINE - 2) + b"\r\n"
        assert parsed(line, at_once=at_once) == [InvalidCommand(replies.UNKNOWN_COMMAND)]
        for length in lengths:
            assert parsed(b"a" * length + b"\r\nuse b\r\n", at_once=at_once) == [BAD_FORMAT, UseCommand("b")], length


def test_a_line_ends_with_crlf_alone() -> None:
    parser = CommandParser()
    assert (parsed(b"stats\n", parser), parser.is_within_line) == ([], True)
    assert parsed(b"\r\n", parser) == [BAD_FORMAT]
    assert parsed(b"stats\rstats\r\nstats\r\n") == [BAD_FORMAT, StatsCommand()]


def test_a_body_without_its_crlf_is_refused_and_one_that_is_too_large_is_discarded() -> None:
    large = b"put 0 0 1 12\r\nuse x\r\nuse y??use a\r\nput 0 0 1 10\r\n0123456789\r\n"
    for at_once in (1, 3, 1000):
        for body in (b"abcde", b"abc\r\r", b"abc\n\r"):
            data = b"put 0 0 1 3\r\n%buse a\r\n" % body
            assert parsed(data, at_once=at_once) == [EXPECTED_CRLF, UseCommand("a")], data
        found = parsed(large, CommandParser(max_job_size=10), at_once=at_once)
        assert found == [TOO_BIG, UseCommand("a"), PutCommand(0, 0, 1, b"0123456789")]


def test_the_size_of_a_put_is_judged_before_what_follows_it() -> None:
    parser = CommandParser(max_job_size=3)
    assert parsed(b"put 0 0 1 5 x\r\nuse y\r\nuse a\r\n", parser) == [TOO_BIG, UseCommand("a")]
    assert parsed(b"put 0 0 1 3 x\r\nuse a\r\n", parser) == [BAD_FORMAT, UseCommand("a")]


def test_what_is_discarded_is_not_kept() -> None:
    for at_once in (1, 5, 4096, 65536):
        body, line = CommandParser(max_job_size=10), CommandParser()
        body.feed(b"put 0 0 1 4000000000\r\n")
        for _ in range(300):
            for parser, most in ((body, 0), (line, MAX_LINE - 1)):
                parser.feed(b"x" * at_once)
                assert parser.next_command() is None
                assert parser.buffered <= most
            assert body.is_within_body
            assert line.is_within_line


def test_a_body_in_many_pieces_is_kept_in_few_chunks() -> None:
    body = bytes(range(256)) * 300
    for at_once in (1, 2, 100, 4095, 4096, 70_000):
        parser = CommandParser(max_job_size=len(body))
        assert parsed(b"put 0 0 1 %d\r\n" % len(body), parser) == []
        for start in range(0, len(body), at_once):
            parser.feed(body[start : start + at_once])
            assert parser.next_command() is None
            assert len(parser._chunks) <= 2 + start // 4096
        assert (parser.buffered, parser.is_within_body, parser.is_within_line) == (len(body), True, False)
        assert parsed(b"\r", parser) == []
        assert parsed(b"\nuse a\r\n", parser) == [PutCommand(0, 0, 1, body), UseCommand("a")]
        assert (parser.buffered, parser.is_within_body, parser.is_within_line) == (0, False, False)


def test_a_client_without_its_token_is_refused_and_its_bodies_are_not_kept() -> None:
    parser = CommandParser(require_auth=True)
    assert parsed(b"stats\r\nstats x\r\nput 0 0 1 5\r\nhe", parser) == [UNAUTHORIZED, BAD_FORMAT]
    assert parser.buffered == 0
    assert parsed(b"llo\r\nauth secret\r\nquit\r\n", parser) == [UNAUTHORIZED, AuthCommand(b"secret"), QuitCommand()]


def test_a_client_with_its_token_may_send_ahead() -> None:
    parser = CommandParser(require_auth=True)
    parser.feed(b"auth secret\r\nput 0 0 1 5\r\nhello\r\nput 0 0 1 65536\r\n")
    assert parser.next_command() == AuthCommand(b"secret")
    parser.authorize()
    assert list(parser) == [PutCommand(0, 0, 1, b"hello")]
    assert parsed(b"x" * 65536 + b"\r\n", parser) == [TOO_BIG]
