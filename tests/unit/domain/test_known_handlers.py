from __future__ import annotations

from datetime import UTC, datetime, timedelta

from peerd.domain.known_handlers import (
    HandlerSignature,
    KnownHandlers,
    KnownHandlersSnapshot,
    UnsupportedTask,
    decide_unsupported_task,
)
from peerd.domain.outcome import Deferred, Failed
from peerd.testing import make_task
from tests.support.rows import rows

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD: HandlerSignature = {"n": ("int", True)}
NEW: HandlerSignature = {"n": ("int", True), "by": ("int", False)}
WIDER: HandlerSignature = {"n": ("int | str", True)}
HOUR = 3600.0


def decide(error: UnsupportedTask, *known: HandlerSignature | None, waited: float = 0.0) -> Deferred | Failed:
    known_handlers: list[KnownHandlers] = [{"q": {} if one is None else {"grows": one}, "other": None} for one in known]
    snapshot = KnownHandlersSnapshot(NOW, NOW - timedelta(seconds=waited), known_handlers)
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


def test_a_value_of_a_wrong_type_is_dead_at_once_unless_another_version_has_another_type() -> None:
    assert decide(of(OLD, "n"), OLD) == Failed(error="it does not fit")
    assert decide(of(OLD, "n"), OLD, None, {"m": ("int", True)}) == Failed(error="it does not fit")
    assert isinstance(decide(of(OLD, "n"), OLD, WIDER), Deferred)
    assert isinstance(decide(of(OLD, "n"), OLD, WIDER, waited=HOUR), Failed), "not for ever"


def test_a_process_that_runs_whole_rows_supports_every_name() -> None:
    task = make_task(queue="other", name="any")
    for queue, outcome in (("other", Deferred), ("q", Failed)):
        snapshot = KnownHandlersSnapshot(NOW, None, [{queue: None}])
        assert isinstance(decide_unsupported_task(task, UNKNOWN, snapshot, 0.0), outcome)
