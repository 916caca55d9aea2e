from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from peerd.domain.backoff import exponential_backoff
from peerd.domain.lifecycle import Status, TaskEvent
from peerd.domain.outcome import Canceled, Deferred, Done, Failed, Outcome, Released, Snoozed
from peerd.domain.task import LATEST, Task
from peerd.domain.task_transition import outcome_labels, transition_after, transition_after_crash
from tests.support.rows import rows

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def task(**fields: Any) -> Task:
    nothing = dict.fromkeys(Task.__struct_fields__)
    row = {"id": 1, "queue": "q", "name": "", "status": Status.WORKING, "priority": 10, "attempts": 0, "lease": 1}
    return Task(**{**nothing, **row, "crashes": 0, "max_attempts": 3, "created_at": NOW, "updated_at": NOW, **fields})


def test_a_failure_is_retried_after_its_delay_unless_it_was_the_last_attempt_or_is_final() -> None:
    verdict = transition_after(task(attempts=1), Failed(error="boom", retry_in=60.0), NOW)
    assert (verdict.event, verdict.counted, verdict.label) == (TaskEvent.FAIL, True, "failure")
    assert verdict.start_at == NOW + timedelta(seconds=60)
    for attempts, limit in ((2, 3), (0, 1), (5, 3), (0, None)):
        last = task(attempts=attempts, max_attempts=limit)
        for label, shown in (("failure", "dead"), ("timeout", "timeout")):
            verdict = transition_after(last, Failed(error="boom", retry_in=0.0, label=label), NOW)
            assert (verdict.event, verdict.label) == (TaskEvent.DIE, shown)
    assert transition_after(task(), Failed(error="boom"), NOW).event is TaskEvent.DIE


@rows("left, event", [(61.0, TaskEvent.FAIL), (60.0, TaskEvent.DIE), (1.0, TaskEvent.DIE)])
def test_a_retry_after_the_tasks_end_is_not_scheduled(left: float, event: TaskEvent) -> None:
    verdict = transition_after(task(finish_at=NOW + timedelta(seconds=left)), Failed(error="boom", retry_in=60.0), NOW)
    assert verdict.event is event
    assert ("finish_at" in (verdict.error or "")) is (event is TaskEvent.DIE)


def test_a_delay_ends_at_the_last_time_that_every_database_can_store() -> None:
    for delay in (1e12, 1e300, float("inf")):
        assert transition_after(task(), Failed(error="boom", retry_in=delay), NOW).start_at == LATEST
    assert transition_after(task(), Snoozed(-5.0, "at once"), NOW).start_at == NOW


@rows("outcome, event, counted", [
    (Snoozed(60.0, "later"), TaskEvent.SNOOZE, False), (Deferred(60.0, "no such handler"), TaskEvent.DEFER, False),
    (Canceled("unwanted"), TaskEvent.CANCEL, True), (Released("it ends"), TaskEvent.RELEASE, False),
])  # fmt: skip
def test_other_outcomes_keep_their_event_and_count(outcome: Outcome, event: TaskEvent, counted: bool) -> None:  # noqa: FBT001
    verdict = transition_after(task(), outcome, NOW)
    assert (verdict.event, verdict.counted) == (event, counted)


def test_a_verdicts_label_is_one_that_its_outcome_may_have_and_success_needs_no_verdict() -> None:
    failures = [Failed(error="boom", retry_in=1.0), Failed(error="boom"), Failed(error="slow", label="timeout")]
    outcomes: list[Outcome] = [*failures, Snoozed(1.0, ""), Deferred(1.0, ""), Canceled(""), Released("")]
    for outcome, attempts in product(outcomes, (0, 2)):
        assert transition_after(task(attempts=attempts), outcome, NOW).label in outcome_labels(outcome)
    assert outcome_labels(Done()) == ()
    with pytest.raises(ValueError, match="needs no transition"):
        transition_after(task(), Done(), NOW)


def test_a_crash_counts_and_names_its_cause() -> None:
    verdict = transition_after_crash(task(), "crash", "killed by signal 9")
    assert (verdict.event, verdict.counted, verdict.cause) == (TaskEvent.RESCUE, True, "killed by signal 9")
    last = transition_after_crash(task(attempts=2), "crash", "out of memory")
    assert last.event is TaskEvent.DIE
    assert last.error == "its process died: out of memory; that was the last attempt"


def test_a_backoff_stays_within_its_jitter_and_its_maximum() -> None:
    for attempts in (0, 1, 5, 10**6):
        low = exponential_backoff(attempts, base=2.0, maximum=100.0, random=lambda: 0.0)
        high = exponential_backoff(attempts, base=2.0, maximum=100.0, random=lambda: 1.0)
        assert 0 < low < high < 120.1
