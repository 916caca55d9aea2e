"""Lanes of faults: the same seed, the same choices; exceptions of a lane are not hidden; every fault is recorded."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.faults import history
from tests.faults.fault_injector import FaultInjector, recorded_fault


class RecordingInjector(FaultInjector):
    """Notes what it would do, as often as it may."""

    def __init__(self, seed: int, stopping: threading.Event, times: int) -> None:
        super().__init__("choosing", random.Random(seed), 0.001, (0.5, 1.5), stopping)
        self.chosen: list[str] = []
        self._stop = stopping
        self._times = times

    def inject(self) -> None:
        self.inject_one_of({name: (weight, lambda name=name: self.chosen.append(name)) for name, weight in WEIGHTS})  # type: ignore[misc]
        if len(self.chosen) == self._times:
            self._stop.set()


WEIGHTS = [("often", 9), ("seldom", 1)]


def run(fault_injector: FaultInjector) -> None:
    fault_injector.start()
    fault_injector.join()


def test_the_same_seed_makes_the_same_choices_by_their_weights() -> None:
    lanes = [RecordingInjector(seed, threading.Event(), times=200) for seed in (1, 1, 2)]
    for fault_injector in lanes:
        run(fault_injector)
    assert lanes[0].chosen == lanes[1].chosen != lanes[2].chosen
    assert 5 <= lanes[0].chosen.count("seldom") <= 40


def test_an_error_in_an_injector_is_kept() -> None:
    class Failing(RecordingInjector):
        def inject(self) -> None:
            raise ZeroDivisionError

    fault_injector = Failing(1, threading.Event(), times=1)
    run(fault_injector)
    assert isinstance(fault_injector.error, ZeroDivisionError)


def test_a_lasting_fault_is_healed_when_its_injector_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path))

    class Lasting(RecordingInjector):
        def inject(self) -> None:
            with recorded_fault("outage", "all", effect="cut", everyone=True):
                self.wait(1000.0)

    stopping = threading.Event()
    fault_injector = Lasting(1, stopping, times=1)
    fault_injector.start()
    eventually(lambda: history.read(tmp_path))
    stopping.set()
    fault_injector.join()
    fault, healed = history.read(tmp_path)
    assert (fault.event, fault.kind, fault.effect, fault.everyone) == ("fault", "outage", "cut", True)
    assert (healed.event, healed.kind, healed.target) == ("healed", "outage", "all")
    assert fault.at < healed.at
    assert fault_injector.error is None
