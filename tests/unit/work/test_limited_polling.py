from __future__ import annotations

from peerd.work.claims.limited_polling import LimitedPolling
from tests.support.manual_clock import ManualClock


def test_queues_of_the_same_priority_take_turns_and_one_with_a_higher_priority_goes_first_each_time() -> None:
    for ranks, turns in (
        ({"a": -10, "b": -10, "c": -10}, ["a", "b", "c", "a", "b", "c"]),
        ({"a": -10, "b": -20}, ["b", "b", "b"]),
    ):
        limited_polling = LimitedPolling(ManualClock(100.0), lambda: 10.0)
        served = []
        for _ in turns:
            limited_polling.record_backlog(ranks)
            queue = limited_polling.next_queue(before_unlimited=False)
            assert queue is not None
            served.append(queue)
            limited_polling.record_claim(queue, 1, 1, None)
        assert served == turns


def test_a_task_that_a_rate_allows_soon_is_not_claimed_before_the_next_backlog_check() -> None:
    clock = ManualClock(100.0)
    limited_polling = LimitedPolling(clock, lambda: 10.0)
    limited_polling.record_backlog({"a": -10})
    limited_polling.record_claim("a", 5, 0, 0.001)
    clock.now += 0.002
    pause = limited_polling.pause()
    assert pause is not None
    assert pause > 0.01
    clock.now += pause - 0.001
    assert not limited_polling.check_is_due
    clock.now += 0.002
    assert (limited_polling.check_is_due, limited_polling.pause()) == (True, 0.0)


def until_next_check(limited_polling: LimitedPolling, clock: ManualClock) -> float:
    began = clock.now
    while not limited_polling.check_is_due:
        clock.now += 0.005
    return round(clock.now - began, 2)


def test_backlog_checks_become_rare_without_tasks_for_limited_claims() -> None:
    clock = ManualClock(100.0)
    limited_polling = LimitedPolling(clock, lambda: 10.0)
    pauses = []
    for ranks in ({}, {}, {}, {}, {}, {}, {"a": -10}, {"a": -10}, {}):
        limited_polling.begin_check()
        limited_polling.record_backlog(ranks)
        pauses.append(until_next_check(limited_polling, clock))
    assert pauses == [0.06, 0.12, 0.24, 0.48, 0.5, 0.5, 0.03, 0.03, 0.06]


def test_a_ring_causes_a_backlog_check_at_once_where_limited_claims_found_something_and_in_a_moment_where_not() -> None:
    clock = ManualClock(100.0)
    limited_polling = LimitedPolling(clock, lambda: 10.0)
    for _ in range(6):
        limited_polling.begin_check()
        limited_polling.record_backlog({})
    limited_polling.on_capacity_change()
    assert until_next_check(limited_polling, clock) == 0.1
    clock.now += 1.0
    limited_polling.begin_check()
    limited_polling.on_capacity_change()  # during its check
    limited_polling.record_backlog({})
    assert until_next_check(limited_polling, clock) == 0.1
    limited_polling.begin_check()
    limited_polling.record_backlog({"a": -10})
    limited_polling.on_capacity_change()
    assert limited_polling.check_is_due
