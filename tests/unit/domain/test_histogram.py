from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.attempt_totals import BIN_COUNT, Histogram
from tests.support.rows import rows

durations = st.lists(st.floats(0.0, 1e6), max_size=30)


@given(durations, durations)
def test_a_merge_is_the_histogram_of_all(some: list[float], others: list[float]) -> None:
    merged = Histogram.of(some)
    merged.merge(Histogram.of(others))
    whole = Histogram.of(some + others)
    assert merged.counts == whole.counts
    assert merged.sum == pytest.approx(whole.sum)
    assert whole.since(Histogram.of(some)).counts == Histogram.of(others).counts


@given(st.floats(0.001, 90_000.0), st.integers(1, 50))
def test_a_quantile_is_within_its_bin(seconds: float, number: int) -> None:
    found = Histogram.of([seconds] * number).quantile(0.95)
    assert found is not None
    assert 2**-0.5 <= found / seconds <= 2**0.5


@rows(
    "seconds, place",
    [(-1.0, 0), (0.0, 0), (0.001, 0), (0.0011, 1), (1.024, 20), (1.03, 21), (1e9, BIN_COUNT - 1), (math.nan, 0)],
)
def test_every_duration_has_its_bin(seconds: float, place: int) -> None:
    histogram = Histogram.of([seconds])
    assert histogram.counts.index(1) == place
    assert (histogram.count, Histogram().quantile(0.5)) == (1, None)
    assert histogram.sum == max(0.0, seconds if seconds == seconds else 0.0)  # noqa: PLR0124 - NaN is not itself
