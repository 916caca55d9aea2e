from __future__ import annotations

from typing import Any, cast

import pytest

from peerd.gateway.queue_capacity import LEAST_PAUSE, VALID_FOR, Admission, QueueCapacities
from peerd.gateway.table_counts import FEW, TableCounts
from peerd.store.jobs.types import TubeCounts
from tests.support.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def capacities(clock: ManualClock) -> QueueCapacities:
    return QueueCapacities({"mails": 10}, clock)


def admitted(capacities: QueueCapacities, number: int) -> int:
    return [capacities.admit("mails") for _ in range(number)].count(Admission.ADMITTED)


def test_one_count_serves_many_puts_and_what_was_put_and_has_ended_is_added_to_it(capacities: QueueCapacities) -> None:
    capacities.record("mails", 4, took=0.001)
    assert admitted(capacities, 20) == 6
    assert {capacities.admit("other") for _ in range(1000)} == {Admission.ADMITTED}, "it has no limit"
    capacities.leave("other")
    capacities.leave("mails")
    assert admitted(capacities, 2) == 1
    capacities.record("mails", 0, took=0.001)
    capacities.leave("mails")
    assert admitted(capacities, 20) == 10, "nothing leaves an empty queue"


def test_a_count_is_used_for_longer_where_it_took_long(capacities: QueueCapacities, clock: ManualClock) -> None:
    for counted, took, valid_for, meanwhile in (
        (0, 0.001, VALID_FOR, Admission.ADMITTED),
        (10, 0.5, LEAST_PAUSE * 0.5, Admission.FULL),
    ):
        capacities.record("mails", counted, took=took)
        clock.now += valid_for * 0.99
        assert capacities.admit("mails") is meanwhile
        clock.now += valid_for * 0.02
        assert capacities.admit("mails") is Admission.UNKNOWN


def test_a_put_waits_for_ends_that_are_not_written_only_where_the_queue_seems_full(capacities: QueueCapacities) -> None:
    capacities.record("mails", 9, took=60.0)
    capacities.begin_end()
    assert admitted(capacities, 1) == 1
    assert (capacities.admit("mails"), capacities.must_count("mails")) == (Admission.UNKNOWN, False)
    assert capacities.admit("mails", after_ends=True) is Admission.FULL, "later ends are not waited for, too"
    capacities.finish_end()
    assert capacities.admit("mails") is Admission.FULL


NO_CONNECTION = cast("Any", None)


def test_a_count_is_used_for_ten_times_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
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
