"""Random scripts of commands are answered alike by Debian's beanstalkd and by peerd."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.beanstalk_servers import BEANSTALKD, BeanstalkServer, ConnectableServer, why_missing
from tests.gateway.differential.generator import THEMES, random_script, random_timed_script
from tests.gateway.differential.playing import TooLateError, play, play_in_time, shortest
from tests.gateway.differential.script import Script
from tests.gateway.gateway_thread import GatewayThread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SEEDS = 60
"""From 0; `make differential` plays others."""
TIMED_SEEDS = 2
SCRIPTS_PER_MISTAKE = 60


@pytest.fixture(scope="module")
def reference() -> Iterator[BeanstalkServer]:
    """Debian's beanstalkd."""
    if reason := why_missing(BEANSTALKD):
        pytest.skip(reason)
    server = BeanstalkServer(BEANSTALKD)
    server.start()
    yield server
    server.stop()


def assert_alike(name: str, script: Script, reference: BeanstalkServer, tested: ConnectableServer) -> None:
    """Fail with the shortest script that differs."""
    try:
        if (found := play_in_time(script, reference, tested)) is not None:
            said = shortest(name, script, found, lambda rest: play_in_time(rest, reference, tested))
            pytest.fail(said, pytrace=False)
    except TooLateError as error:
        pytest.skip(str(error))


def test_random_scripts_are_answered_alike(reference: BeanstalkServer, server: GatewayThread) -> None:
    for seed in range(SEEDS):
        assert_alike(f"seed {seed}", random_script(seed), reference, server)


@pytest.mark.parametrize("theme", THEMES)
def test_random_scripts_in_which_time_passes_are_answered_alike(
    reference: BeanstalkServer, command_server: BeanstalkServer, theme: str
) -> None:
    """beanstalkd now and then overlooks the end of a TTR; the rules of deadlines have tests of their own."""
    for seed in range(TIMED_SEEDS):
        assert_alike(f"{theme} {seed}", random_timed_script(seed, theme), reference, command_server)


Change = tuple[bytes, bytes]
"""A pattern, and by what it is replaced."""
ASKED: Final[dict[str, Change]] = {
    "release ignores the priority": (rb"release (\d+) \d+ ", rb"release \1 7 "),
    "bury ignores the priority": (rb"bury (\d+) \d+", rb"bury \1 7"),
    "a larger kick is one of 1": (rb"kick \d{2,}", b"kick 1"),
    "reserve-job takes nothing": (rb"reserve-job \d+", b"reserve-job 0"),
    "a tube is never ignored": (rb"ignore [a-z-]+\r", b"ignore nowhere\r"),
    "a delay of release is lost": (rb"(release \d+ \d+) [1-9]\d*", rb"\1 0"),
    "a pause is lost": (rb"(pause-tube [a-z-]+) 1\d*", rb"\1 0"),
}
ANSWERED: Final[dict[str, Change]] = {
    "touch answers not found": (rb"TOUCHED", b"NOT_FOUND"),
    "bodies end at a zero byte": (rb"\0", b" "),
    "a reserved job is called ready": (rb"state: reserved", b"state: ready   "),
}
NOTHING: Final[Change] = (rb"(?!)", b"")


class MistakenServer:
    """A server that is spoken to through a mistake."""

    def __init__(self, behind: BeanstalkServer, mistake: str) -> None:
        self._behind = behind
        self._mistake = mistake

    def connect(self) -> BeanstalkConnection:
        connection = _MistakenConnection(self._behind.address)
        connection.asked = ASKED.get(self._mistake, NOTHING)
        connection.answered = ANSWERED.get(self._mistake, NOTHING)
        return connection


class _MistakenConnection(BeanstalkConnection):
    asked = answered = NOTHING

    def send(self, data: bytes) -> None:
        super().send(re.sub(*self.asked, data))

    def _next_answer(self) -> bytes | None:
        answer = super()._next_answer()
        return answer and re.sub(*self.answered, answer)


def test_each_mistake_of_a_server_is_found(reference: BeanstalkServer, command_server: BeanstalkServer) -> None:
    for mistake in (*ASKED, *ANSWERED):
        tested = MistakenServer(command_server, mistake)
        scripts = map(random_script, range(SCRIPTS_PER_MISTAKE))
        assert any(play(script, reference, tested) is not None for script in scripts), mistake
