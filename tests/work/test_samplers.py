"""One manager samples queues and storage for all: it writes what it counts, and reports what needs a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from peerd.config.settings import StatisticsSettings
from peerd.domain.alert import AlertReport
from peerd.manager.samplers import (
    CONFIRM_AFTER,
    EXAMINE_EVERY,
    QUIET_EVERY,
    REPEAT_EVERY,
    SAMPLE_EVERY,
    QueueSampler,
    StorageSampler,
)
from peerd.runtime.observability.events import (
    EventBus,
    QueueBacklogEnded,
    QueueBacklogFound,
    StorageConditionEnded,
    StorageConditionFound,
)
from peerd.store.alerts import ReportAge, end_condition, record_alert
from peerd.store.due import DueMaintenance, read_due_maintenance
from peerd.store.files.checks import postpone_check
from peerd.store.files.disks import read_counts
from peerd.store.queue_states import write_depths
from peerd.store.schema.tables import depths, disks, file_checks, nodes
from peerd.store.schema.types import seconds_from_now
from peerd.store.time_series import SAMPLE, TEN_MINUTES
from tests.store.file_steps import GIGABYTE, Catalogue
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
    assert ended.queue == "gone"
    assert ended.seconds == pytest.approx(1_800.0, abs=300.0)
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


async def test_a_stop_waits_for_no_sample(harness: RunnerHarness) -> None:
    sampling = Sampling(harness)
    with harness.database.hold(write_depths.__name__):
        sampling.now += SAMPLE
        sampling.sampler.start_if_due(sampling.due, sampling.node_id)
        running = sampling.sampler._sampling
        assert running is not None
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await sampling.sampler.stop()
        assert running.done()


class Watching:
    """The sampler of one node, and the time of this test."""

    def __init__(self, harness: RunnerHarness, node: str = "a") -> None:
        self.harness = harness
        self.now = 1_000.0
        self.catalogue = Catalogue(harness.database)
        self.node_id = self.catalogue.node(node)
        self.sampler = StorageSampler(harness.database, EventBus(harness.events), lambda: self.now)

    async def round(self, seconds: float = SAMPLE_EVERY) -> bool:
        """A round of the manager so many seconds later; whether it has sampled."""
        self.now += seconds
        before = self.sampler._ended_at
        self.sampler.start_if_due(self.harness.database.read(read_due_maintenance), self.node_id)
        if self.sampler._sampling is not None:
            await self.sampler._sampling
        return self.sampler._ended_at != before

    async def confirmed(self) -> None:
        """Rounds until what holds now is reported."""
        await self.round()
        await self.round(CONFIRM_AFTER)

    def found(self) -> list[tuple[str, int | None]]:
        return [(one.condition, one.disk) for one in self.harness.of(StorageConditionFound)]

    def ended(self) -> list[tuple[str, int | None]]:
        return [(one.condition, one.disk) for one in self.harness.of(StorageConditionEnded)]

    def change(self, disk: int, **values: object) -> None:
        self.catalogue.change(disks, disks.c.id == disk, **values)


@pytest.fixture
async def watching(harness: RunnerHarness) -> AsyncIterator[Watching]:
    watching = Watching(harness)
    yield watching
    await watching.sampler.stop()


async def test_without_disks_nothing_is_read_and_another_node_than_the_first_reads_nothing(watching: Watching) -> None:
    assert not await watching.round()
    watching.catalogue.disk("a")
    assert await watching.round()
    other = Watching(watching.harness, "b")
    assert not await other.round()


async def test_copies_are_counted_for_all_that_show_them(watching: Watching) -> None:
    catalogue = watching.catalogue
    disk, bucket = catalogue.disk("a"), catalogue.bucket()
    for number in range(3):
        catalogue.put(bucket, f"{number}", disk, size=100)
    await watching.round()
    counts = watching.harness.database.read(read_counts)
    assert {state: (one.copies, one.bytes) for state, one in counts[disk].items()} == {"stored": (3, 300)}


async def test_a_disk_that_is_full_refused_or_missing_is_reported_with_its_end(watching: Watching) -> None:
    first, second, third = (watching.catalogue.disk(name) for name in "abc")
    watching.catalogue.disk("d")
    watching.change(first, free=GIGABYTE // 20)
    watching.change(second, problem="no disk is mounted here")
    watching.change(third, seen_at=seconds_from_now(-1_000))
    await watching.round()
    assert watching.found() == [], "what has lasted for one sample only needs no person yet"
    await watching.round(CONFIRM_AFTER)
    assert watching.found() == [("disk-full", first), ("disk-unusable", second), ("disk-unusable", third)]
    texts = [one.text for one in watching.harness.of(StorageConditionFound)]
    assert texts[0].startswith(f"disk {first} (/srv/a of node a) is nearly full: 50 MB can still be written; remove")
    remedy = f"; bring it back, or declare it lost (peerd files disks lost {second})"
    assert texts[1].endswith(f"no disk is mounted here{remedy}")
    assert "it is missing: it was not reported for longer than 15m; bring" in texts[2]
    watching.change(first, free=2 * GIGABYTE * 11 // 100)  # 89 % are used: not enough to be over
    watching.change(second, problem=None)
    await watching.round()
    assert watching.ended() == [("disk-unusable", second)]
    watching.change(first, free=GIGABYTE)
    watching.change(third, state="lost")
    await watching.round()
    assert watching.ended()[1:] == [("disk-full", first), ("disk-unusable", third)]
    watching.change(first, free=0)
    await watching.confirmed()
    watching.change(first, seen_at=seconds_from_now(-60))
    await watching.round()
    assert watching.found()[3:] == [("disk-full", first)], "it is as full while it is silent"
    assert len(watching.ended()) == 3


async def test_files_that_are_at_risk_for_longer_than_the_grace_are_reported(watching: Watching) -> None:
    catalogue = watching.catalogue
    disk, bucket = catalogue.disk("a"), catalogue.bucket()
    put = [catalogue.put(bucket, f"{number}", disk) for number in range(3)]
    for file in put:
        watching.harness.database.run(postpone_check, file.id, 60.0, danger=1, health="at-risk", blocked=None)
    await watching.round()
    assert watching.found() == [], "they were put just now"
    of_two = file_checks.c.file_id.in_([put[0].id, put[1].id])
    catalogue.change(file_checks, of_two, created_at=seconds_from_now(-1_000))
    await watching.round()
    [found] = watching.harness.of(StorageConditionFound)
    assert found.text.startswith("2 files have lacked copies for longer than 15m: 2 at-risk; see why")
    catalogue.change(file_checks, of_two, health="whole")
    await watching.round()
    assert watching.ended() == [("copies-at-risk", None)]


async def test_a_lost_file_is_reported_at_once(watching: Watching) -> None:
    catalogue = watching.catalogue
    file = catalogue.put(catalogue.bucket(), "film.mov", catalogue.disk("a"))
    watching.harness.database.run(postpone_check, file.id, 60.0, danger=8, health="lost", blocked=None)
    await watching.round()
    assert watching.found() == [("files-lost", None)]
    [found] = watching.harness.of(StorageConditionFound)
    assert found.text.startswith("1 file has no copy any more")
    catalogue.change(file_checks, file_checks.c.file_id == file.id, health="deleted", danger=9)
    await watching.round()
    assert watching.ended() == [("files-lost", None)]


async def test_the_brake_is_reported_by_the_grace_that_the_nodes_have(watching: Watching) -> None:
    silent = [watching.catalogue.disk(name) for name in "ab"]
    watching.catalogue.disk("c")
    for disk in silent:
        watching.change(disk, seen_at=seconds_from_now(-100), grace=60.0)
    watching.catalogue.change(disks, disks.c.id.is_not(None), grace=60.0)
    await watching.round()
    assert watching.found() == [], "a new disk is not there until its node has reported it"
    await watching.confirmed()
    unusable = [("disk-unusable", disk) for disk in silent]
    assert set(watching.found()) == {("repair-brake", None), *unusable}, "they are gone, though their copies count"
    [brake] = [one for one in watching.harness.of(StorageConditionFound) if one.disk is None]
    assert brake.data == {"nodes": ["a", "b"]}
    watching.change(silent[0], state="lost")
    await watching.confirmed()
    assert set(watching.ended()) == {unusable[0], ("repair-brake", None)}
    assert watching.found()[3:] == []


async def test_files_that_cannot_be_read_are_reported_long_before_the_grace_is_over(watching: Watching) -> None:
    catalogue = watching.catalogue
    first, second = (catalogue.disk(name) for name in "ab")
    for _ in range(2):
        catalogue.disk("c")
    catalogue.put(catalogue.bucket(), "film.mov", first)
    catalogue.silence(second, 60.0)
    await watching.round()
    assert watching.found() == [], "all files can be read"
    catalogue.silence(first, 60.0)
    await watching.round()
    assert watching.found() == [("files-unreadable", None)]
    [found] = watching.harness.of(StorageConditionFound)
    assert found.text.startswith(f"2 of 4 disks are away (disk {first} of a, disk {second} of b): 1 file cannot")
    assert found.data == {"disks": [first, second], "files": 1}
    catalogue.silence(first, 0.0)
    await watching.round()
    assert watching.ended() == [("files-unreadable", None)]


async def test_a_manager_goes_on_with_what_the_one_before_it_has_reported_of_disks(watching: Watching) -> None:
    first, second = (watching.catalogue.disk(name) for name in "ab")
    watching.change(first, problem="it is read only")
    for disk in (first, second):
        report = AlertReport(kind="disk-unusable", subject=str(disk), node="x")
        watching.harness.database.run(record_alert, report, ReportAge(first=1_800.0, latest=1_800.0))
    await watching.round()
    assert watching.found() == []
    [ended] = watching.harness.of(StorageConditionEnded)
    assert ended.disk == second
    assert ended.seconds == pytest.approx(1_800.0, abs=300.0)
    await watching.round(REPEAT_EVERY - 1_800.0)
    assert watching.found() == [("disk-unusable", first)]
    gone = sa.update(nodes).where(nodes.c.id == watching.node_id).values(active=False)
    watching.harness.database.run(lambda connection: connection.execute(gone).close())
    assert not await watching.round(), "another node is the first one now"
