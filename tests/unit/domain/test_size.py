from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.size import format_size, parse_size
from tests.support.rows import rows


@rows(
    "text, size",
    [("500MB", 500_000_000), ("1 KiB", 1024), ("2gb", 2_000_000_000), ("0.5k", 500), ("12", 12), (7, 7)],
)
def test_a_size_is_read(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@rows("value", ["", "MB", "-1MB", "5 apples", -1, True, 1.5, None])
def test_anything_else_is_refused_with_the_forms_that_are_accepted(value: object) -> None:
    with pytest.raises(ValueError, match="is not a size: give bytes, or text such as"):
        parse_size(value)  # type: ignore[arg-type]


@given(st.integers(0, 10**17))
def test_a_written_size_is_near_the_given_one(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.01)
