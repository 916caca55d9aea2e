"""A process writes the counts of its attempts every few seconds: once each, in their minute, and never in their way."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.doorbell.datagram import ClusterClock
from peerd.runtime.metrics.registry import AttemptStatistics
from peerd.runtime.observability.events import AttemptEnded, ComponentFailed, EventBus
from peerd.store.attempt_series import write_buckets
from peerd.store.connection.outages import OutageTracker
from peerd.store.schema.tables import statistics
from peerd.store.time_series import MINUTE, bucket_start
from peerd.testing import FaultyDatabase
from peerd.work import statistics_writer
from peerd.work.statistics_writer import FLUSH_EVERY, StatisticsWriter
from tests.work.harness import RunnerHarness

WRITE = write_buckets.__name__

pytestmark = pytest.mark.one_database


class CountingProcess:
    """The counts of a process and their writer, with the time of this test."""

    def __init__(self, harness: RunnerHarness, process_id: int = 7, node_id: int = 1) -> None:
        self.now = 1_000.0
        self.running: list[tuple[str, str, float]] = []
        self.statistics = AttemptStatistics()
        self.writer = StatisticsWriter(
            harness.database,
            self.statistics,
            node_id,
            process_id,
            running=lambda: self.running,
            slots=4,
            outages=OutageTracker(EventBus(harness.events), lambda: self.now),
            events=EventBus(harness.events),
        )
        self.writer._clock = ClusterClock(lambda: self.now)
        self.writer.round(self.now)

    def end(
        self, times: int = 1, name: str = "n", outcome: str = "done", seconds: float = 0.2, wait: float = 1.0
    ) -> None:
        """Let attempts end."""
        for _ in range(times):
            event = AttemptEnded(task_id=1, queue="q", name=name, outcome=outcome, seconds=seconds, wait=wait)
            self.statistics(event)

    def flush(self) -> None:
        """A round at which it is time to write."""
        self.now += FLUSH_EVERY
        self.writer.round(self.now)

    def begin_of_minute(self) -> None:
        """Go on to five seconds after the next minute has begun, with a round a little after its begin."""
        rest = MINUTE - self.writer._clock() % MINUTE
        self.now += rest + 0.01
        self.writer.round(self.now)
        self.now += 5.0


@pytest.fixture
def process(harness: RunnerHarness) -> CountingProcess:
    """It knows the database's time, so that its own begin of a minute is one of the database."""
    process = CountingProcess(harness)
    process.writer._read_clock()
    process.begin_of_minute()
    return process


def rows_in(database: FaultyDatabase) -> list[Any]:
    order = (statistics.c.at, statistics.c.name, statistics.c.process_id)
    return list(database.read(lambda connection: connection.execute(sa.select(statistics).order_by(*order)).all()))


def done(database: FaultyDatabase) -> int:
    return sum(row.done for row in rows_in(database))


def test_each_attempt_is_in_one_row_with_its_outcome_and_times(
    harness: RunnerHarness, process: CountingProcess
) -> None:
    process.end(3)
    process.flush()
    process.end(2)
    for outcome in ("failure", "timeout", "dead", "snoozed"):
        process.end(outcome=outcome)
    for outcome in ("unknown", "released"):
        process.end(outcome=outcome, seconds=0.0)
    process.flush()
    process.flush()
    [row] = rows_in(harness.database)
    found = {name: getattr(row, name) for name in ("done", "failed", "timed_out", "dead", "snoozed", "released")}
    assert found == {"done": 5, "failed": 1, "timed_out": 1, "dead": 1, "snoozed": 1, "released": 2}
    assert row.run_sum == pytest.approx(9 * 0.2), "what was released has no times"
    assert row.wait_20 == 9
    assert (row.step, row.queue, row.name, row.node_id, row.process_id) == (60, "q", "n", 1, 7)
    present = datetime.now(row.at.tzinfo)
    assert bucket_start(present - timedelta(seconds=30), 60) <= row.at <= present + timedelta(seconds=60)


def test_what_ended_before_the_minute_did_is_in_that_minute(harness: RunnerHarness, process: CountingProcess) -> None:
    process.end(1)
    process.flush()
    process.begin_of_minute()
    process.end(2)
    process.begin_of_minute()
    process.end(5)
    process.flush()
    _, first, second = rows_in(harness.database)
    assert (first.done, second.done) == (2, 5)
    assert (second.at - first.at).total_seconds() == MINUTE


def test_nothing_is_written_while_nothing_happens(harness: RunnerHarness, process: CountingProcess) -> None:
    process.end()
    process.flush()
    with harness.database.away() as failed:
        for _ in range(20):
            process.flush()
    assert failed.hits == 0


def test_a_write_whose_reply_is_lost_counts_once(each_harness: RunnerHarness) -> None:
    process = CountingProcess(each_harness)
    process.end(4)
    with each_harness.database.lose_reply(WRITE) as lost:
        process.flush()
    assert lost.hits == 1
    assert done(each_harness.database) == 4
    process.end(3)
    process.flush()
    assert done(each_harness.database) == 7


def test_counts_are_kept_while_the_database_is_away_also_from_the_begin(
    harness: RunnerHarness, process: CountingProcess
) -> None:
    process.end(1)
    process.flush()
    with harness.database.away():
        for number in range(2, 5):
            process.begin_of_minute()
            process.end(number)
            process.flush()
    process.flush()
    assert [row.done for row in rows_in(harness.database)] == [1, 2, 3, 4]
    assert not harness.of(ComponentFailed)
    never_reached = CountingProcess(harness, 8)
    with harness.database.away():
        for _ in range(30):
            never_reached.end(1)
            never_reached.flush()
    never_reached.flush()
    assert sum(row.done for row in rows_in(harness.database) if row.process_id == 8) == 30


def test_what_waits_for_the_database_is_bounded(
    harness: RunnerHarness, process: CountingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_writer, "MOST_WAITING", 100)
    process.end(1)
    process.flush()
    with harness.database.away():
        for _ in range(30):
            process.begin_of_minute()
            for number in range(20):
                process.end(1, name=f"handler {number}")
            process.flush()
        assert len(process.writer._changed) <= 100 + 21
    process.flush()
    process.flush()
    assert done(harness.database) == 1 + 30 * 20


def test_slots_are_busy_while_attempts_run_and_not_when_they_end(
    harness: RunnerHarness, process: CountingProcess
) -> None:
    process.flush()
    process.running = [("q", "long", process.now), ("q", "long", process.now + 5.0)]
    process.flush()
    process.flush()
    assert sum(row.busy for row in rows_in(harness.database)) == pytest.approx(20.0 + 15.0)
    process.running = []
    process.end(1, name="long", seconds=22.0)
    process.end(1, name="long", seconds=16.0)
    process.flush()
    process.flush()
    assert sum(row.busy for row in rows_in(harness.database)) == pytest.approx(22.0 + 16.0)


def test_a_failure_of_another_kind_is_reported_and_what_was_counted_is_kept(
    harness: RunnerHarness, process: CountingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise ValueError("refused")

    process.end(2)
    with monkeypatch.context() as patched:
        patched.setattr(statistics_writer, "write_buckets", fail)
        process.flush()
    [failed] = harness.of(ComponentFailed)
    assert (failed.component, "refused" in failed.error) == ("statistics", True)
    process.flush()
    assert done(harness.database) == 2
