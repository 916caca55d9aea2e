from __future__ import annotations

import itertools

import pytest

from peerd.testing import eventually, eventually_async


def test_the_first_true_value_is_returned() -> None:
    numbers = itertools.count()
    assert eventually(lambda: next(numbers) >= 3 and "three", every=0) == "three"


def test_a_condition_that_never_holds_fails_with_the_message_and_the_last_reason() -> None:
    def never() -> bool:
        raise AssertionError("2 of 3 are ready")

    with pytest.raises(AssertionError, match=r"nodes are ready: not true within 0\.01 s") as caught:
        eventually(never, timeout=0.01, every=0.001, message="nodes are ready")
    assert str(caught.value.__cause__) == "2 of 3 are ready"


def test_an_error_that_is_no_assertion_is_not_waited_for() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)


async def test_coroutines_and_plain_functions_are_awaited_alike() -> None:
    numbers = itertools.count()

    async def third() -> bool:
        return next(numbers) >= 3

    assert await eventually_async(third, every=0)
    assert await eventually_async(lambda: next(numbers) >= 6, every=0)
    with pytest.raises(AssertionError, match="not true within 0 s"):
        await eventually_async(lambda: False, timeout=0)
