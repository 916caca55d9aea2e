from __future__ import annotations

from typing import Any, cast

import pytest

from peerd.gateway.table_counts import FEW, TableCounts
from peerd.store.jobs.types import TubeCounts

NO_CONNECTION = cast("Any", None)


def test_a_count_is_used_for_ten_times_as_long_as_it_took_and_for_a_second_at_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, takes, counted, jobs = 0.0, 0.0, 0, FEW + 1

    def count(*_: Any) -> TubeCounts:
        nonlocal now, counted
        now += takes
        counted += 1
        return TubeCounts(ready=jobs, urgent=counted)

    monkeypatch.setattr("peerd.gateway.table_counts.time.monotonic", lambda: now)
    monkeypatch.setattr("peerd.store.jobs.tube_counts", count)
    monkeypatch.setattr("peerd.store.jobs.cluster_counts", count)
    for takes, jobs, pauses, numbers in (
        (0.0, FEW + 1, (0.0, 0.0), [1, 2, 3]),
        (0.06, FEW + 1, (0.5, 0.2), [1, 1, 2]),
        (3.0, FEW + 1, (0.9, 0.2), [1, 1, 2]),
        (0.2, FEW, (0.0, 0.0), [1, 2, 3]),  # to count few jobs took long by chance
    ):
        counts, counted = TableCounts(), 0
        found = [counts.of_tube(NO_CONNECTION, "a").urgent]
        for pause in pauses:
            now += pause
            found.append(counts.of_tube(NO_CONNECTION, "a").urgent)
        assert found == numbers, (takes, jobs)
    takes, jobs, counts, counted = 0.2, FEW + 1, TableCounts(), 0
    assert [counts.of_tube(NO_CONNECTION, tube).urgent for tube in ("a", "b", "a")] == [1, 2, 1]
    assert [counts.of_all(NO_CONNECTION).urgent for _ in range(2)] == [3, 3]
