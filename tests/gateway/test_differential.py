"""Random scripts of commands are answered alike by Debian's beanstalkd and by peerd's drop-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.gateway.beanstalk_servers import BEANSTALKD, BeanstalkServer, why_missing
from tests.gateway.differential.generator import THEMES, random_script, random_timed_script
from tests.gateway.differential.playing import Difference, TooLateError, play, play_in_time
from tests.gateway.differential.proxy import MISTAKES, MistakenServer
from tests.gateway.differential.report import describe
from tests.gateway.differential.script import Script, from_text, is_sound, to_text
from tests.gateway.differential.shrinking import shrink
from tests.gateway.gateway_on_database import GATEWAYS

pytestmark = pytest.mark.one_database

FEW = 40
MANY = 200
"""Seeds from the first; `make differential` plays others."""
TIMED = 4
SCRIPTS_PER_MISTAKE = 60
COMPARABLE_THEMES = [theme for theme in THEMES if theme != "deadlines"]
"""beanstalkd now and then overlooks the end of a TTR; the rules of deadlines have tests of their own."""

Compare = Callable[[str, Script], None]


@pytest.fixture
def reference() -> Iterator[BeanstalkServer]:
    """Debian's beanstalkd, of the test's own."""
    yield from beanstalkd()


@pytest.fixture
def behind() -> Iterator[BeanstalkServer]:
    """Another one, which a proxy makes mistaken."""
    yield from beanstalkd()


def beanstalkd() -> Iterator[BeanstalkServer]:
    if reason := why_missing(BEANSTALKD):
        pytest.skip(reason)
    server = BeanstalkServer(BEANSTALKD)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def compare(server: BeanstalkServer, reference: BeanstalkServer) -> Compare:
    """Plays a script on the reference and on the server, and fails with the shortest that differs."""

    def play_on_both(script: Script) -> Difference | None:
        return play_in_time(script, reference, server)

    def compare(name: str, script: Script) -> None:
        try:
            if (found := play_on_both(script)) is None:
                return
            pytest.fail(describe(name, *shrink(script, found, play_on_both)), pytrace=False)
        except TooLateError as error:
            pytest.skip(str(error))

    return compare


def test_random_scripts_are_answered_alike(compare: Compare) -> None:
    for seed in range(FEW):
        compare(f"seed {seed}", random_script(seed))


@pytest.mark.parametrize("theme", COMPARABLE_THEMES)
def test_a_random_script_in_which_time_passes_is_answered_alike(compare: Compare, theme: str) -> None:
    compare(f"{theme} 0", random_timed_script(0, theme, rounds=2))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hundreds_of_random_scripts_are_answered_alike(compare: Compare, kind: str) -> None:
    for seed in range(FEW, FEW + (MANY // 10 if kind in GATEWAYS else MANY)):
        compare(f"seed {seed}", random_script(seed))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", COMPARABLE_THEMES)
def test_more_random_scripts_in_which_time_passes_are_answered_alike(compare: Compare, theme: str) -> None:
    for seed in range(1, TIMED):
        compare(f"{theme} {seed}", random_timed_script(seed, theme))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_server_is_found(reference: BeanstalkServer, behind: BeanstalkServer, mistake: str) -> None:
    with MistakenServer(behind, *MISTAKES[mistake]) as tested:
        found = (play(random_script(seed), reference, tested) for seed in range(SCRIPTS_PER_MISTAKE))
        assert any(difference is not None for difference in found)


def test_a_script_is_shrunk_to_the_steps_that_show_a_mistake(
    reference: BeanstalkServer, behind: BeanstalkServer
) -> None:
    with MistakenServer(behind, *MISTAKES["touch answers not found"]) as tested:

        def play_on_both(script: Script) -> Difference | None:
            return play(script, reference, tested)

        noise = "1 send b'list-tubes\\r\\n'\n2 send b'kick 1\\r\\n'\n"
        steps = "0 send b'put 0 0 60 1\\r\\nx\\r\\n'\n0 send b'reserve\\r\\n'\n0 send b'touch <#0>\\r\\n'\n"
        script = from_text(noise * 3 + steps + noise * 3)
        found = play_on_both(script)
        assert found is not None
        shortest, difference = shrink(script, found, play_on_both)
        assert to_text(shortest) + "\n" == steps
        assert (difference.expected, difference.got) == (b"TOUCHED\r\n", b"NOT_FOUND\r\n")


@pytest.mark.parametrize("seed", range(20))
def test_a_script_can_be_written_down_and_read_again(seed: int) -> None:
    assert is_sound(random_script(seed))
    assert from_text(to_text(random_script(seed))) == random_script(seed)
    assert from_text(to_text(random_timed_script(seed, THEMES[0]))) == random_timed_script(seed, THEMES[0])
