from __future__ import annotations

import runpy
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peerd.domain.errors import InvalidTask
from peerd.domain.known_handlers import (
    HandlerSignature,
    KnownHandlers,
    KnownHandlersSnapshot,
    UnsupportedTask,
    decide_unsupported_task,
)
from peerd.domain.lifecycle import (
    FINISHED,
    GONE,
    TRANSITIONS,
    IllegalTransition,
    Status,
    TaskEvent,
    after,
    sources,
    target,
)
from peerd.domain.outcome import (
    Canceled,
    Deferred,
    Done,
    Failed,
    Outcome,
    Released,
    Snoozed,
    outcome_labels,
    transition_after,
    transition_after_crash,
)
from peerd.domain.pacing import exponential_backoff
from peerd.domain.task import BODY_LIMIT, LATEST, SPAN_LIMIT, NewTask, Task, encode_arguments
from peerd.testing import make_task
from tests.support.rows import rows

AWARE = datetime(2030, 1, 1, tzinfo=UTC)


@rows("field, values", [
    ("queue", {"queue": ""}), ("queue", {"queue": "x" * 201}), ("queue", {"queue": "-begins-with-a-dash"}),
    ("queue", {"queue": "q\n"}), ("name", {"name": "ä" * 101}), ("name", {"name": "nul\x00"}),
    ("unique", {"unique_key": ""}), ("unique", {"unique_key": "half \ud800"}), ("limit_key", {"limit_key": ""}),
    ("limit_key", {"limit_key": "*"}), ("limit_key", {"limit_key": "a\x00b"}),
    ("limit_key", {"limit_key": "ä" * 101}), ("body", {"body": "nul\x00"}), ("body", {"body": "x" * (BODY_LIMIT + 1)}),
    ("body_bytes", {"body_bytes": bytes(BODY_LIMIT + 1)}), ("priority", {"priority": 2**63}),
    ("priority", {"priority": -(2**63)}), ("max_attempts", {"max_attempts": 0}), ("timeout", {"timeout": 0.0}),
    ("timeout", {"timeout": float("nan")}), ("timeout", {"timeout": float("inf")}),
    ("start_at", {"start_at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - a naive one is the point
    ("start_at", {"start_at": datetime(2039, 1, 1, tzinfo=UTC)}),
    ("start_at", {"start_at": datetime(1969, 1, 1, tzinfo=UTC)}), ("start_at", {"start_at": AWARE, "start_in": 1.0}),
    ("start_in", {"start_in": -1.0}), ("start_in", {"start_in": float("nan")}), ("finish_in", {"finish_in": 1e12}),
    ("finish_at", {"start_at": AWARE, "finish_at": AWARE}), ("finish_in", {"start_in": 60.0, "finish_in": 60.0}),
    ("unique_for", {"unique_key": "k", "unique_for": "sometimes"}),
    ("unique_for", {"unique_key": "k", "unique_for": 0.0}), ("ttr", {"ttr": 0}), ("ttr", {"ttr": 2**32}),
    ("delay", {"delay": -1}), ("delay", {"delay": 2**32}), ("delay", {"delay": 60, "start_in": 30.0}),
    ("delay", {"delay": 60, "start_at": AWARE}),
])  # fmt: skip
def test_a_task_that_no_database_can_store_is_refused_with_the_field(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask) as caught:
        NewTask(**{"queue": "q", **values})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_a_task_that_every_database_can_store_is_accepted_and_a_delay_sets_its_start() -> None:
    begin = datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    keys: dict[str, Any] = {"unique_key": "k" * 200, "unique_for": 0.001}
    NewTask(queue="a/b:c@d", name="ä" * 100, priority=-(2**63) + 1, start_at=begin, finish_in=0.0, **keys)
    with pytest.raises(InvalidTask, match="body: cannot be written as JSON"):
        encode_arguments({"source": object()})
    assert NewTask(queue="q", delay=0).start_in is None
    assert NewTask(queue="q", delay=60).start_in == 60.0
    longest = NewTask(queue="q", delay=2**32 - 1, ttr=2**32 - 1)
    assert longest.delay == 2**32 - 1
    assert longest.start_in is not None
    assert 0 < longest.start_in < SPAN_LIMIT
    assert msgspec.structs.replace(longest, priority=1).start_in == longest.start_in


NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def task(**fields: Any) -> Task:
    nothing = dict.fromkeys(Task.__struct_fields__)
    row = {"id": 1, "queue": "q", "name": "", "status": Status.WORKING, "priority": 10, "attempts": 0, "lease": 1}
    return Task(
        **{
            **nothing,
            **row,
            "failures": 0,
            "crashes": 0,
            "max_attempts": 3,
            "created_at": NOW,
            "updated_at": NOW,
            **fields,
        }
    )


def test_a_failure_is_retried_after_its_delay_unless_it_was_final() -> None:
    verdict = transition_after(task(attempts=1), Failed(error="boom", retry_in=60.0), NOW)
    assert (verdict.event, verdict.counted, verdict.label) == (TaskEvent.FAIL, True, "failure")
    assert verdict.start_at == NOW + timedelta(seconds=60)
    for attempts, limit in ((2, 3), (0, 1), (5, 3), (0, None)):
        last = task(attempts=attempts, max_attempts=limit)
        for label, shown in (("failure", "dead"), ("timeout", "timeout")):
            verdict = transition_after(last, Failed(error="boom", retry_in=0.0, label=label), NOW)
            assert (verdict.event, verdict.label) == (TaskEvent.DIE, shown)
    assert transition_after(task(), Failed(error="boom"), NOW).event is TaskEvent.DIE
    for delay in (1e12, 1e300, float("inf")):
        assert transition_after(task(), Failed(error="boom", retry_in=delay), NOW).start_at == LATEST
    assert transition_after(task(), Snoozed(-5.0, "at once"), NOW).start_at == NOW


@rows("left, event", [(61.0, TaskEvent.FAIL), (60.0, TaskEvent.DIE), (1.0, TaskEvent.DIE)])
def test_a_retry_after_the_tasks_end_is_not_scheduled(left: float, event: TaskEvent) -> None:
    verdict = transition_after(task(finish_at=NOW + timedelta(seconds=left)), Failed(error="boom", retry_in=60.0), NOW)
    assert verdict.event is event
    assert ("finish_at" in (verdict.error or "")) is (event is TaskEvent.DIE)


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


def test_a_crash_counts_and_a_backoff_stays_within_its_bounds() -> None:
    verdict = transition_after_crash(task(), "crash", "killed by signal 9")
    assert (verdict.event, verdict.counted, verdict.cause) == (TaskEvent.RESCUE, True, "killed by signal 9")
    last = transition_after_crash(task(attempts=2), "crash", "out of memory")
    assert last.event is TaskEvent.DIE
    assert last.error == "its process died: out of memory; that was the last attempt"
    for attempts in (0, 1, 5, 10**6):
        low = exponential_backoff(attempts, base=2.0, maximum=100.0, random=lambda: 0.0)
        high = exponential_backoff(attempts, base=2.0, maximum=100.0, random=lambda: 1.0)
        assert 0 < low < high < 120.1


ROOT = Path(__file__).parents[3]


def test_the_documented_diagram_matches_the_table_and_the_page_names_every_status() -> None:
    with_diagram = runpy.run_path(str(ROOT / "scripts" / "lifecycle-diagram"))["with_diagram"]
    page = (ROOT / "docs" / "lifecycle.md").read_text()
    assert page.count("-->") > len(Status)
    assert with_diagram(page) == page, "run scripts/lifecycle-diagram"
    assert [status for status in Status if f"| `{status}` |" not in page] == []


def test_every_status_can_be_reached_and_every_event_can_happen() -> None:
    reached = {end for end in TRANSITIONS.values() if end is not GONE}
    assert reached | {Status.PENDING, Status.SCHEDULED, Status.WAITING} == set(Status)
    assert {event for _, event in TRANSITIONS} == set(TaskEvent)
    for status in FINISHED:
        events = {event for source, event in TRANSITIONS if source is status}
        assert events == {TaskEvent.RETRY, TaskEvent.PURGE, TaskEvent.DELETE}, status
    for outcome in ["COMPLETE", "FAIL", "DIE", "SNOOZE", "DEFER", "RELEASE", "RESCUE"]:
        assert sources(TaskEvent[outcome]) == (Status.WORKING,), outcome
    assert target(TaskEvent.CLAIM) is Status.WORKING
    with pytest.raises(ValueError, match="not to one status"):
        target(TaskEvent.MOVE)


def test_a_transition_outside_the_table_is_refused_with_the_allowed_ones() -> None:
    for status, event in product(Status, TaskEvent):
        if (status, event) in TRANSITIONS:
            assert after(status, event) is TRANSITIONS[status, event]
            continue
        with pytest.raises(IllegalTransition) as caught:
            after(status, event)
        assert str(caught.value).startswith(f"cannot {event} a task that is {status}; only one that is ")
        assert all(source in str(caught.value) for source in sources(event))


MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
OLD: HandlerSignature = {"n": ("int", True)}
NEW: HandlerSignature = {"n": ("int", True), "by": ("int", False)}
WIDER: HandlerSignature = {"n": ("int | str", True)}
HOUR = 3600.0


def decide(error: UnsupportedTask, *known: HandlerSignature | None, waited: float = 0.0) -> Deferred | Failed:
    known_handlers: list[KnownHandlers] = [{"q": {} if one is None else {"grows": one}, "other": None} for one in known]
    snapshot = KnownHandlersSnapshot(MIDNIGHT, MIDNIGHT - timedelta(seconds=waited), known_handlers)
    return decide_unsupported_task(make_task(queue="q", name="grows"), error, snapshot, HOUR)


def of(signature: HandlerSignature, *given: str) -> UnsupportedTask:
    return UnsupportedTask("it does not fit", signature, frozenset(given))


UNKNOWN = UnsupportedTask("no handler")


@rows("waited", [0.0, HOUR, 100 * HOUR])
def test_a_task_that_another_process_supports_waits_without_a_limit(waited: float) -> None:
    for outcome in (
        decide(UNKNOWN, None, OLD, waited=waited),
        decide(of(OLD, "n", "by"), OLD, NEW, waited=waited),
        decide(of(NEW, "by"), {"by": ("int", True)}, waited=waited),
    ):
        assert isinstance(outcome, Deferred)
        assert 1.0 <= outcome.after <= 10.0


def test_a_task_of_an_unknown_handler_waits_with_growing_delays_and_not_for_ever() -> None:
    afters = []
    for waited in (0.0, 100.0, 2000.0, HOUR - 1.0):
        outcome = decide(UNKNOWN, None, waited=waited)
        assert isinstance(outcome, Deferred)
        afters.append(outcome.after)
    assert afters == [5.0, 25.0, 60.0, 1.0]
    assert decide(UNKNOWN, None, waited=HOUR) == Failed(
        error="no handler; no process of the cluster knows it, and none that does was there for 1h (unknown_after)"
    )


@rows("error", [of(OLD, "m"), of(OLD, "n", "by"), of(NEW)])
def test_a_task_with_arguments_that_no_process_knows_waits_and_not_for_ever(error: UnsupportedTask) -> None:
    known = error.signature
    waiting = decide(error, known)
    assert isinstance(waiting, Deferred)
    assert waiting.after == 5.0
    assert "no process of the cluster takes these arguments: dead at 2026-01-01 01:00:00 UTC" in waiting.reason
    assert isinstance(decide(error, known, waited=HOUR), Failed)


def test_a_value_of_a_wrong_type_is_dead_at_once_unless_another_process_takes_it() -> None:
    assert decide(of(OLD, "n"), OLD) == Failed(error="it does not fit")
    assert decide(of(OLD, "n"), OLD, None, {"m": ("int", True)}) == Failed(error="it does not fit")
    assert isinstance(decide(of(OLD, "n"), OLD, WIDER), Deferred)
    assert isinstance(decide(of(OLD, "n"), OLD, WIDER, waited=HOUR), Failed), "not for ever"
    task = make_task(queue="other", name="any")
    for queue, outcome in (("other", Deferred), ("q", Failed)):
        snapshot = KnownHandlersSnapshot(MIDNIGHT, None, [{queue: None}])
        assert isinstance(decide_unsupported_task(task, UNKNOWN, snapshot, 0.0), outcome)
