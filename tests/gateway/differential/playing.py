"""A script is played on two servers in lock step: the reference, which says what is due, and the one that is tested.

After each step the reference is asked until it answers nothing more; then the tested server must give as many answers
on each connection, alike. Which of several clients that wait is served is beanstalkd's own matter: one waits at a
time, and a reserve that would be the second does not wait. A client that waits sends nothing more: what follows would
run beside the rest of the packet that wakes it. While a client waits, jobs are kicked one by one: of several,
beanstalkd gives it the first, and peerd the most urgent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Final, Self, TypeVar

from tests.gateway.beanstalk_connection import BeanstalkConnection, elements
from tests.gateway.beanstalk_servers import ConnectableServer, sweep
from tests.gateway.differential.masks import CLOSED, Masked, alike, counters, masked
from tests.gateway.differential.script import Close, Script, Send, Step, Wait, filled, is_sound

T = TypeVar("T")
PATIENCE: Final = 5.0
"""Seconds within which the tested server must follow the reference."""
LATEST: Final = 0.3
"""Seconds that the steps between two waits may take, so that what is due stays apart from what is done."""
TRIES: Final = 3
SHRINKING: Final = 60.0
QUIET_ROUNDS: Final = 3
"""So often the reference answers somebody else without another answer of its own before it is known to be done."""
BYTES_IN_A_ROUND: Final = 200
"""The reference reads at least so many bytes of a body between two answers to others."""
BLOCKING_RESERVE: Final = re.compile(rb"(?m)^reserve(-with-timeout [1-9]\d*)?\r\n")
LARGER_KICK: Final = re.compile(rb"(?m)^kick \d+\r\n")
WAITING: Final = ("current-waiting",)
COUNTS_OF_ALL: Final = (
    "current-connections", "current-waiting", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two servers part.

    Attributes:
        number: of the step, counted from 0; that after the last means the state at the end.
        what: what is compared.
        expected: of the reference.
        got: of the tested server.
    """

    number: int
    what: str
    expected: Masked | str
    got: Masked | str

    def __str__(self) -> str:
        return f"after step {self.number}: {self.what}\n  expected {self.expected!r}\n  got      {self.got!r}"


class PlayedServer:
    """One server while a script is played on it."""

    def __init__(self, server: ConnectableServer) -> None:
        self._server = server
        self._opened = ExitStack()
        self.connections: dict[int, BeanstalkConnection] = {}
        self.ids: list[int] = []
        """Of the jobs that were put."""

    def __enter__(self) -> Self:
        sweep(self._server)
        self.watcher = self._opened.enter_context(self._server.connect())
        self._before = counters(self.watcher)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def send(self, step: Send, *, waits: bool) -> None:
        """Send the bytes of a step; without `waits`, a reserve in it does not wait, and a kick is one of one job."""
        data = filled(step.data, self.ids)
        if not waits:
            data = BLOCKING_RESERVE.sub(b"reserve-with-timeout 0\r\n", data)
            data = LARGER_KICK.sub(b"kick 1\r\n", data)
        if step.connection not in self.connections:
            self.connections[step.connection] = self._opened.enter_context(self._server.connect())
        ends = [*(cut for cut in step.cuts if cut < len(data)), len(data)]
        for begin, end in zip([0, *ends], ends, strict=False):
            self.connections[step.connection].send(data[begin:end])

    def close(self, number: int) -> None:
        """Close a connection if it is open."""
        if (connection := self.connections.pop(number, None)) is not None:
            connection.close()

    def answers_until_quiet(self, rounds: int) -> list[tuple[int, bytes]]:
        """All answers with their connections, until so many questions of another connection brought no more."""
        answers: list[tuple[int, bytes]] = []
        quiet = 0
        while quiet < rounds:
            self.watcher.ask(b"nothing that is counted\r\n")
            came = [(one, answer) for one in list(self.connections) for answer in self.answers_that_came(one)]
            answers += came
            quiet = 0 if came else quiet + 1
        return answers

    def answers_that_came(self, number: int) -> Iterator[bytes]:
        """What a connection has got and not read."""
        try:
            while (answer := self.connections[number].answer_that_came()) is not None:
                yield answer
        except ConnectionError:
            self.close(number)
            yield CLOSED

    def next_answer(self, number: int) -> bytes:
        """The next answer on a connection, within `PATIENCE`; else TimeoutError."""
        try:
            return self.connections[number].receive(PATIENCE)
        except ConnectionError:
            self.close(number)
            return CLOSED

    def ask(self, command: bytes) -> Masked:
        """Ask by a connection of its own."""
        [answer] = self.masked([self.watcher.ask(filled(command, self.ids))])
        return answer

    def masked(self, answers: Sequence[bytes]) -> list[Masked]:
        """Answers to one step, masked; a job may have come to whom waited before the put was answered."""
        self.ids += [int(answer.split()[1]) for answer in answers if answer.startswith(b"INSERTED ")]
        return [masked(answer, self.ids, self._before) for answer in answers]

    def counts(self, names: Sequence[str]) -> tuple[int, ...]:
        """Members of `stats`."""
        shown = self.watcher.statistics()
        return tuple(int(shown[name]) for name in names)

    def tubes(self) -> list[str]:
        return sorted(elements(self.watcher.ask(b"list-tubes\r\n")))


class TooLateError(Exception):
    """A machine that is busy with other things has played the steps between two waits too slowly."""


def play_in_time(script: Script, reference: ConnectableServer, tested: ConnectableServer) -> Difference | None:
    """Play a script until it is played in time; some differences count only if they are shown `TRIES` times.

    On a busy machine, beanstalkd now and then overlooks the end of a TTR, and peerd uses a count of jobs again for a
    while that has taken long.

    Raises:
        TooLateError: it was not played in time, `TRIES` times.
    """
    is_timed = any(isinstance(step, Wait) for step in script)
    for attempt in range(1, TRIES + 1):
        try:
            difference = play(script, reference, tested)
            for _ in range(TRIES - 1):
                if difference is None or not (is_timed or difference.expected[:1] == ("OK",)):
                    break
                difference = play(script, reference, tested)
            return difference
        except TooLateError:
            if attempt == TRIES:
                raise
    raise AssertionError("unreachable")


def play(script: Script, reference: ConnectableServer, tested: ConnectableServer) -> Difference | None:
    """Play a script on both servers; the first difference, None if there is none.

    Raises:
        TooLateError: the steps before a wait took longer than `LATEST`.
    """
    with PlayedServer(reference) as first, PlayedServer(tested) as second:
        playing = _LockStep(first, second)
        for number, step in enumerate(script):
            if (difference := playing.play(number, step)) is not None:
                return difference
        return playing.final_difference(len(script))


def followed(expected: T, ask: Callable[[], T], is_alike: Callable[[T, T], bool], every: float = 0.002) -> T:
    """What is answered at last: after `PATIENCE` seconds, or when it is as it should be."""
    deadline = time.monotonic() + PATIENCE
    while not is_alike(expected, got := ask()) and time.monotonic() < deadline:
        time.sleep(every)
    return got


class _LockStep:
    def __init__(self, reference: PlayedServer, tested: PlayedServer) -> None:
        self._skipped: set[int] = set()
        self._reference = reference
        self._tested = tested
        self._round_began = time.monotonic()
        self._waiting = 0
        self._waiter: int | None = None

    def play(self, number: int, step: Step) -> Difference | None:
        waiting_before = self._waiting
        self._do(step)
        size = len(filled(step.data, [])) if isinstance(step, Send) else 0
        due = self._reference.answers_until_quiet(QUIET_ROUNDS + size // BYTES_IN_A_ROUND)
        self._note_who_waits(step)
        closes = isinstance(step, Close) or any(answer == CLOSED for _, answer in due)
        return (
            self._different_answers(number, due)
            or self._too_many_answers(number)
            or (self._different_counts(number, COUNTS_OF_ALL) if closes else None)
            or (self._different_counts(number, WAITING) if self._waiting != waiting_before else None)
        )

    def _do(self, step: Step) -> None:
        match step:
            case Wait():
                self._wait(step.seconds)
            case Close():
                self._reference.close(step.connection)
                self._tested.close(step.connection)
            case Send() if self._is_sent(step):
                waits = self._waiting == 0
                self._reference.send(step, waits=waits)
                self._tested.send(step, waits=waits)

    def _is_sent(self, step: Send) -> bool:
        """Whether the client of this step does not wait; the rest of what was not sent is not sent either."""
        if step.part == "rest" and step.connection in self._skipped:
            self._skipped.remove(step.connection)
            return False
        is_waiting = bool(self._waiting) and self._waiter == step.connection
        if is_waiting and step.part == "half":
            self._skipped.add(step.connection)
        return not is_waiting

    def _wait(self, seconds: float) -> None:
        taken = self._taken()
        if taken > LATEST:
            raise TooLateError(f"the steps before a wait took {taken:.2f} s")
        time.sleep(seconds - taken)
        self._round_began += seconds

    def _taken(self) -> float:
        """The seconds of the steps since the last wait; on a busy machine, either server may have used them all."""
        return time.monotonic() - self._round_began

    def _are_alike(self, one: Masked, other: Masked) -> bool:
        return alike(one, other, 1.0 + self._taken())

    def _note_who_waits(self, step: Step) -> None:
        [self._waiting] = self._reference.counts(WAITING)
        if self._waiting and isinstance(step, Send) and BLOCKING_RESERVE.search(step.data) and self._waiter is None:
            self._waiter = step.connection
        elif not self._waiting:
            self._waiter = None

    def _different_answers(self, number: int, due: list[tuple[int, bytes]]) -> Difference | None:
        """The first answer that is another, or does not come."""
        received: list[bytes] = []
        missing: list[str] = []
        for connection, _ in due:
            try:
                received.append(self._tested.next_answer(connection))
            except (TimeoutError, KeyError) as error:
                missing = [str(error) if isinstance(error, TimeoutError) else "the connection is closed"]
                break
        expected = self._reference.masked([answer for _, answer in due])
        got: list[Masked | str] = [*self._tested.masked(received), *missing]
        for (connection, _), one, other in zip(due, expected, got, strict=False):
            if isinstance(other, str) or not self._are_alike(one, other):
                return Difference(number, f"connection {connection}", one, other)
        return None

    def _too_many_answers(self, number: int) -> Difference | None:
        for connection in list(self._tested.connections):
            if answers := list(self._tested.answers_that_came(connection)):
                [got, *_] = self._tested.masked(answers)
                return Difference(number, f"connection {connection}", "no answer", got)
        return None

    def _different_counts(self, number: int, names: Sequence[str]) -> Difference | None:
        """Whether the tested server, in its time, comes to the same counts."""
        expected = self._reference.counts(names)
        got = followed(expected, lambda: self._tested.counts(names), lambda one, other: one == other)
        return None if got == expected else Difference(number, f"stats: {', '.join(names)}", str(expected), str(got))

    def final_difference(self, number: int) -> Difference | None:
        """The first difference between what both hold at the end, when peerd has counted anew."""
        expected, got = self._reference.tubes(), self._tested.tubes()
        if expected != got:
            return Difference(number, "list-tubes", str(expected), str(got))
        questions = [
            b"%b <#%d>\r\n" % (ask, job) for ask in (b"stats-job", b"peek") for job in range(len(self._reference.ids))
        ]
        questions += [b"stats-tube %b\r\n" % tube.encode() for tube in expected]
        for question in [*questions, b"stats\r\n"]:
            one = self._reference.ask(question)
            other = followed(one, partial(self._tested.ask, question), self._are_alike, every=0.05)
            if not self._are_alike(one, other):
                return Difference(number, question.decode().strip(), _parted(one, other), _parted(other, one))
        return None


def _parted(one: Masked, other: Masked) -> Masked:
    """What of an answer is not in the other."""
    if isinstance(one, bytes) or isinstance(other, bytes):
        return one
    return tuple(part for part, beside in zip_longest(one, other) if part != beside)


def shortest(name: str, script: Script, found: Difference, play: Callable[[Script], Difference | None]) -> str:
    """What differs, and what is left when steps are left out, many at once at first, as long as the rest differs."""
    deadline = time.monotonic() + SHRINKING
    size = max(1, len(script) // 2)
    while size and time.monotonic() < deadline:
        for begin in range(len(script) - size, -1, -size):
            rest = script[:begin] + script[begin + size :]
            if time.monotonic() < deadline and is_sound(rest) and (difference := play(rest)) is not None:
                script, found = rest, difference
                break
        else:
            size //= 2
    steps = "\n".join(map(repr, script))
    return f"{name}: {found}\nthe script, for python -m tests.gateway.differential --replay FILE:\n\n{steps}\n"
