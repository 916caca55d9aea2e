"""Random scripts of commands are answered alike by Debian's beanstalkd and by peerd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.beanstalk_servers import BEANSTALKD, BeanstalkServer, ConnectableServer, why_missing
from tests.gateway.differential.generator import THEMES, random_script, random_timed_script
from tests.gateway.differential.mistakes import ANSWERED, ASKED, MistakenServer
from tests.gateway.differential.playing import TooLateError, play, play_in_time
from tests.gateway.differential.script import Script
from tests.gateway.differential.shrinking import shortest
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


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme != "deadlines"])
def test_random_scripts_in_which_time_passes_are_answered_alike(
    reference: BeanstalkServer, command_server: BeanstalkServer, theme: str
) -> None:
    """beanstalkd now and then overlooks the end of a TTR; the rules of deadlines have tests of their own."""
    for seed in range(TIMED_SEEDS):
        assert_alike(f"{theme} {seed}", random_timed_script(seed, theme), reference, command_server)


def test_each_mistake_of_a_server_is_found(reference: BeanstalkServer, command_server: BeanstalkServer) -> None:
    for mistake in (*ASKED, *ANSWERED):
        tested = MistakenServer(command_server, mistake)
        scripts = map(random_script, range(SCRIPTS_PER_MISTAKE))
        assert any(play(script, reference, tested) is not None for script in scripts), mistake
