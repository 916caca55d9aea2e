from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from peerd.testing import eventually, eventually_async, waiting


def test_the_first_true_value_is_returned_and_an_error_other_than_an_assertion_raised() -> None:
    numbers = itertools.count()
    assert eventually(lambda: next(numbers) >= 3 and "three", every=0) == "three"
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)


def test_a_condition_that_never_holds_fails_with_the_message_and_the_last_reason() -> None:
    def never() -> bool:
        raise AssertionError("2 of 3 are ready")

    with pytest.raises(AssertionError, match=r"nodes are ready: not true within 0\.01 s") as caught:
        eventually(never, timeout=0.01, every=0.001, message="nodes are ready")
    assert str(caught.value.__cause__) == "2 of 3 are ready"


async def test_coroutines_and_plain_functions_are_awaited_alike() -> None:
    numbers = itertools.count()

    async def third() -> bool:
        return next(numbers) >= 3

    assert await eventually_async(third, every=0)
    assert await eventually_async(lambda: next(numbers) >= 6, every=0)
    with pytest.raises(AssertionError, match="not true within 0 s"):
        await eventually_async(lambda: False, timeout=0)


def test_a_long_wait_calls_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, calls = list[float](), list[float]()
    steps = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(waiting, "time", steps)

    def after_a_minute() -> bool:
        calls.append(sum(pauses))
        return calls[-1] >= 60.0

    eventually(after_a_minute, timeout=70.0)
    assert sum(moment < 0.4 for moment in calls) == pytest.approx(20, abs=1)
    assert sum(30.0 <= moment < 60.0 for moment in calls) == pytest.approx(300, abs=1)
    assert calls[-1] < 60.2
