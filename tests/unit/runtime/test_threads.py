"""Threads of peerd."""

from __future__ import annotations

import pytest

from peerd.runtime import concurrency
from peerd.testing import eventually


def test_a_periodic_step_that_raises_is_logged_and_called_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(concurrency, "PAUSE_AFTER_FAILURE", 0.01)
    calls: list[float] = []

    def step(now: float) -> float:
        calls.append(now)
        if len(calls) == 2:
            raise ValueError("the second step fails")
        return 0.01

    thread = concurrency.PeriodicThread(step)
    thread.start()
    eventually(lambda: len(calls) > 3)
    thread.stop()
    thread.join(10.0)
    assert "ValueError: the second step fails" in capsys.readouterr().err
