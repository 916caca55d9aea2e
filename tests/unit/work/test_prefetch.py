"""How much a process may claim ahead."""

from __future__ import annotations

import pytest

from peerd.work.claims.prefetch import MOST_AHEAD, Pace
from tests.support.manual_clock import Clock


def paced(clock: Clock, attempts: int, seconds: float, *, places: int = 10) -> Pace:
    pace = Pace(clock, places)
    pace.begin()
    clock.now += seconds
    pace.ended(attempts)
    return pace


def test_nothing_is_claimed_ahead_before_anything_is_known() -> None:
    assert Pace(Clock(), 10).look_ahead() == 0


@pytest.mark.parametrize(
    ("attempts", "seconds", "places", "ahead"),
    [(1000, 0.1, 10, 100), (100_000, 0.1, 10, MOST_AHEAD), (100, 10.0, 10, 0), (1000, 10.0, 100, 0)],
)
def test_what_is_claimed_ahead_begins_within_milliseconds(
    attempts: int, seconds: float, places: int, ahead: int
) -> None:
    assert paced(Clock(), attempts, seconds, places=places).look_ahead() == ahead


def test_time_in_which_nothing_runs_does_not_count() -> None:
    clock = Clock()
    pace = paced(clock, 1000, 0.1)
    pace.rest()
    clock.now += 3600.0
    pace.begin()
    assert pace.look_ahead() == 100


def test_a_long_task_among_quick_ones_is_noticed_while_it_runs() -> None:
    clock = Clock()
    pace = paced(clock, 1000, 0.1)
    assert pace.look_ahead() == 100
    clock.now += 1.0
    pace.ended()
    assert pace.look_ahead() == 0


def test_a_guess_that_proved_wrong_is_forgotten_until_it_is_measured_anew() -> None:
    clock = Clock()
    pace = paced(clock, 1000, 0.1)
    assert pace.look_ahead() == 100
    pace.forget()
    assert pace.look_ahead() == 0
    clock.now += 0.1
    pace.ended(500)
    assert pace.look_ahead() == 50
