"""Every command of beanstalkd's protocol, and every way to write it wrong, as beanstalkd answers it."""

from __future__ import annotations

import pytest

from peerd.gateway.protocols.beanstalk import grammar, replies, statistics
from peerd.gateway.protocols.beanstalk.commands import (
    COUNTERS,
    AuthCommand,
    BuryCommand,
    Command,
    DeleteCommand,
    IgnoreCommand,
    InvalidCommand,
    KickCommand,
    KickJobCommand,
    ListTubesCommand,
    ListTubesWatchedCommand,
    ListTubeUsedCommand,
    PauseTubeCommand,
    PeekBuriedCommand,
    PeekCommand,
    PeekDelayedCommand,
    PeekReadyCommand,
    PutCommand,
    QuitCommand,
    ReleaseCommand,
    ReserveCommand,
    ReserveJobCommand,
    ReserveWithTimeoutCommand,
    StatsCommand,
    StatsJobCommand,
    StatsTubeCommand,
    TouchCommand,
    UseCommand,
    WatchCommand,
    counter_of,
)
from peerd.gateway.protocols.beanstalk.parser import CommandParser

BIG = 2**64 - 1
ALL_CHARACTERS = "ABCXYZabcxyz0189-+/;.$_()"
VALID: tuple[tuple[bytes, Command], ...] = (
    (b"use mail", UseCommand("mail")),
    (b"use " + b"a" * 200, UseCommand("a" * 200)),
    (b"use " + ALL_CHARACTERS.encode(), UseCommand(ALL_CHARACTERS)),
    (b"use a-", UseCommand("a-")),
    (b"watch mail", WatchCommand("mail")),
    (b"ignore mail", IgnoreCommand("mail")),
    (b"reserve", ReserveCommand()),
    (b"reserve-with-timeout 0", ReserveWithTimeoutCommand(0)),
    (b"reserve-with-timeout 2147483647", ReserveWithTimeoutCommand(2**31 - 1)),
    (b"reserve-with-timeout  5", ReserveWithTimeoutCommand(5)),
    (b"reserve-with-timeout 5x", ReserveWithTimeoutCommand(5)),
    (b"reserve-with-timeout 5 6", ReserveWithTimeoutCommand(5)),
    (b"reserve-job 7", ReserveJobCommand(7)),
    (b"delete 7", DeleteCommand(7)),
    (b"delete   7", DeleteCommand(7)),
    (b"delete 0", DeleteCommand(0)),
    (b"delete 0000000000000000000000000000000000000007", DeleteCommand(7)),
    (b"delete 18446744073709551615", DeleteCommand(BIG)),
    (b"release 7 0 0", ReleaseCommand(7, 0, 0)),
    (b"release 18446744073709551615 4294967295  4294967295", ReleaseCommand(BIG, 2**32 - 1, 2**32 - 1)),
    (b"bury 7 4294967295", BuryCommand(7, 2**32 - 1)),
    (b"touch 7", TouchCommand(7)),
    (b"peek 7", PeekCommand(7)),
    (b"peek-ready", PeekReadyCommand()),
    (b"peek-delayed", PeekDelayedCommand()),
    (b"peek-buried", PeekBuriedCommand()),
    (b"kick 5", KickCommand(5)),
    (b"kick 5x", KickCommand(5)),
    (b"kick \t +5 6", KickCommand(5)),
    (b"kick -1", KickCommand(2**32 - 1)),
    (b"kick 4294967296", KickCommand(0)),
    (b"kick 18446744073709551615", KickCommand(2**32 - 1)),
    (b"kick-job 7", KickJobCommand(7)),
    (b"stats", StatsCommand()),
    (b"stats-job 7", StatsJobCommand(7)),
    (b"stats-tube mail", StatsTubeCommand("mail")),
    (b"list-tubes", ListTubesCommand()),
    (b"list-tube-used", ListTubeUsedCommand()),
    (b"list-tubes-watched", ListTubesWatchedCommand()),
    (b"pause-tube mail 60", PauseTubeCommand("mail", 60)),
    (b"pause-tubemail 0", PauseTubeCommand("mail", 0)),
    (b"pause-tube   mail   4294967295", PauseTubeCommand("mail", 2**32 - 1)),
    (b"quit", QuitCommand()),
    (b"quitfoo", QuitCommand()),
    (b"quit now", QuitCommand()),
    (b"auth secret", AuthCommand(b"secret")),
    (b"auth two words", AuthCommand(b"two words")),
)
BAD_FORMAT = (
    b"", b"\0", b"stats\0", b"use a\0", b"foo\0bar", b"quit\0",
    b"put ", b"put 1", b"put 1 2 3", b"put -1 0 1 1", b"put 4294967296 0 1 1", b"put 0 4294967296 1 1",
    b"put 0 0 4294967296 1", b"put 0 0 1 4294967296", b"put 0 0 1 10b", b"put 0 0 1 1 ", b"put 0\t0 1 1",
    b"put 0 0 1 1\0", b"put 0 0 1 +1", b"put a b c d", b"put 0 0 1 4294967296x",
    b"use ", b"use  a", b"use a b", b"use -a", b"use a,", b"use a\xe9", b"use a\n", b"use a\rb", b"use " + b"a" * 201,
    b"watch ", b"watch -a", b"ignore ", b"ignore " + b"a" * 201,
    b"reserve ", b"reserve 0", b"reservex", b"reserve-with-timeout", b"reserve-with-timeout ", b"reserve-with-timeoutx",
    b"reserve-with-timeout -1", b"reserve-with-timeout x", b"reserve-with-timeout 2147483648",
    b"reserve-with-timeout 99999999999999999999", b"reserve-job", b"reserve-job ", b"reserve-job x", b"reserve-job 1 2",
    b"delete ", b"delete x", b"delete -1", b"delete +1", b"delete 1x", b"delete 1 ", b"delete 1 2", b"delete \t1",
    b"delete 18446744073709551616", b"delete 1_0", b"delete \xb2",
    b"release 1", b"release 1 1", b"release 1 1 1 ", b"release 1 1 -1", b"release 1,1 1", b"release 1 4294967296 1",
    b"release 1 1 4294967296", b"release 18446744073709551616 1 1", b"release ",
    b"bury 1", b"bury 1 1 1", b"bury 1 -1", b"bury 1 4294967296", b"bury 18446744073709551616 1", b"bury ",
    b"touch ", b"touch 1 2", b"peek ", b"peek x", b"peek 1 1", b"peek-readyX", b"peek-ready ", b"peek-delayed 1",
    b"peek-buried x",
    b"kick ", b"kick x", b"kick - 1", b"kick 18446744073709551616", b"kick -18446744073709551616", b"kick-job ",
    b"kick-job 1 2", b"kick-job x",
    b"statsx", b"stats ", b"stats-job", b"stats-job ", b"stats-job x", b"stats-tube", b"stats-tube ", b"stats-tube a ",
    b"stats-tube  a", b"stats-tube " + b"a" * 201,
    b"list-tubesx", b"list-tubes ", b"list-tube-used ", b"list-tubes-watched x",
    b"pause-tube", b"pause-tube ", b"pause-tube a", b"pause-tube a0", b"pause-tube a,0", b"pause-tube a 0 ",
    b"pause-tube a -1", b"pause-tube a 4294967296", b"pause-tube a 0x", b"pause-tube 5",
    b"auth ",
)  # fmt: skip
UNKNOWN = (
    b" ", b"\n", b"put", b"put\t0 0 1 1", b" put 0 0 1 1", b"PUT 0 0 1 1", b"use", b"watch", b"ignore", b"delete",
    b"release", b"bury", b"touch", b"peek", b"peek-foo", b"kick", b"kick-job", b"kickx", b"list-tube", b"QUIT", b"qui",
    b"stat", b"auth", b"a" * 222, b"deletex 1", b"\xff",
)  # fmt: skip


def parsed(data: bytes) -> list[Command]:
    parser = CommandParser()
    parser.feed(data)
    return list(parser)


@pytest.mark.parametrize(("line", "command"), VALID)
def test_a_line_is_its_command(line: bytes, command: Command) -> None:
    assert parsed(line + b"\r\n") == [command]


@pytest.mark.parametrize("line", BAD_FORMAT)
def test_a_command_that_does_not_fit_its_grammar_is_bad_format(line: bytes) -> None:
    assert parsed(line + b"\r\n") == [InvalidCommand(replies.BAD_FORMAT)]


@pytest.mark.parametrize("line", UNKNOWN)
def test_other_lines_are_unknown(line: bytes) -> None:
    assert parsed(line + b"\r\n") == [InvalidCommand(replies.UNKNOWN_COMMAND)]


@pytest.mark.parametrize("tube", [b"-a", b"a" * 201])
def test_a_pause_of_a_tube_that_cannot_exist_is_bad_format_and_is_counted(tube: bytes) -> None:
    (command,) = parsed(b"pause-tube %b 0\r\n" % tube)
    assert command == InvalidCommand(replies.BAD_FORMAT, counter="cmd-pause-tube")
    assert counter_of(command) == "cmd-pause-tube"


def test_a_first_word_finds_the_same_form_as_the_search_through_the_table() -> None:
    lines = [*BAD_FORMAT, *UNKNOWN, *(line for line, _ in VALID)]
    for line in lines:
        if not line.startswith(grammar.PUT):
            assert grammar.command_of(line) == grammar._command_by_beginning(line), line


def test_every_command_has_its_line_here() -> None:
    commands = {type(command) for _, command in VALID}
    missing = set(Command.__subclasses__()) - commands - {InvalidCommand, PutCommand}
    assert not missing
    for beginning, _ in grammar.COMMANDS:
        assert any(line.startswith(beginning) for line, _ in VALID), beginning


def test_the_counters_are_those_that_stats_reports() -> None:
    assert sorted(COUNTERS.values()) == sorted(statistics.COMMAND_KEYS)
    assert counter_of(PutCommand(0, 0, 1, b"")) == "cmd-put"
    assert [counter_of(command) for command in (QuitCommand(), KickJobCommand(1), ReserveJobCommand(1))] == [None] * 3
