from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from peerd.runtime.observability.attempt_statistics import MOST_HANDLERS, OTHER, AttemptStatistics, HandlerKey
from peerd.runtime.observability.events import AttemptEnded


def ended(name: str = "n", outcome: str = "done", seconds: float = 0.5, wait: float | None = 2.0) -> AttemptEnded:
    return AttemptEnded(task_id=1, queue="q", name=name, outcome=outcome, seconds=seconds, wait=wait)


def test_what_was_counted_since_a_snapshot_is_the_difference() -> None:
    statistics = AttemptStatistics()
    for outcome in ("done", "failure", "released"):
        statistics(ended(outcome=outcome))
    [earlier] = statistics.snapshot().values()
    statistics(ended(outcome="done", wait=None))
    statistics(ended(outcome="timeout"))
    [(key, later)] = statistics.snapshot().items()
    added = later.since(earlier)
    assert key == HandlerKey("q", "n")
    assert (added.done, added.failures, added.attempts) == (1, 1, 2)
    assert (added.run.count, added.wait.count) == (2, 1)
    assert later.since(None).outcomes["released"] == 1
    assert later.since(None).run.count == 4, "a released attempt has no times"


def test_names_beyond_the_limit_are_others_and_a_handler_that_is_counted_stays() -> None:
    statistics = AttemptStatistics()
    assert statistics.key_of("q", "running") == HandlerKey("q", "running")
    for number in range(MOST_HANDLERS + 10):
        statistics(ended(name=str(number)))
    assert statistics.key_of("q", "running") == HandlerKey("q", "running")
    assert statistics.key_of("q", "one more") == HandlerKey("q", OTHER)
    snapshot = statistics.snapshot()
    assert len(snapshot) == MOST_HANDLERS + 1
    assert snapshot[HandlerKey("q", OTHER)].outcomes["done"] == 11


def test_snapshots_are_taken_in_another_thread() -> None:
    statistics, stopped = AttemptStatistics(), threading.Event()

    def read() -> None:
        while not stopped.is_set():
            statistics.snapshot()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for number in range(20_000):
            statistics(ended(name=str(number % 400), outcome=f"outcome {number % 50}"))
        stopped.set()
        reading.result()
    assert sum(found.run.count for found in statistics.snapshot().values()) == 20_000
