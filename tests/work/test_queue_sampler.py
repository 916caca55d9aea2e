"""One manager samples the queues for all: it writes their depths, and reports those whose tasks wait for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from peerd.config.settings import StatisticsSettings
from peerd.domain.alert_record import AlertReport
from peerd.manager.queue_sampler import EXAMINE_EVERY, QUIET_EVERY, REPEAT_EVERY, QueueSampler
from peerd.runtime.observability.events import EventBus, QueueBacklogEnded, QueueBacklogFound
from peerd.store.alerts.recording import ReportAge, end_condition, record_alert
from peerd.store.maintenance.due import DueMaintenance, read_due_maintenance
from peerd.store.schema.tables import depths, nodes
from peerd.store.statistics.depths import write_depths
from peerd.store.statistics.steps import SAMPLE, TEN_MINUTES
from tests.work.harness import RunnerHarness

pytestmark = pytest.mark.one_database


class Sampling:
    """The sampler of one node, and the time of this test."""

    def __init__(self, harness: RunnerHarness, node: str = "a", *, enabled: bool = True) -> None:
        self.harness = harness
        self.now = 1_000.0
        self.node_id = harness.world.node(node)
        settings = StatisticsSettings(enabled=enabled)
        events = EventBus(harness.events)
        self.sampler = QueueSampler(harness.database, events, settings, 3_600.0, lambda: self.now)

    @property
    def due(self) -> DueMaintenance:
        return self.harness.database.read(read_due_maintenance)

    async def round(self, seconds: float = SAMPLE) -> bool:
        """A round of the manager so many seconds later; whether it has sampled."""
        self.now += seconds
        before = self.sampler._ended_at
        self.sampler.start_if_due(self.due, self.node_id)
        if self.sampler._sampling is not None:
            await self.sampler._sampling
        return self.sampler._ended_at != before


def samples(harness: RunnerHarness) -> int:
    statement = sa.select(sa.func.count(sa.distinct(depths.c.at))).where(depths.c.step == SAMPLE)
    return int(harness.database.read(lambda connection: connection.execute(statement).scalar_one()))


def add_waiting(harness: RunnerHarness, queue: str, minutes: float) -> int:
    return harness.world.insert(queue=queue, created_at=datetime.now(UTC) - timedelta(minutes=minutes))


async def test_the_first_active_node_samples_and_reports_and_the_next_one_when_it_is_gone(
    each_harness: RunnerHarness,
) -> None:
    first, second = Sampling(each_harness, "a"), Sampling(each_harness, "b")
    add_waiting(each_harness, "viedo", 5)
    assert [await first.round(), await second.round()] == [True, False]
    [found] = each_harness.of(QueueBacklogFound)
    assert (found.queue, found.is_served) == ("viedo", False)
    assert samples(each_harness) == 1
    gone = sa.update(nodes).where(nodes.c.id == first.node_id).values(active=False)
    each_harness.database.run(lambda connection: connection.execute(gone).close())
    assert [await first.round(), await second.round()] == [False, True]
    assert samples(each_harness) == 2


async def test_a_late_queue_is_reported_at_its_begin_now_and_then_and_at_its_end(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    task_id = add_waiting(harness, "viedo", 5)
    for _ in range(3):
        assert await sampling.round()
    assert len(harness.of(QueueBacklogFound)) == 1
    await sampling.round(REPEAT_EVERY)
    assert len(harness.of(QueueBacklogFound)) == 2
    harness.world.set(task_id, queue="elsewhere", start_at=datetime.now(UTC) + timedelta(hours=1))
    await sampling.round(QUIET_EVERY)
    assert [ended.queue for ended in harness.of(QueueBacklogEnded)] == ["viedo"]


async def test_a_manager_goes_on_with_what_the_one_before_it_has_reported(harness: RunnerHarness) -> None:
    task_id = add_waiting(harness, "viedo", 5)
    for queue in ("viedo", "gone"):
        report = AlertReport(kind="unserved-queue", subject=queue, node="b")
        harness.database.run(record_alert, report, ReportAge(first=1_800.0, latest=1_800.0))
    sampling = Sampling(harness)
    await sampling.round()
    assert harness.of(QueueBacklogFound) == []
    [ended] = harness.of(QueueBacklogEnded)
    assert (ended.queue, round(ended.seconds)) == ("gone", 1_800)
    await sampling.round(REPEAT_EVERY - 1_800.0)
    assert [found.queue for found in harness.of(QueueBacklogFound)] == ["viedo"]
    another = harness.world.node("0")
    order = sa.update(nodes).where(nodes.c.id == another).values(id=0)
    harness.database.run(lambda connection: connection.execute(order).close())
    assert not await sampling.round(), "another node is the first one"
    for queue in ("viedo", "gone"):
        harness.database.run(end_condition, "unserved-queue", queue)
    gone = sa.update(nodes).where(nodes.c.id == 0).values(active=False)
    harness.database.run(lambda connection: connection.execute(gone).close())
    harness.world.set(task_id, start_at=datetime.now(UTC) + timedelta(hours=1))
    await sampling.round(QUIET_EVERY)
    assert len(harness.of(QueueBacklogEnded)) == 1, "the other node has reported its end"


async def test_while_nothing_is_pending_or_works_samples_are_rare(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    assert await sampling.round()
    assert not any([await sampling.round() for _ in range(int(QUIET_EVERY / SAMPLE) - 1)])
    assert await sampling.round()
    harness.world.add("q")
    assert await sampling.round()
    assert not await sampling.round(SAMPLE - 1)
    assert await sampling.round(1)
    harness.world.take_one(harness.world.claimer("q"))
    assert await sampling.round(), "a working task is no quiet"


async def test_a_slow_sample_is_followed_by_a_long_pause(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    harness.world.add("q")
    assert await sampling.round()
    read = sampling.sampler._threads.read

    async def slowly(*arguments: object) -> object:
        sampling.now += 2.0
        return await read(*arguments)  # type: ignore[arg-type]

    sampling.sampler._threads.read = slowly  # type: ignore[method-assign, assignment]
    assert await sampling.round()
    assert not await sampling.round(199.0)
    assert await sampling.round(1.0)


async def test_where_statistics_are_disabled_queues_are_examined_and_nothing_is_written(harness: RunnerHarness) -> None:
    sampling = Sampling(harness, enabled=False)
    add_waiting(harness, "viedo", 5)
    assert await sampling.round()
    assert not await sampling.round(EXAMINE_EVERY - 1)
    assert await sampling.round(1)
    assert len(harness.of(QueueBacklogFound)) == 1
    assert samples(harness) == 0


async def test_samples_are_made_coarser_and_old_ones_are_deleted(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    harness.world.add("q")
    present = datetime.now(UTC)
    for hours in (3, 50):
        row = {"step": SAMPLE, "at": present - timedelta(hours=hours), "queue": "q", "status": "pending", "count": 9}
        harness.database.run(lambda connection, row=row: connection.execute(sa.insert(depths).values(**row)).close())  # type: ignore[misc]
    await sampling.round()
    columns = (depths.c.step, depths.c.at, depths.c.count)
    rows = harness.database.read(lambda connection: connection.execute(sa.select(*columns)).all())
    assert [count for step, _, count in rows if step == TEN_MINUTES] == [9]
    assert min(at for _, at, _ in rows) > present - timedelta(hours=4)


async def test_an_outage_ends_a_sample_and_the_next_one_is_taken(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    harness.world.add("q")
    due = sampling.due
    with harness.database.away():
        sampling.now += SAMPLE
        sampling.sampler.start_if_due(due, sampling.node_id)
        assert sampling.sampler._sampling is not None
        await sampling.sampler._sampling
    assert samples(harness) == 0
    assert await sampling.round()
    assert samples(harness) == 1


@asynccontextmanager
async def held_sample(harness: RunnerHarness, sampling: Sampling) -> AsyncIterator[Callable[[], bool]]:
    with harness.database.hold(write_depths.__name__):
        sampling.now += SAMPLE
        sampling.sampler.start_if_due(sampling.due, sampling.node_id)
        running = sampling.sampler._sampling
        assert running is not None
        yield running.done


async def test_a_stop_waits_for_no_sample(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    async with held_sample(harness, sampling) as is_done:
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await sampling.sampler.stop()
        assert is_done()
