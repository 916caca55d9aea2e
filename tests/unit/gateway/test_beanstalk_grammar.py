from __future__ import annotations

from peerd.gateway.protocols.beanstalk import commands, grammar, replies, statistics
from peerd.gateway.protocols.beanstalk.commands import COUNTERS, Command, InvalidCommand, counter_of
from peerd.gateway.protocols.beanstalk.parser import CommandParser

BIG = 2**64 - 1
ALL_CHARACTERS = "ABCXYZabcxyz0189-+/;.$_()"
VALID: tuple[tuple[bytes, Command], ...] = (
    (b"use mail", commands.UseCommand("mail")), (b"use " + b"a" * 200, commands.UseCommand("a" * 200)),
    (b"use " + ALL_CHARACTERS.encode(), commands.UseCommand(ALL_CHARACTERS)), (b"use a-", commands.UseCommand("a-")),
    (b"watch mail", commands.WatchCommand("mail")), (b"ignore mail", commands.IgnoreCommand("mail")),
    (b"reserve", commands.ReserveCommand()), (b"reserve-with-timeout 0", commands.ReserveWithTimeoutCommand(0)),
    (b"reserve-with-timeout 2147483647", commands.ReserveWithTimeoutCommand(2**31 - 1)),
    (b"reserve-with-timeout  5", commands.ReserveWithTimeoutCommand(5)),
    (b"reserve-with-timeout 5x", commands.ReserveWithTimeoutCommand(5)),
    (b"reserve-with-timeout 5 6", commands.ReserveWithTimeoutCommand(5)),
    (b"reserve-job 7", commands.ReserveJobCommand(7)), (b"delete 7", commands.DeleteCommand(7)),
    (b"delete   7", commands.DeleteCommand(7)), (b"delete 0", commands.DeleteCommand(0)),
    (b"delete 0000000000000000000000000000000000000007", commands.DeleteCommand(7)),
    (b"delete 18446744073709551615", commands.DeleteCommand(BIG)),
    (b"release 7 0 0", commands.ReleaseCommand(7, 0, 0)),
    (b"release 18446744073709551615 4294967295  4294967295", commands.ReleaseCommand(BIG, 2**32 - 1, 2**32 - 1)),
    (b"bury 7 4294967295", commands.BuryCommand(7, 2**32 - 1)), (b"touch 7", commands.TouchCommand(7)),
    (b"peek 7", commands.PeekCommand(7)), (b"peek-ready", commands.PeekReadyCommand()),
    (b"peek-delayed", commands.PeekDelayedCommand()), (b"peek-buried", commands.PeekBuriedCommand()),
    (b"kick 5", commands.KickCommand(5)), (b"kick 5x", commands.KickCommand(5)),
    (b"kick \t +5 6", commands.KickCommand(5)), (b"kick -1", commands.KickCommand(2**32 - 1)),
    (b"kick 4294967296", commands.KickCommand(0)), (b"kick 18446744073709551615", commands.KickCommand(2**32 - 1)),
    (b"kick-job 7", commands.KickJobCommand(7)), (b"stats", commands.StatsCommand()),
    (b"stats-job 7", commands.StatsJobCommand(7)), (b"stats-tube mail", commands.StatsTubeCommand("mail")),
    (b"list-tubes", commands.ListTubesCommand()), (b"list-tube-used", commands.ListTubeUsedCommand()),
    (b"list-tubes-watched", commands.ListTubesWatchedCommand()),
    (b"pause-tube mail 60", commands.PauseTubeCommand("mail", 60)),
    (b"pause-tubemail 0", commands.PauseTubeCommand("mail", 0)),
    (b"pause-tube   mail   4294967295", commands.PauseTubeCommand("mail", 2**32 - 1)),
    (b"quit", commands.QuitCommand()), (b"quitfoo", commands.QuitCommand()), (b"quit now", commands.QuitCommand()),
    (b"auth secret", commands.AuthCommand(b"secret")), (b"auth two words", commands.AuthCommand(b"two words")),
)  # fmt: skip
NO_NUMBERS = (b"-1", b"4294967296", b"10b", b"x", b"", b"+1", b"0x1", b"1.5", b"99999999999999999999", b"4294967296x")
NO_TUBES = (
    b"", b"-a", b"-", b"a" * 201, b"a b", b"a\n", b"a\rb", b"a\xff", "ä".encode(), b"a:b", b"a,b", b"a*", b"a%", b"{a}",
    b"a@b", b" a", b"a ", b"a\0b", b"a\0",
)  # fmt: skip
BAD_FORMAT = (
    *(put % bad for put in (b"put %b 0 1 1", b"put 0 %b 1 1", b"put 0 0 %b 1", b"put 0 0 1 %b") for bad in NO_NUMBERS),
    *(form % bad for form in (b"use %b", b"watch %b", b"ignore %b", b"stats-tube %b") for bad in NO_TUBES),
    b"", b"\0", b"stats\0", b"foo\0bar", b"quit\0",
    b"put ", b"put 1", b"put 1 2 3", b"put 0 0 1 1 ", b"put 0 0 1 1 7", b"put 0\t0 1 1", b"put 0 0 1 1\0",
    b"reserve ", b"reserve 0", b"reservex", b"reserve-with-timeout", b"reserve-with-timeout ", b"reserve-with-timeoutx",
    b"reserve-with-timeout -1", b"reserve-with-timeout x", b"reserve-with-timeout 2147483648",
    b"reserve-with-timeout 99999999999999999999", b"reserve-job", b"reserve-job ", b"reserve-job x", b"reserve-job 1 2",
    b"delete ", b"delete x", b"delete -1", b"delete +1", b"delete 1x", b"delete 1 ", b"delete 1 2", b"delete \t1",
    b"delete 18446744073709551616", b"delete 1_0", b"delete \xb2",
    b"release x 0 0", b"release 1 x 0", b"release 1 0 x", b"bury x 0", b"bury 1 x", b"touch x", b"pause-tube a x",
    b"release 1", b"release 1 1", b"release 1 1 1 ", b"release 1 1 -1", b"release 1,1 1", b"release 1 4294967296 1",
    b"release 1 1 4294967296", b"release 18446744073709551616 1 1", b"release ",
    b"bury 1", b"bury 1 1 1", b"bury 1 -1", b"bury 1 4294967296", b"bury 18446744073709551616 1", b"bury ",
    b"touch ", b"touch 1 2", b"peek ", b"peek x", b"peek 1 1", b"peek-readyX", b"peek-ready ", b"peek-delayed 1",
    b"peek-buried x",
    b"kick ", b"kick x", b"kick - 1", b"kick 18446744073709551616", b"kick -18446744073709551616", b"kick-job ",
    b"kick-job 1 2", b"kick-job x",
    b"statsx", b"stats ", b"stats-job", b"stats-job ", b"stats-job x", b"stats-tube", b"stats x", b"stats_job 1",
    b"list-tubesx", b"list-tubes ", b"list-tube-used ", b"list-tubes-watched x",
    b"pause-tube", b"pause-tube ", b"pause-tube a", b"pause-tube a0", b"pause-tube a,0", b"pause-tube a 0 ",
    b"pause-tube a -1", b"pause-tube a 4294967296", b"pause-tube a 0x", b"pause-tube 5",
    b"auth ",
)  # fmt: skip
UNKNOWN = (
    b" ", b"\n", b"put", b"put\t0 0 1 1", b" put 0 0 1 1", b"PUT 0 0 1 1", b"use", b"watch", b"ignore", b"delete",
    b"release", b"bury", b"touch", b"peek", b"peek-foo", b"kick", b"kick-job", b"kickx", b"list-tube", b"QUIT", b"qui",
    b"stat", b"auth", b"foo", b"exit", b"list", b" list-tubes", b"a" * 222, b"deletex 1", b"\xff",
)  # fmt: skip


def command_of(line: bytes) -> Command:
    parser = CommandParser()
    parser.feed(line + b"\r\n")
    [command] = parser
    return command


def test_each_line_is_its_command_bad_format_or_unknown() -> None:
    assert {line: command_of(line) for line, _ in VALID} == dict(VALID)
    for answer, lines in ((replies.BAD_FORMAT, BAD_FORMAT), (replies.UNKNOWN_COMMAND, UNKNOWN)):
        wrong = {line: command for line in lines if (command := command_of(line)) != InvalidCommand(answer)}
        assert wrong == {}, answer


def test_a_first_word_finds_the_same_form_as_the_search_through_the_table() -> None:
    lines = [*BAD_FORMAT, *UNKNOWN, *(line for line, _ in VALID)]
    for line in lines:
        if not line.startswith(grammar.PUT):
            assert grammar.command_of(line) == grammar._command_by_beginning(line), line


def test_every_command_has_its_line_here() -> None:
    known = {type(command) for _, command in VALID}
    missing = set(Command.__subclasses__()) - known - {InvalidCommand, commands.PutCommand}
    assert not missing
    for beginning, _ in grammar.COMMANDS:
        assert any(line.startswith(beginning) for line, _ in VALID), beginning


def test_the_counters_are_those_that_stats_reports() -> None:
    assert sorted(COUNTERS.values()) == sorted(statistics.COMMAND_KEYS)
    assert counter_of(commands.PutCommand(0, 0, 1, b"")) == "cmd-put"
    paused = command_of(b"pause-tube -a 0")
    assert (paused, counter_of(paused)) == (
        InvalidCommand(replies.BAD_FORMAT, counter="cmd-pause-tube"),
        "cmd-pause-tube",
    )
    uncounted = (commands.QuitCommand(), commands.KickJobCommand(1), commands.ReserveJobCommand(1))
    assert [counter_of(command) for command in uncounted] == [None] * 3
