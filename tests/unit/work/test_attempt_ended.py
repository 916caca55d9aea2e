from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from peerd.domain.outcome import Done, Failed
from peerd.domain.task import Task
from peerd.work.attempts.active_attempt import attempt_ended_event
from tests.support.rows import rows

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
ROW = {
    "id": 1, "queue": "video", "name": "cut", "body": None, "body_bytes": None, "status": "working", "priority": 10,
    "attempts": 0, "max_attempts": 2, "crashes": 0, "node_id": None, "start_at": None, "finish_at": None,
    "timeout": None, "unique_key": None, "limit_key": None, "lease": 1, "worker_node_id": 1, "process_id": 1,
    "worker_started_at": BEGAN, "checked_at": BEGAN, "progress": None, "progress_note": None, "result": None,
    "error": None, "finished_at": None, "trace_context": None, "created_at": BEGAN, "updated_at": BEGAN,
}  # fmt: skip


@rows("row, failed, expected", [
    ({}, Failed(error="no", retry_in=5.0), ("failure", 5.0)),
    ({"attempts": 1}, Failed(error="no", retry_in=5.0), ("dead", None)),
    ({"attempts": 1}, Failed(error="no", retry_in=5.0, label="timeout"), ("timeout", None)),
    ({}, Failed(error="no"), ("dead", None)),
    ({"finish_at": datetime(2026, 1, 1, 0, 0, 6, tzinfo=UTC)}, Failed(error="no", retry_in=5.0), ("dead", None)),
    ({"finish_at": BEGAN.replace(hour=1)}, Failed(error="no", retry_in=5.0), ("failure", 5.0)),
    ({"worker_started_at": None}, Failed(error="no", retry_in=5.0), ("failure", 5.0)),
])  # fmt: skip
def test_a_failure_after_which_there_is_no_other_attempt_reports_it(
    row: dict[str, object], failed: Failed, expected: tuple[str, float | None]
) -> None:
    task = msgspec.convert({**ROW, **row}, Task)
    event = attempt_ended_event(task, failed, 2.0)
    assert (event.outcome, event.retry_in) == expected


@rows("row, expected", [
    ({"created_at": BEGAN - timedelta(seconds=7)}, 7.0),
    ({"created_at": BEGAN - timedelta(days=3), "start_at": BEGAN - timedelta(seconds=2), "lease": 4}, 2.0),
    ({"created_at": BEGAN - timedelta(days=3), "lease": 4}, None), ({"worker_started_at": None}, None),
])  # fmt: skip
def test_a_wait_begins_when_the_task_is_due_and_is_unknown_after_a_retry_by_hand(
    row: dict[str, object], expected: float | None
) -> None:
    assert attempt_ended_event(msgspec.convert({**ROW, **row}, Task), Done(), 2.0).wait == expected
