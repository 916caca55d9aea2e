from __future__ import annotations

import os
import platform
import resource
import socket
import time
from collections import Counter
from unittest.mock import Mock

import pytest

from peerd.gateway.beanstalk import commands, replies, statistics
from peerd.gateway.beanstalk.commands import MAX_LINE, Command, CommandParser, invalid
from peerd.gateway.beanstalk.commands import command_with as c
from peerd.gateway.beanstalk.session import HANDLERS
from peerd.gateway.tubes import Tube
from peerd.store.jobs.free import TubePause
from peerd.store.jobs.statistics import JobState, JobStatistics, TubeCounts

BIG = 2**64 - 1
ALL_CHARACTERS = "ABCXYZabcxyz0189-+/;.$_()"
VALID: tuple[tuple[bytes, Command], ...] = (
    (b"use mail", c("use", "mail")), (b"use " + b"a" * 200, c("use", "a" * 200)),
    (b"use " + ALL_CHARACTERS.encode(), c("use", ALL_CHARACTERS)), (b"watch mail", c("watch", "mail")),
    (b"ignore mail", c("ignore", "mail")), (b"reserve", c("reserve")),
    (b"reserve-with-timeout 0", c("reserve-with-timeout", 0)),
    (b"reserve-with-timeout 2147483647", c("reserve-with-timeout", 2**31 - 1)),
    (b"reserve-with-timeout  5", c("reserve-with-timeout", 5)),
    (b"reserve-with-timeout 5x", c("reserve-with-timeout", 5)), (b"reserve-job 7", c("reserve-job", 7)),
    (b"delete 7", c("delete", 7)), (b"delete 0", c("delete", 0)),
    (b"delete 0000000000000000000000000000000000000007", c("delete", 7)),
    (b"delete 18446744073709551615", c("delete", BIG)), (b"release 7 0 0", c("release", 7, 0, 0)),
    (b"release 18446744073709551615 4294967295  4294967295", c("release", BIG, 2**32 - 1, 2**32 - 1)),
    (b"bury 7 4294967295", c("bury", 7, 2**32 - 1)), (b"touch 7", c("touch", 7)), (b"peek 7", c("peek", 7)),
    (b"peek-ready", c("peek-ready")), (b"peek-delayed", c("peek-delayed")),
    (b"peek-buried", c("peek-buried")), (b"kick 5", c("kick", 5)), (b"kick \t +5 6", c("kick", 5)),
    (b"kick -1", c("kick", 2**32 - 1)), (b"kick 4294967296", c("kick", 0)),
    (b"kick 18446744073709551615", c("kick", 2**32 - 1)), (b"kick-job 7", c("kick-job", 7)),
    (b"stats", c("stats")), (b"stats-job 7", c("stats-job", 7)),
    (b"stats-tube mail", c("stats-tube", "mail")), (b"list-tubes", c("list-tubes")),
    (b"list-tube-used", c("list-tube-used")), (b"list-tubes-watched", c("list-tubes-watched")),
    (b"pause-tube mail 60", c("pause-tube", "mail", 60)), (b"pause-tubemail 0", c("pause-tube", "mail", 0)),
    (b"pause-tube   mail   4294967295", c("pause-tube", "mail", 2**32 - 1)), (b"quit", c("quit")),
    (b"quitfoo", c("quit")), (b"auth secret", c("auth", b"secret")),
    (b"auth two words", c("auth", b"two words")),
)  # fmt: skip
NO_NUMBERS = (b"-1", b"4294967296", b"10b", b"x", b"", b"+1", b"0x1", b"1.5", b"99999999999999999999", b"4294967296x")
NO_TUBES = (
    b"", b"-a", b"-", b"a" * 201, b"a b", b"a\n", b"a\rb", b"a\xff", "ä".encode(), b"a:b", b"a,b", b"a*", b"a%", b"{a}",
    b"a@b", b" a", b"a ", b"a\0b", b"a\0",
)  # fmt: skip
BADLY_FORMED = (
    *(put % bad for put in (b"put %b 0 1 1", b"put 0 %b 1 1", b"put 0 0 %b 1", b"put 0 0 1 %b") for bad in NO_NUMBERS),
    *(form % bad for form in (b"use %b", b"watch %b", b"ignore %b", b"stats-tube %b") for bad in NO_TUBES), b"\0",
    b"stats\0", b"foo\0bar", b"quit\0", b"put ", b"put 1", b"put 1 2 3", b"put 0 0 1 1 ", b"put 0 0 1 1 7",
    b"put 0\t0 1 1", b"put 0 0 1 1\0", b"reserve ", b"reserve 0", b"reservex", b"reserve-with-timeout",
    b"reserve-with-timeout ", b"reserve-with-timeoutx", b"reserve-with-timeout -1", b"reserve-with-timeout x",
    b"reserve-with-timeout 2147483648", b"reserve-with-timeout 99999999999999999999", b"reserve-job", b"reserve-job ",
    b"reserve-job x", b"reserve-job 1 2", b"delete ", b"delete x", b"delete -1", b"delete +1", b"delete 1x",
    b"delete 1 ", b"delete 1 2", b"delete \t1", b"delete 18446744073709551616", b"delete 1_0", b"delete \xb2",
    b"release x 0 0", b"release 1 x 0", b"release 1 0 x", b"bury x 0", b"bury 1 x", b"touch x", b"pause-tube a x",
    b"release 1", b"release 1 1", b"release 1 1 1 ", b"release 1 1 -1", b"release 1,1 1", b"release 1 4294967296 1",
    b"release 1 1 4294967296", b"release 18446744073709551616 1 1", b"release ", b"bury 1", b"bury 1 1 1", b"bury 1 -1",
    b"bury 1 4294967296", b"bury 18446744073709551616 1", b"bury ", b"touch ", b"touch 1 2", b"peek ", b"peek x",
    b"peek 1 1", b"peek-readyX", b"peek-ready ", b"peek-delayed 1", b"peek-buried x", b"kick ", b"kick x", b"kick - 1",
    b"kick 18446744073709551616", b"kick -18446744073709551616", b"kick-job ", b"kick-job 1 2", b"kick-job x",
    b"statsx", b"stats ", b"stats-job", b"stats-job ", b"stats-job x", b"stats-tube", b"stats x", b"stats_job 1",
    b"list-tubesx", b"list-tubes ", b"list-tube-used ", b"list-tubes-watched x", b"pause-tube", b"pause-tube ",
    b"pause-tube a", b"pause-tube a0", b"pause-tube a,0", b"pause-tube a 0 ", b"pause-tube a -1",
    b"pause-tube a 4294967296", b"pause-tube a 0x", b"pause-tube 5", b"auth ",
)  # fmt: skip
UNKNOWN = (
    b"", b" ", b"\n", b"put", b"put\t0 0 1 1", b" put 0 0 1 1", b"PUT 0 0 1 1", b"use", b"watch", b"ignore", b"delete",
    b"release", b"bury", b"touch", b"peek", b"peek-foo", b"kick", b"kick-job", b"kickx", b"list-tube", b"QUIT", b"qui",
    b"stat", b"auth", b"foo", b"exit", b"list", b" list-tubes", b"a" * 222, b"deletex 1", b"\xff",
)  # fmt: skip


def command_of(line: bytes) -> Command:
    parser = CommandParser()
    parser.feed(line + b"\r\n")
    [command] = parser
    return command


def test_each_line_is_its_command_bad_format_or_unknown_however_it_is_found() -> None:
    assert {line: command_of(line) for line, _ in VALID} == dict(VALID)
    for answer, lines in ((replies.BAD_FORMAT, BADLY_FORMED), (replies.UNKNOWN_COMMAND, UNKNOWN)):
        wrong = {line: command for line in lines if (command := command_of(line)) != invalid(answer)}
        assert wrong == {}, answer
    assert set(HANDLERS) - {command.name for _, command in VALID} == {"invalid", "put"}
    for beginning in commands.READERS:
        assert any(line.startswith(beginning) for line, _ in VALID), beginning
    for line in (*BADLY_FORMED, *UNKNOWN, *(line for line, _ in VALID)):
        if not line.startswith(commands.PUT):
            assert commands.command_of(line) == commands._command_by_beginning(line), line


def test_a_command_is_counted_though_it_is_badly_formed() -> None:
    assert c("put", 0, 0, 1, b"").counter == "cmd-put"
    paused = command_of(b"pause-tube -a 0")
    assert (paused, paused.counter) == (
        invalid(replies.BAD_FORMAT, counted_as="pause-tube"),
        "cmd-pause-tube",
    )
    uncounted = (c("quit"), c("kick-job", 1), c("reserve-job", 1))
    assert [command.counter for command in uncounted] == [None] * 3


BAD_FORMAT = invalid(replies.BAD_FORMAT)
TOO_BIG = invalid(replies.JOB_TOO_BIG, counted_as="put")
EXPECTED_CRLF = invalid(replies.EXPECTED_CRLF, counted_as="put")
UNAUTHORIZED = invalid(replies.UNAUTHORIZED)


def parsed(data: bytes, parser: CommandParser | None = None, *, at_once: int = 1 << 20) -> list[Command]:
    """The commands of data that arrives in pieces of a size."""
    parser = parser or CommandParser()
    commands: list[Command] = []
    for start in range(0, len(data), at_once):
        parser.feed(data[start : start + at_once])
        commands += parser
    return commands


def test_commands_that_arrive_in_any_pieces_are_made_in_order_as_they_are_asked_for() -> None:
    data = (
        b"use a\r\nput   1 2  3 4\r\nbody\r\ndelete 5\r\nput 0 0 0 0\r\n\r\nput 0 0 9 6\r\n\r\n\0\xff\r\n\r\nuse b\r\n"
    )
    most = 2**32 - 1
    for at_once in (1, 7, 1000):
        assert parsed(data + b"put %d %d %d 1\r\na\r\n" % (most, most, most), at_once=at_once) == [
            c("use", "a"), c("put", 1, 2, 3, b"body"), c("delete", 5), c("put", 0, 0, 1, b""),
            c("put", 0, 0, 9, b"\r\n\0\xff\r\n"), c("use", "b"), c("put", most, most, most, b"a"),
        ]  # fmt: skip
    parser = CommandParser()
    parser.feed(b"use a\r\nuse b\r\n")
    assert parser.next_command() == c("use", "a")
    parser.feed(b"use c\r\nuse")
    assert parser.buffered == len(b"use b\r\nuse c\r\nuse")
    assert list(parser) == [c("use", "b"), c("use", "c")]
    assert parser.next_command() is None
    parser.feed(b" d\r\n")
    assert parser.next_command() == c("use", "d")
    assert parser.buffered == 0


def test_a_line_of_224_bytes_that_ends_with_crlf_is_read_and_a_longer_one_discarded() -> None:
    lengths = (MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 2 * MAX_LINE - 1, 2 * MAX_LINE, 5000)
    for at_once in (1, 10, 10_000):
        line = b"a" * (MAX_LINE - 2) + b"\r\n"
        assert parsed(line, at_once=at_once) == [invalid(replies.UNKNOWN_COMMAND)]
        for length in lengths:
            assert parsed(b"a" * length + b"\r\nuse b\r\n", at_once=at_once) == [
                BAD_FORMAT,
                c("use", "b"),
            ], length
    parser = CommandParser()
    assert (parsed(b"stats\n", parser), parser.is_within_line) == ([], True)
    assert parsed(b"\r\n", parser) == [BAD_FORMAT]
    assert parsed(b"stats\rstats\r\nstats\r\n") == [BAD_FORMAT, c("stats")]


def test_a_body_without_its_crlf_is_refused_and_one_that_is_too_large_is_discarded() -> None:
    large = b"put 0 0 1 12\r\nuse x\r\nuse y??use a\r\nput 0 0 1 10\r\n0123456789\r\n"
    for at_once in (1, 3, 1000):
        for body in (b"abcde", b"abc\r\r", b"abc\n\r"):
            data = b"put 0 0 1 3\r\n%buse a\r\n" % body
            assert parsed(data, at_once=at_once) == [EXPECTED_CRLF, c("use", "a")], data
        found = parsed(large, CommandParser(max_job_size=10), at_once=at_once)
        assert found == [TOO_BIG, c("use", "a"), c("put", 0, 0, 1, b"0123456789")]
    small = CommandParser(max_job_size=3)
    assert parsed(b"put 0 0 1 5 x\r\nuse y\r\nuse a\r\n", small) == [TOO_BIG, c("use", "a")], "its size is judged first"
    assert parsed(b"put 0 0 1 3 x\r\nuse a\r\n", small) == [BAD_FORMAT, c("use", "a")]


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
        assert parsed(b"\nuse a\r\n", parser) == [c("put", 0, 0, 1, body), c("use", "a")]
        assert (parser.buffered, parser.is_within_body, parser.is_within_line) == (0, False, False)


def test_a_client_without_its_token_is_refused_and_with_it_may_send_ahead() -> None:
    parser = CommandParser(require_auth=True)
    assert parsed(b"stats\r\nstats x\r\nput 0 0 1 5\r\nhe", parser) == [UNAUTHORIZED, BAD_FORMAT]
    assert parser.buffered == 0
    assert parsed(b"llo\r\nauth secret\r\nquit\r\n", parser) == [
        UNAUTHORIZED,
        c("auth", b"secret"),
        c("quit"),
    ]
    parser = CommandParser(require_auth=True)
    parser.feed(b"auth secret\r\nput 0 0 1 5\r\nhello\r\nput 0 0 1 65536\r\n")
    assert parser.next_command() == c("auth", b"secret")
    parser.authorize()
    assert list(parser) == [c("put", 0, 0, 1, b"hello")]
    assert parsed(b"x" * 65536 + b"\r\n", parser) == [TOO_BIG]


JOB = JobStatistics(
    id=2**64 - 1, queue="mail", state=JobState.RESERVED, priority=65_536 - 1024, age=5, delay=1, ttr=60, time_left=55,
    reserves=1, timeouts=2, releases=3, buries=4, kicks=5,
)  # fmt: skip
COUNTS = TubeCounts(urgent=1, ready=2, reserved=3, delayed=4, buried=5)


def yaml_of(reply: bytes) -> bytes:
    head, _, rest = reply.partition(b"\r\n")
    assert (head, rest[-2:]) == (b"OK %d" % (len(rest) - 2), b"\r\n")
    return rest[:-2]


def test_statistics_are_printed_as_beanstalkd_prints_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert statistics.tube_list(["default", "w", "u"]) == b"---\n- default\n- w\n- u\n"
    assert statistics.tube_list([]) == b"---\n"
    assert yaml_of(statistics.reply_to_stats_job(JOB)) == (
        b'---\nid: 18446744073709551615\ntube: "mail"\nstate: reserved\npri: 1024\nage: 5\ndelay: 1\nttr: 60\n'
        b"time-left: 55\nfile: 0\nreserves: 1\ntimeouts: 2\nreleases: 3\nburies: 4\nkicks: 5\n"
    )
    gateway = Mock()
    mail = gateway.tubes.get.return_value = Tube("mail")
    mail.puts, mail.using, mail.watching, mail.deletes, mail.pauses = 6, 7, 8, 10, 11
    gateway.ready.waiters.count.return_value = 9
    assert yaml_of(statistics.reply_to_stats_tube(gateway, "mail", (COUNTS, TubePause(seconds=12, left=13)))) == (
        b'---\nname: "mail"\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 3\n'
        b"current-jobs-delayed: 4\ncurrent-jobs-buried: 5\ntotal-jobs: 6\ncurrent-using: 7\ncurrent-watching: 8\n"
        b"current-waiting: 9\ncmd-delete: 10\ncmd-pause-tube: 11\npause: 12\npause-time-left: 13\n"
    )
    gateway.tubes.get.return_value = None
    assert b"cmd-delete: 0\n" in statistics.reply_to_stats_tube(gateway, "mail", (COUNTS, TubePause(seconds=0, left=0)))
    gateway.tubes.needed.return_value = ["default"]
    gateway.ends.timeouts, gateway.puts.total, gateway.ready.waiters.total = 7, 8, 13
    gateway.configure_mock(
        commands=Counter({"cmd-put": 6, None: 99}), connections=10, producers=11, workers=12,
        total_connections=14, started_at=0.5, refuses_puts=False, id="00ff00ff00ff00ff",
    )  # fmt: skip
    gateway.settings.max_job_size = 65535
    for module, name, value in (
        (os, "getpid", 15), (time, "monotonic", 17.0), (socket, "gethostname", "one"),
        (platform, "uname", Mock(version="#1 SMP", machine="x86_64")),
        (resource, "getrusage", Mock(ru_utime=0.5, ru_stime=12.0)),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, Mock(return_value=value))
    with_jobs = ["default", *(f"tube {number}" for number in range(8))]
    shown = yaml_of(statistics.reply_to_stats(gateway, (COUNTS, with_jobs)))
    monkeypatch.undo()
    assert shown == (
        b"---\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 3\ncurrent-jobs-delayed: 4\n"
        b"current-jobs-buried: 5\ncmd-put: 6\ncmd-peek: 0\ncmd-peek-ready: 0\ncmd-peek-delayed: 0\ncmd-peek-buried: 0\n"
        b"cmd-reserve: 0\ncmd-reserve-with-timeout: 0\ncmd-delete: 0\ncmd-release: 0\ncmd-use: 0\ncmd-watch: 0\n"
        b"cmd-ignore: 0\ncmd-bury: 0\ncmd-kick: 0\ncmd-touch: 0\ncmd-stats: 0\ncmd-stats-job: 0\ncmd-stats-tube: 0\n"
        b"cmd-list-tubes: 0\ncmd-list-tube-used: 0\ncmd-list-tubes-watched: 0\ncmd-pause-tube: 0\njob-timeouts: 7\n"
        b"total-jobs: 8\nmax-job-size: 65535\ncurrent-tubes: 9\ncurrent-connections: 10\ncurrent-producers: 11\n"
        b'current-workers: 12\ncurrent-waiting: 13\ntotal-connections: 14\npid: 15\nversion: "1.13"\n'
        b"rusage-utime: 0.500000\nrusage-stime: 12.000000\nuptime: 16\nbinlog-oldest-index: 0\n"
        b"binlog-current-index: 0\nbinlog-records-migrated: 0\nbinlog-records-written: 0\nbinlog-max-size: 0\n"
        b'draining: false\nid: 00ff00ff00ff00ff\nhostname: "one"\nos: "#1 SMP"\nplatform: "x86_64"\n'
    )
