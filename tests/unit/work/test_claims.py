from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peerd.store.outcomes import ClaimId, TaskProgress
from peerd.work.active_claims import ActiveClaims
from peerd.work.executor_slots import MAX_PREFETCH, PrefetchEstimate
from peerd.work.task_fetcher import LimitedPolling
from tests.support.manual_clock import ManualClock
from tests.support.rows import rows

claims = st.builds(ClaimId, st.integers(1, 5), st.integers(1, 3))


@given(st.sets(claims), st.sets(claims))
def test_unknown_claims_are_rows_that_are_found_and_not_held(held: set[ClaimId], found: set[ClaimId]) -> None:
    active_claims = ActiveClaims()
    active_claims.begin_claim(1)
    in_flight = dict.fromkeys(found, 1)
    assert active_claims.unknown_among(in_flight | {ClaimId(9, 1): None}) == [ClaimId(9, 1)]
    active_claims.end_claim(1, held)
    assert (
        set(active_claims.unknown_among(in_flight))
        == set(active_claims.unknown_among(dict.fromkeys(found)))
        == found - held
    )
    assert active_claims.all() == held
    for one in held:
        active_claims.drop([one])
    assert len(active_claims) == 0


def test_only_the_newest_progress_of_held_tasks_is_kept() -> None:
    active_claims = ActiveClaims()
    active_claims.begin_claim(1)
    active_claims.end_claim(1, [ClaimId(1, 1)])
    for fraction in (0.1, 0.2):
        active_claims.report(ClaimId(1, 1), TaskProgress(fraction))
        active_claims.report(ClaimId(2, 1), TaskProgress(fraction))
    taken = active_claims.take_progress()
    assert taken == {ClaimId(1, 1): TaskProgress(0.2)}
    assert active_claims.take_progress() == {}
    active_claims.report(ClaimId(1, 1), TaskProgress(0.3))
    active_claims.restore_progress(taken | {ClaimId(2, 1): TaskProgress(0.9)})  # it could not be written
    assert active_claims.take_progress() == {ClaimId(1, 1): TaskProgress(0.3)}


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


def test_backlog_checks_become_rare_and_a_ring_causes_one() -> None:
    clock = ManualClock(100.0)
    limited_polling = LimitedPolling(clock, lambda: 10.0)
    pauses = []
    for ranks in ({}, {}, {}, {}, {}, {}, {"a": -10}, {"a": -10}, {}):
        limited_polling.begin_check()
        limited_polling.record_backlog(ranks)
        pauses.append(until_next_check(limited_polling, clock))
    assert pauses == [0.06, 0.12, 0.24, 0.48, 0.5, 0.5, 0.03, 0.03, 0.06]
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


def paced(clock: ManualClock, attempts: int, seconds: float, *, slots: int = 10) -> PrefetchEstimate:
    prefetch = PrefetchEstimate(clock, slots)
    prefetch.start()
    clock.now += seconds
    prefetch.ended(attempts)
    return prefetch


@rows(
    "attempts, seconds, slots, ahead",
    [(1000, 0.1, 10, 100), (100_000, 0.1, 10, MAX_PREFETCH), (100, 10.0, 10, 0), (1000, 10.0, 100, 0)],
)
def test_prefetched_tasks_begin_within_milliseconds(attempts: int, seconds: float, slots: int, ahead: int) -> None:
    assert paced(ManualClock(), attempts, seconds, slots=slots).prefetch_size() == ahead


def test_a_wrong_estimate_is_dropped_until_it_is_measured_again_and_a_long_task_is_detected_while_it_runs() -> None:
    clock = ManualClock()
    prefetch = paced(clock, 1000, 0.1)
    prefetch.pause()
    clock.now += 3600.0
    prefetch.start()
    assert prefetch.prefetch_size() == 100, "idle time does not count"
    prefetch.reset()
    assert prefetch.prefetch_size() == 0
    clock.now += 0.1
    prefetch.ended(500)
    assert prefetch.prefetch_size() == 50
    clock.now += 1.0
    prefetch.ended()
    assert prefetch.prefetch_size() == 0
