"""Lanes of faults: the same seed, the same choices; exceptions of a lane are not hidden; every fault is recorded."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.faults import history
from tests.faults.fault_injector import FaultInjector, recorded_fault

pytestmark = pytest.mark.slow


class Lane(FaultInjector):
    """Does what a test gives it."""

    def __init__(self, seed: int, inject: Callable[[Lane], None]) -> None:
        self.stopping = threading.Event()
        super().__init__("lane", random.Random(seed), 0.001, (0.5, 1.5), self.stopping)
        self.chosen: list[str] = []
        self._inject = inject
        self.start()

    def inject(self) -> None:
        self._inject(self)


def choose(lane: Lane) -> None:
    lane.inject_one_of(
        {"often": (9, lambda: lane.chosen.append("often")), "seldom": (1, lambda: lane.chosen.append("seldom"))}
    )
    if len(lane.chosen) == 200:
        lane.stopping.set()


def fail(lane: Lane) -> None:
    raise ZeroDivisionError


def last(lane: Lane) -> None:
    with recorded_fault("outage", "all", effect="cut", everyone=True):
        lane.wait(1000.0)


def test_the_same_seed_makes_the_same_choices_by_their_weights_and_an_error_is_kept() -> None:
    lanes = [Lane(seed, choose) for seed in (1, 1, 2)]
    failing = Lane(1, fail)
    for lane in (*lanes, failing):
        lane.join()
    assert lanes[0].chosen == lanes[1].chosen != lanes[2].chosen
    assert 5 <= lanes[0].chosen.count("seldom") <= 40
    assert isinstance(failing.error, ZeroDivisionError)


def test_a_lasting_fault_is_healed_when_its_injector_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path))
    lane = Lane(1, last)
    eventually(lambda: history.read(tmp_path))
    lane.stopping.set()
    lane.join()
    fault, healed = history.read(tmp_path)
    assert (fault.event, fault.kind, fault.effect, fault.everyone) == ("fault", "outage", "cut", True)
    assert (healed.event, healed.kind, healed.target) == ("healed", "outage", "all")
    assert fault.at < healed.at
    assert lane.error is None
