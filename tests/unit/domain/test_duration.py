from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.duration import format_duration, parse_duration
from tests.support.rows import rows


@rows("text, seconds", [
    ("10s", 10), ("5m", 300), ("2h", 7200), ("3d", 259_200), ("1w", 604_800), ("500ms", 0.5), ("1h30m", 5400),
    ("1h 30m", 5400), (" 2.5 s ", 2.5), ("30", 30), (0, 0), (1.5, 1.5),
])  # fmt: skip
def test_a_duration_is_read(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@rows(
    "value",
    ["", "s", "10 parsecs", "-1s", "30m1h", "1h1h", "1e3", "10s!", -1, math.nan, math.inf, True, None, [1]],
)
def test_anything_else_is_refused_with_the_forms_that_are_accepted(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration: give seconds, or text such as"):
        parse_duration(value)  # type: ignore[arg-type]


@given(st.integers(0, 3_599_999))
def test_a_written_duration_below_an_hour_is_read_with_the_same_milliseconds(milliseconds: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.floats(0, 1e9))
def test_a_written_duration_is_near_the_given_one(seconds: float) -> None:
    written = parse_duration(format_duration(seconds))
    assert written == pytest.approx(seconds, rel=0.05, abs=0.001)


def test_a_negative_duration_is_shown_with_its_sign() -> None:
    assert format_duration(-90) == "-1m30s"
