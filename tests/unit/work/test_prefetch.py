from __future__ import annotations

from peerd.work.attempts.executor_slots import MAX_PREFETCH, PrefetchEstimate
from tests.support.manual_clock import ManualClock
from tests.support.rows import rows


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
