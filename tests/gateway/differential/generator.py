"""Random scripts: each is a function of its seed.

What beanstalkd leaves to chance is not asked. Delays are distinct, by ten seconds, so that no two jobs are due at
once. A change of a pause stands in a packet of its own. No line has the length at which beanstalkd overlooks its end.
In scripts in which time passes, what is due is due 0.4 seconds or more before or after the next command.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

from tests.gateway.differential.script import Close, Script, Send, Step, Wait, filled

T = TypeVar("T")
TUBES: Final = (b"default", b"a", b"b", b"c-d")
PRIORITIES: Final = (0, 1, 2, 2, 5, 1023, 1024, 65536, 4294967295)
BAD_LINES: Final = (
    b"bar", b"kick", b"kick x", b"delete x", b"delete 1 2", b"put 1 2 3 x", b"put 1 2 3", b"use -x", b"use a b",
    b"watch", b"peek-readyx", b"list-tubes x", b"stats-tube nowhere", b"pause-tube nowhere 1", b"pause-tube a",
    b"release 1", b"bury 1", b"touch -1", b"reserve-job 0", b"stats-job 18446744073709551615",
    b"peek 18446744073709551616", b"use \xff", b"x" * 200, b"y" * 300, b"list-tubes\0", b"put 4294967296 0 1 1",
    b"kick-job", b"LIST-TUBES", b" stats",
)  # fmt: skip
PAUSE: Final = 1.4
"""Seconds between the rounds of a script in which time passes; what it sets is due after 1 or 2 seconds."""
THEMES: Final = ("delays", "timeouts", "pauses")


def random_script(seed: int) -> Script:
    """A script of some 30 steps in which no time passes."""
    return _ScriptWriter(random.Random(seed)).write()


def random_timed_script(seed: int, theme: str, rounds: int = 3) -> Script:
    """A script of some rounds, between which time passes; each round uses one kind of timer."""
    writer = _ScriptWriter(random.Random(f"{theme} {seed}"), size=12)
    return tuple(step for _ in range(rounds) for step in (*writer.timers(theme), *writer.write(), Wait(PAUSE)))


class _ScriptWriter:
    def __init__(self, chance: random.Random, size: int = 30) -> None:
        self._chance = chance
        self._size = size
        self._connections = chance.randint(1, 4)
        self._puts = 0
        self._delays = iter(chance.sample(range(100, 100_000, 10), 2_000))
        self._commands: list[tuple[int, Callable[[], bytes]]] = [
            (16, self._put),
            (2, self._damaged_put),
            (9, lambda: b"reserve-with-timeout 0"),
            (4, lambda: b"reserve-job %b" % self._job()),
            (5, lambda: b"delete %b" % self._job()),
            (6, lambda: b"release %b %d %d" % (self._job(), self._priority(), self._delay())),
            (6, lambda: b"bury %b %d" % (self._job(), self._priority())),
            (2, lambda: b"touch %b" % self._job()),
            (2, lambda: b"peek %b" % self._job()),
            (3, lambda: b"peek-%b" % chance.choice((b"ready", b"delayed", b"buried"))),
            (4, lambda: b"kick %d" % chance.choice((0, 1, 2, 100))),
            (3, lambda: b"kick-job %b" % self._job()),
            (5, lambda: b"stats-job %b" % self._job()),
            (4, lambda: b"stats-tube %b" % self._tube()),
            (5, lambda: b"use %b" % self._tube()),
            (5, lambda: b"watch %b" % self._tube()),
            (3, lambda: b"ignore %b" % self._tube()),
            (2, lambda: b"list-%b" % chance.choice((b"tubes", b"tube-used", b"tubes-watched"))),
            (1, lambda: b"stats"),
            (2, lambda: chance.choice(BAD_LINES)),
        ]

    def write(self) -> Script:
        steps: list[Step] = []
        while len(steps) < self._size:
            steps += self._next_steps()
        return tuple(steps)

    def timers(self, theme: str) -> list[Step]:
        """Steps that set timers, each for another time."""
        seconds = self._chance.sample((1, 2), 2)
        match theme:
            case "delays":
                commands = [self._put_with(delay=one) for one in seconds]
            case "timeouts":
                commands = [b"reserve-with-timeout %d" % seconds[0]]
            case _:
                commands = [b"pause-tube %b %d" % (self._tube(), seconds[0])]
        steps: list[Step] = [self._send(command) for command in commands]
        if self._chance.random() < 0.5:
            steps.append(self._send(b"reserve"))
        return steps

    def _next_steps(self) -> list[Step]:
        kinds: list[tuple[int, Callable[[], list[Step]]]] = [
            (3, lambda: [Close(self._connection())]),
            (1, lambda: [self._send(b"quit")]),
            (3, lambda: [self._send(self._chance.choice((b"reserve", b"reserve-with-timeout 1000")))]),
            (4, lambda: [self._send(b"pause-tube %b %d" % (self._tube(), self._chance.choice((0, 0, 1000))))]),
            (17, lambda: [self._pipeline()]),
            (6, self._command_in_two_steps),
            (66, lambda: [self._send(self._command())]),
        ]
        return self._one_of(kinds)

    def _pipeline(self) -> Send:
        data = b"".join(self._command() + b"\r\n" for _ in range(self._chance.randint(2, 8)))
        return self._cut(Send(self._connection(), data))

    def _command_in_two_steps(self) -> list[Step]:
        """The halves of a put, and what another does in between: no put, as beanstalkd gives ids by first lines."""
        connection, data = self._connection(), self._put() + b"\r\n"
        place = self._chance.randrange(1, len(data))
        others = [one for one in range(self._connections) if one != connection]
        while b"put " in (command := self._command()):
            pass
        between: list[Step] = [Send(self._chance.choice(others), command + b"\r\n")] if others else []
        return [Send(connection, data[:place], part="half"), *between, Send(connection, data[place:], part="rest")]

    def _send(self, command: bytes) -> Send:
        return self._cut(Send(self._connection(), command + b"\r\n"))

    def _cut(self, send: Send) -> Send:
        if self._chance.random() < 0.8:
            return send
        number = min(self._chance.randint(1, 4), len(send.data) - 1)
        return Send(send.connection, send.data, tuple(sorted(self._chance.sample(range(1, len(send.data)), number))))

    def _command(self) -> bytes:
        return self._one_of(self._commands)

    def _one_of(self, weighted: list[tuple[int, Callable[[], T]]]) -> T:
        [(_, make)] = self._chance.choices(weighted, [weight for weight, _ in weighted])
        return make()

    def _put(self) -> bytes:
        return self._put_with(delay=self._delay(), ttr=self._chance.choice((60, 120, 100_000, 1_000_000)))

    def _put_with(self, delay: int = 0, ttr: int = 100) -> bytes:
        self._puts += 1
        body = self._body()
        return b"put %d %d %d %d\r\n%b" % (self._priority(), delay, ttr, len(filled(body, [])), body)

    def _damaged_put(self) -> bytes:
        without_its_end = b"put 0 0 60 3\r\nabcdefoo"  # the rest is read as a command
        return self._chance.choice((without_its_end, b"put 0 0 60 65536\r\n<z*65536>", b"put 0 0 60 4294967296\r\nfoo"))

    def _body(self) -> bytes:
        kind = self._chance.random()
        if kind < 0.02:
            return self._chance.choice((b"<m*65535>", b"<m*5000>"))
        if kind < 0.1:
            return self._chance.choice((b"", b"\r\n", b"\0", b"put 0 0 1 1\r\nx\r\n", b"\xff\xfe"))
        if kind < 0.4:
            return self._chance.randbytes(self._chance.randint(0, 40)).replace(b"<", b"(")
        return b"job %d" % self._puts

    def _connection(self) -> int:
        return self._chance.randrange(self._connections)

    def _tube(self) -> bytes:
        return self._chance.choice(TUBES)

    def _priority(self) -> int:
        return self._chance.choice(PRIORITIES)

    def _delay(self) -> int:
        return next(self._delays) if self._chance.random() < 0.2 else 0

    def _job(self) -> bytes:
        if self._puts == 0 or self._chance.random() < 0.04:
            return b"%d" % self._chance.choice((0, 999_999_999, 2**63, 2**64 - 1))
        recent = max(0, self._puts - 5) if self._chance.random() < 0.6 else 0
        return b"<#%d>" % self._chance.randrange(recent, self._puts)
