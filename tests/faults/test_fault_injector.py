"""Lanes of faults: the same seed, the same choices; what goes wrong in one is not hidden; all is told."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.faults import history
from tests.faults.fault_injector import Lane, told


class Choosing(Lane):
    """Notes what it would do, as often as it may."""

    def __init__(self, seed: int, stopping: threading.Event, times: int) -> None:
        super().__init__("choosing", random.Random(seed), 0.001, (0.5, 1.5), stopping)
        self.chosen: list[str] = []
        self._stop = stopping
        self._times = times

    def act(self) -> None:
        self.one_of({name: (weight, lambda name=name: self.chosen.append(name)) for name, weight in WEIGHTS})  # type: ignore[misc]
        if len(self.chosen) == self._times:
            self._stop.set()


WEIGHTS = [("often", 9), ("seldom", 1)]


def run(lane: Lane) -> None:
    lane.start()
    lane.join()


def test_the_same_seed_makes_the_same_choices_by_their_weights() -> None:
    lanes = [Choosing(seed, threading.Event(), times=200) for seed in (1, 1, 2)]
    for lane in lanes:
        run(lane)
    assert lanes[0].chosen == lanes[1].chosen != lanes[2].chosen
    assert 5 <= lanes[0].chosen.count("seldom") <= 40


def test_what_goes_wrong_in_a_lane_is_kept_for_who_asks() -> None:
    class Failing(Choosing):
        def act(self) -> None:
            raise ZeroDivisionError

    lane = Failing(1, threading.Event(), times=1)
    run(lane)
    assert isinstance(lane.error, ZeroDivisionError)


def test_a_fault_that_lasts_is_healed_when_the_lane_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path))

    class Lasting(Choosing):
        def act(self) -> None:
            with told("outage", "all", effect="cut", everyone=True):
                self.wait(1000.0)

    stopping = threading.Event()
    lane = Lasting(1, stopping, times=1)
    lane.start()
    eventually(lambda: history.read(tmp_path))
    stopping.set()
    lane.join()
    fault, healed = history.read(tmp_path)
    assert (fault.event, fault.kind, fault.effect, fault.everyone) == ("fault", "outage", "cut", True)
    assert (healed.event, healed.kind, healed.target) == ("healed", "outage", "all")
    assert fault.at < healed.at
    assert lane.error is None
