"""The estimate of the end of a backlog, by the samples of a queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics.prospect import prospect_of
from peerd.store.queue_states import DepthPoint

FALLING = "if they go on falling by"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def point(minutes_ago: float, count: int, status: Status = Status.PENDING, *, at_least: bool = False) -> DepthPoint:
    at = NOW - timedelta(minutes=minutes_ago)
    return DepthPoint(at=at, queue="q", status=status, count=count, at_least=at_least, oldest=None)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([(10, 52), (5, 41), (0, 31)], f"31 wait: gone in about 14m, {FALLING} 2.1/min, as in the last 10m"),
        ([(10, 1), (5, 1000), (0, 500)], f"500 wait: gone in about 5m, {FALLING} 100.0/min, as in the last 5m"),
        ([(10, 1), (0, 31)], "31 wait: they grow by 3.0/min, as in the last 10m"),
        ([(10, 31), (0, 31)], None),
        ([(10, 52), (5, 12), (3.5, 12), (0, 12)], None),
        ([(0.5, 40), (0, 31)], None),
        ([(10, 52), (5, 31)], None),
        ([], None),
    ],
    ids=["falls", "falls since a peak", "grows", "no change", "fell and stopped", "too short", "old sample", "none"],
)  # fmt: skip
def test_the_end_is_estimated_where_the_samples_tell_it(points: list[tuple[float, int]], sentence: str | None) -> None:
    found = prospect_of([point(0.0, 3, Status.WORKING), *(point(*one) for one in points)], NOW)
    assert (found and found.sentence) == sentence


def test_a_count_that_ended_at_its_limit_is_no_rate() -> None:
    assert prospect_of([point(5, 10_000, at_least=True), point(0, 9_000)], NOW) is None
