"""One manager watches storage for all: it reports what needs a person, its end, and counts the copies of the disks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from peerd.domain.alert_record import AlertReport
from peerd.manager.storage_sampler import CONFIRM_AFTER, REPEAT_EVERY, SAMPLE_EVERY, StorageSampler
from peerd.runtime.observability.events import EventBus, StorageConditionEnded, StorageConditionFound
from peerd.store.alerts.recording import ReportAge, record_alert
from peerd.store.files.checks import postpone_check
from peerd.store.files.disk_counts import read_counts
from peerd.store.maintenance.due import read_due_maintenance
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import disks, file_checks, nodes
from tests.store.file_steps import GIGABYTE, Catalogue
from tests.work.harness import RunnerHarness


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
        before = self.sampler._next_at
        self.sampler.start_if_due(self.harness.database.read(read_due_maintenance), self.node_id)
        if self.sampler._sampling is not None:
            await self.sampler._sampling
        return self.sampler._next_at != before

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
    assert texts[0] == f"disk {first} (/srv/a of node a) is nearly full: 50 MB can still be written"
    assert texts[1].endswith("no disk is mounted here")
    assert texts[2].endswith("it is missing: it was not reported for longer than 15m")
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
    assert found.text == "2 files have lacked copies for longer than 15m: 2 at-risk (peerd files at-risk)"
    catalogue.change(file_checks, of_two, health="whole")
    await watching.round()
    assert watching.ended() == [("copies-at-risk", None)]


async def test_the_brake_is_reported_by_the_grace_that_the_nodes_have(watching: Watching) -> None:
    silent = [watching.catalogue.disk(name) for name in "ab"]
    watching.catalogue.disk("c")
    for disk in silent:
        watching.change(disk, seen_at=seconds_from_now(-100), grace=60.0)
    watching.catalogue.change(disks, disks.c.id.is_not(None), grace=60.0)
    await watching.confirmed()
    assert watching.found() == [("repair-brake", None)]
    [found] = watching.harness.of(StorageConditionFound)
    assert found.data == {"nodes": ["a", "b"]}
    watching.change(silent[0], state="lost")
    await watching.confirmed()
    assert watching.ended() == [("repair-brake", None)]
    assert watching.found()[1:] == [("disk-unusable", silent[1])]


async def test_a_manager_goes_on_with_what_the_one_before_it_has_reported(watching: Watching) -> None:
    first, second = (watching.catalogue.disk(name) for name in "ab")
    watching.change(first, problem="it is read only")
    for disk in (first, second):
        report = AlertReport(kind="disk-unusable", subject=str(disk), node="x")
        watching.harness.database.run(record_alert, report, ReportAge(first=1_800.0, latest=1_800.0))
    await watching.round()
    assert watching.found() == []
    [ended] = watching.harness.of(StorageConditionEnded)
    assert (ended.disk, round(ended.seconds)) == (second, 1_800)
    await watching.round(REPEAT_EVERY - 1_800.0)
    assert watching.found() == [("disk-unusable", first)]
    gone = sa.update(nodes).where(nodes.c.id == watching.node_id).values(active=False)
    watching.harness.database.run(lambda connection: connection.execute(gone).close())
    assert not await watching.round(), "another node is the first one now"
