"""A chart that is read again and again shows what a whole reading would show, and reads little."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.errors import InvalidFilter
from peerd.operate.figures import AttemptFigures, SeriesPoint
from peerd.store.time_series import bucket_start
from peerd.web.pages.charts import MOST_LINES
from peerd.web.pages.series_history import MOST_SERIES, SeriesHistory

BEGAN = datetime(2026, 11, 26, 9, 0, 7, tzinfo=UTC)
HOUR = 3600.0


class Cluster:
    """Attempts by minute and queue, as a database has them, and its time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.done: dict[tuple[datetime, str], int] = {}
        self.readings: list[tuple[float, int | None]] = []
        self.most_groups = 1_000
        self.history = SeriesHistory(lambda: self.seconds)

    @property
    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.seconds)

    def run(self, queue: str, minutes_ago: int = 0) -> None:
        key = bucket_start(self.now - timedelta(minutes=minutes_ago), 60), queue
        self.done[key] = self.done.get(key, 0) + 1

    async def load(self, seconds: float, step: int, most: int | None) -> Sequence[SeriesPoint]:
        self.readings.append((seconds, most))
        begin = bucket_start(self.now - timedelta(seconds=seconds), step)
        found = {key: count for key, count in self.done.items() if key[0] >= begin}
        queues = sorted({queue for _, queue in found})
        if most is None and len(queues) > self.most_groups:
            raise InvalidFilter("by", "too many rows")
        shown = queues if most is None else queues[:most]
        return [
            SeriesPoint(at=at, queue=queue, figures=AttemptFigures.of(AttemptTotals({"done": count}), 60.0))
            for (at, queue), count in sorted(found.items())
            if queue in shown
        ]

    def shown(self) -> dict[tuple[datetime, str], int]:
        points = asyncio.run(self.history.read("all", HOUR, self.now, self.load))
        return {(one.at, str(one.queue)): one.figures.done for one in points}

    def whole(self) -> dict[tuple[datetime, str], int]:
        begin = bucket_start(self.now - timedelta(seconds=HOUR), 60)
        return {key: count for key, count in self.done.items() if key[0] >= begin}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_what_is_shown_is_what_a_whole_reading_shows(cluster: Cluster) -> None:
    for second in range(0, 5000, 29):
        cluster.seconds = float(second)
        cluster.run("video")
        if second % 2 == 0:
            cluster.run("mail", minutes_ago=1)
        shown, whole = cluster.shown(), cluster.whole()
        begin = bucket_start(cluster.now - timedelta(seconds=HOUR), 60)
        assert {key: count for key, count in shown.items() if key[0] >= begin} == whole, second


def test_only_the_end_is_read_again_and_the_whole_after_some_time(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.shown()
        cluster.seconds += 2
    assert cluster.readings == [(HOUR, MOST_LINES), *[(182.0, None)] * 2]
    cluster.run("video", minutes_ago=20)
    cluster.seconds += 532
    assert cluster.shown() == {}
    assert cluster.readings[3:] == [(714.0, None)], "from where it ended"
    cluster.seconds += 600
    assert cluster.shown() == cluster.whole() != {}
    assert cluster.readings[4:] == [(HOUR, MOST_LINES)]


def test_a_new_group_has_a_line_while_there_is_room(cluster: Cluster) -> None:
    first = [f"queue {number}" for number in range(MOST_LINES - 1)]
    for queues in (first, ["queue x"], ["queue y"]):
        for queue in queues:
            cluster.run(queue)
        cluster.shown()
        cluster.seconds += 2
    assert {queue for _, queue in cluster.shown()} == {*first, "queue x"}


def test_more_groups_than_may_be_read_at_once_are_read_as_the_greatest(cluster: Cluster) -> None:
    cluster.most_groups = 10
    for number in range(20):
        cluster.run(f"queue {number:02}")
    cluster.shown()
    cluster.seconds += 2
    assert len(cluster.shown()) == MOST_LINES
    assert [most for _, most in cluster.readings] == [MOST_LINES, None, MOST_LINES]


def test_a_chart_that_others_push_out_while_it_is_read_is_shown(cluster: Cluster) -> None:
    async def load_beside_others(seconds: float, step: int, most: int | None) -> Sequence[SeriesPoint]:
        for number in range(MOST_SERIES + 1):
            await cluster.history.read(number, HOUR, cluster.now, cluster.load)
        return await cluster.load(seconds, step, most)

    cluster.shown()
    cluster.seconds += 2
    cluster.run("video")
    points = asyncio.run(cluster.history.read("all", HOUR, cluster.now, load_beside_others))
    assert [one.queue for one in points] == ["video"]
