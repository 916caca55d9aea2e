"""What a table of tasks says of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from peerd.cli.tasks.show import describe_since
from peerd.domain.lifecycle import Status
from tests.unit.domain.test_task import task

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
TWO_HOURS_AGO, AN_HOUR_AGO, IN_AN_HOUR = NOW - timedelta(hours=2), NOW - timedelta(hours=1), NOW + timedelta(hours=1)


def test_a_task_tells_how_long_it_has_its_status_and_until_when() -> None:
    told = [
        (task(status=Status.PENDING, created_at=AN_HOUR_AGO), "for 1 h"),
        (task(status=Status.PENDING, created_at=TWO_HOURS_AGO, start_at=AN_HOUR_AGO), "for 1 h"),
        (task(status=Status.SCHEDULED, start_at=IN_AN_HOUR), "for 1 h more"),
        (task(status=Status.SCHEDULED, start_at=AN_HOUR_AGO), "due"),
        (task(status=Status.FAILURE, start_at=IN_AN_HOUR), "for 1 h more"),
        (task(status=Status.WORKING, worker_started_at=AN_HOUR_AGO), "for 1 h"),
        (task(status=Status.WORKING), ""),
        (task(status=Status.DONE, finished_at=AN_HOUR_AGO, updated_at=NOW), "1 h ago"),
        (task(status=Status.CANCELED, updated_at=AN_HOUR_AGO), "1 h ago"),
    ]
    assert [describe_since(one, NOW) for one, _ in told] == [words for _, words in told]
