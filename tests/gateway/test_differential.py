"""Random scripts of commands are answered alike by Debian's beanstalkd and by peerd."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.gateway.beanstalk_servers import BEANSTALKD, BeanstalkServer, ConnectableServer, why_missing
from tests.gateway.differential.generator import THEMES, random_script, random_timed_script
from tests.gateway.differential.mistakes import MISTAKES, MistakenServer
from tests.gateway.differential.playing import Difference, TooLateError, play, play_in_time
from tests.gateway.differential.script import Script, from_text, is_sound, to_text
from tests.gateway.differential.shrinking import describe, shrink
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


def player(reference: BeanstalkServer, tested: ConnectableServer) -> Callable[[Script], Difference | None]:
    return lambda script: play_in_time(script, reference, tested)


def assert_alike(name: str, script: Script, play_on_both: Callable[[Script], Difference | None]) -> None:
    """Fail with the shortest script that differs."""
    try:
        if (found := play_on_both(script)) is not None:
            pytest.fail(describe(name, *shrink(script, found, play_on_both)), pytrace=False)
    except TooLateError as error:
        pytest.skip(str(error))


def test_random_scripts_are_answered_alike(reference: BeanstalkServer, server: GatewayThread) -> None:
    for seed in range(SEEDS):
        assert_alike(f"seed {seed}", random_script(seed), player(reference, server))


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme != "deadlines"])
def test_random_scripts_in_which_time_passes_are_answered_alike(
    reference: BeanstalkServer, command_server: BeanstalkServer, theme: str
) -> None:
    """beanstalkd now and then overlooks the end of a TTR; the rules of deadlines have tests of their own."""
    for seed in range(TIMED_SEEDS):
        assert_alike(f"{theme} {seed}", random_timed_script(seed, theme), player(reference, command_server))


def test_each_mistake_of_a_server_is_found(reference: BeanstalkServer, command_server: BeanstalkServer) -> None:
    for mistake in MISTAKES:
        tested = MistakenServer(command_server, mistake)
        scripts = map(random_script, range(SCRIPTS_PER_MISTAKE))
        assert any(play(script, reference, tested) is not None for script in scripts), mistake


def test_a_script_is_shrunk_to_the_steps_that_show_a_mistake(
    reference: BeanstalkServer, command_server: BeanstalkServer
) -> None:
    play_on_both = player(reference, MistakenServer(command_server, "touch answers not found"))
    noise = "1 send b'list-tubes\\r\\n'\n2 send b'kick 1\\r\\n'\n"
    steps = "0 send b'put 0 0 60 1\\r\\nx\\r\\n'\n0 send b'reserve\\r\\n'\n0 send b'touch <#0>\\r\\n'\n"
    script = from_text(noise * 3 + steps + noise * 3)
    found = play_on_both(script)
    assert found is not None
    shortest, difference = shrink(script, found, play_on_both)
    assert to_text(shortest) + "\n" == steps
    assert (difference.expected, difference.got) == (b"TOUCHED\r\n", b"NOT_FOUND\r\n")


def test_a_script_can_be_written_down_and_read_again() -> None:
    for seed in range(20):
        for script in (random_script(seed), random_timed_script(seed, THEMES[0])):
            assert is_sound(script)
            assert from_text(to_text(script)) == script
