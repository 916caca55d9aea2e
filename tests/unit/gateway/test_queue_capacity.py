from __future__ import annotations

import pytest

from peerd.gateway.queue_capacity import LEAST_PAUSE, VALID_FOR, Admission, QueueCapacities
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


def test_a_count_is_used_for_a_second_while_there_is_room_and_else_for_ten_times_as_long_as_it_took(
    capacities: QueueCapacities, clock: ManualClock
) -> None:
    for counted, took, valid_for, meanwhile in (
        (0, 0.001, VALID_FOR, Admission.ADMITTED),
        (10, 0.5, LEAST_PAUSE * 0.5, Admission.FULL),
    ):
        capacities.record("mails", counted, took=took)
        clock.now += valid_for * 0.99
        assert capacities.admit("mails") is meanwhile
        clock.now += valid_for * 0.02
        assert capacities.admit("mails") is Admission.UNKNOWN


def test_a_put_waits_for_ends_that_are_not_written_yet_only_where_the_queue_seems_full(
    capacities: QueueCapacities,
) -> None:
    capacities.record("mails", 9, took=60.0)
    capacities.begin_end()
    assert admitted(capacities, 1) == 1
    assert (capacities.admit("mails"), capacities.must_count("mails")) == (Admission.UNKNOWN, False)
    assert capacities.admit("mails", after_ends=True) is Admission.FULL, "later ends are not waited for, too"
    capacities.finish_end()
    assert capacities.admit("mails") is Admission.FULL
