"""Counts that take long are used again; others are not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from peerd.gateway.table_counts import FEW, TableCounts
from peerd.store.jobs.types import TubeCounts

NO_CONNECTION = cast("Any", None)
MANY = FEW + 1


class Counting:
    """Counts that take some time of a clock that is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.takes = 0.0
        self.ready = MANY
        self.counted = 0
        monkeypatch.setattr("peerd.gateway.table_counts.time.monotonic", lambda: self.now)
        monkeypatch.setattr("peerd.store.jobs.tube_counts", lambda connection, tube: self.count())
        monkeypatch.setattr("peerd.store.jobs.cluster_counts", lambda connection: self.count())

    def count(self) -> TubeCounts:
        self.now += self.takes
        self.counted += 1
        return TubeCounts(ready=self.ready, urgent=self.counted)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def test_a_quick_count_is_made_each_time(counting: Counting) -> None:
    counts = TableCounts()
    assert [counts.of_tube(NO_CONNECTION, "a").urgent for _ in range(3)] == [1, 2, 3]


def test_a_slow_count_is_used_for_ten_times_as_long_as_it_took(counting: Counting) -> None:
    counts, counting.takes = TableCounts(), 0.06
    assert counts.of_all(NO_CONNECTION).urgent == 1
    counting.now += 0.5
    assert counts.of_all(NO_CONNECTION).urgent == 1
    counting.now += 0.2
    assert counts.of_all(NO_CONNECTION).urgent == 2


def test_no_count_is_used_for_longer_than_a_second(counting: Counting) -> None:
    counts, counting.takes = TableCounts(), 3.0
    assert counts.of_all(NO_CONNECTION).urgent == 1
    counting.now += 1.1
    assert counts.of_all(NO_CONNECTION).urgent == 2


def test_each_tube_has_its_own_count(counting: Counting) -> None:
    counts, counting.takes = TableCounts(), 0.2
    assert (counts.of_tube(NO_CONNECTION, "a").urgent, counts.of_tube(NO_CONNECTION, "b").urgent) == (1, 2)
    assert counts.of_tube(NO_CONNECTION, "a").urgent == 1


def test_a_count_of_few_jobs_is_made_each_time_however_long_it_took(counting: Counting) -> None:
    counts, counting.takes, counting.ready = TableCounts(), 0.2, FEW
    assert [counts.of_tube(NO_CONNECTION, "a").urgent for _ in range(2)] == [1, 2]
