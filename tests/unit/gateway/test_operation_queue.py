from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable
from peerd.gateway import ready_jobs
from peerd.gateway.group_commit import LARGE, OperationFailed, OperationQueue
from peerd.gateway.operations import DeleteHeld, Holder, ReleaseHeld, StoreCall
from peerd.gateway.puts import LEAST_PAUSE, VALID_FOR, Admission, QueueCapacities
from peerd.gateway.ready_jobs import DueJobs, ReadyJobs, StagedJobs
from peerd.gateway.reservation_ends import ReservationEnds
from peerd.gateway.reserving import Reserving
from peerd.gateway.tubes import FEW, TableCounts
from peerd.store.connection.database import Database
from peerd.store.jobs.holding import Release
from peerd.store.jobs.statistics import TubeCounts
from peerd.store.outcomes import ClaimId
from peerd.testing import eventually_async
from tests.support.manual_clock import ManualClock

SLOW = 0.4
"""Seconds of a batch, of which the next one waits a part."""
SizesOfBatches = Callable[..., list[int]]


def rest(_: Connection, seconds: float) -> None:
    time.sleep(seconds)


async def ask(queue: OperationQueue, ready: ReadyJobs, clients: int, seconds: float = 0.0) -> None:
    """So many clients ask for something, one after another, and get their answers. The first of it takes a time."""
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(clients)]
    for client, answer in enumerate(answers):
        queue.submit(client, StoreCall(rest, (0.0 if client else seconds,)), answer.set_result)
        ready.offer(client, "tube", is_certain=True)  # as a put does; it is still one command
        for _ in range(0 if seconds else 3):
            await asyncio.sleep(0)  # a batch that does not wait is executed meanwhile
    await asyncio.gather(*answers)


@pytest.fixture
def sizes_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SizesOfBatches]:
    """The sizes of batches: of a slow one, and of those that follow when so many clients ask again."""
    with closing(Database(f"sqlite:///{tmp_path / 'batches.sqlite'}")) as database:
        sizes: list[int] = []

        def noting(run_group: Callable[..., Any]) -> Callable[..., Any]:
            def run_and_note(operation: Any, runs: Any, *more: Any, **options: Any) -> Any:
                sizes.append(sum(len(run.operations) for run in runs))
                return run_group(operation, runs, *more, **options)

            return run_and_note

        monkeypatch.setattr(database, "run_group", noting(database.run_group))

        async def run(*clients: int) -> None:
            holder = Holder(node_id=1, incarnation="i", process_id=1, default_ttr=60)
            queue = OperationQueue(database, holder, Mock())
            ready = ReadyJobs(queue, Mock(), follow_table=False)
            queue.start(Reserving(queue, ready, Mock()))
            for number, asking in enumerate(clients):
                await ask(queue, ready, asking, 0.0 if number else SLOW)
            await queue.finish()
            queue.close()

        def measure(*clients: int) -> list[int]:
            sizes.clear()
            asyncio.run(run(*clients))
            return list(sizes)

        yield measure


def test_a_batch_waits_for_clients_of_a_large_one_before_it_but_not_for_all(sizes_of_batches: SizesOfBatches) -> None:
    assert sizes_of_batches(LARGE + 1, LARGE + 1) == [LARGE + 1, LARGE + 1]
    assert sizes_of_batches(LARGE + 1, 3) == [LARGE + 1, 3], "they do not come"
    sizes = sizes_of_batches(LARGE - 1, LARGE - 1)
    assert (sizes[0], len(sizes) > 2) == (LARGE - 1, True), "after a small batch none waits"


HOLDER = Holder(node_id=1, incarnation="i", process_id=1, default_ttr=60)


def test_a_reservation_that_is_being_deleted_is_not_released_before_its_delete() -> None:
    ended, other = ClaimId(5, 1), ClaimId(6, 1)

    async def order_of_execution() -> list[Any]:
        operations = OperationQueue(Mock(), HOLDER, Mock())
        operations.submit("one client", ReleaseHeld(Release(claim=other)), Mock())
        operations.submit("another client", DeleteHeld(ended, keep=False), Mock())
        ReservationEnds(operations, Mock(), Mock(), Mock(), {}).return_claim(ended)
        return [operation for run in operations.open_batch.runs for operation in run.operations]

    release = ReleaseHeld(Release(claim=ended))
    executed = asyncio.run(order_of_execution())
    assert executed.index(DeleteHeld(ended, keep=False)) < executed.index(release)


NOTHING = StagedJobs((), is_full=False, next_in=None)


class Table:
    def __init__(self, *results: StagedJobs | OperationFailed) -> None:
        self.results = list(results)
        self.checks = 0
        self.ready: list[str] = []

    def submit(self, _: Any, answer: Callable[[StagedJobs | OperationFailed], None]) -> None:
        self.checks += 1
        answer(self.results.pop(0) if self.results else NOTHING)

    def is_ready(self, *queues: str) -> bool:
        return self.ready == list(queues)

    def due_jobs(self, *, follow_table: bool = False) -> DueJobs:
        return DueJobs(self.submit, self.ready.extend, follow_table=follow_table)


async def test_a_job_is_found_when_it_is_due_and_each_check_tells_when_the_next_one_is_needed() -> None:
    table = Table(StagedJobs(("q",), is_full=False, next_in=3600.0))
    due = table.due_jobs()
    for number in range(20_000):
        due.expect(3600.0 + number)
    due.expect(0.01)
    await eventually_async(lambda: table.ready == ["q"])
    assert table.checks == 1
    due.close()
    table = Table(StagedJobs(("a",), is_full=False, next_in=0.02), StagedJobs(("b",), is_full=False, next_in=0.03))
    due = table.due_jobs()
    due.expect(0.01)
    due.expect(60.0)
    await eventually_async(lambda: table.checks == 3)
    assert table.ready == ["a", "b"]
    due.close()
    table = Table(StagedJobs(("a",), is_full=True, next_in=-5.0), StagedJobs(("b",), is_full=False, next_in=0.001))
    due = table.due_jobs()
    due.expect(0.0)
    await eventually_async(lambda: table.ready == ["a", "b"])
    assert due._timer is None, "what others have delayed is not followed"


async def test_a_process_without_an_agent_goes_on_whatever_is_put_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_jobs, "CHECK_EVERY", 0.01)
    table = Table()
    due = table.due_jobs(follow_table=True)
    for _ in range(20_000):
        due.expect(3600.0)
    await eventually_async(lambda: table.checks > 3)
    due.close()


async def test_a_check_that_could_not_stage_is_repeated_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_jobs, "RETRY_AFTER", 0.05)
    for result in (  # the database is away; its row is locked
        OperationFailed(DatabaseUnavailable("away")), StagedJobs((), is_full=False, next_in=-5.0),
    ):  # fmt: skip
        table = Table(result, result, StagedJobs(("a",), is_full=False, next_in=None))
        due = table.due_jobs(follow_table=True)
        began = asyncio.get_running_loop().time()
        await eventually_async(partial(table.is_ready, "a"))
        assert asyncio.get_running_loop().time() - began >= 0.1
        due.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def capacities(clock: ManualClock) -> QueueCapacities:
    return QueueCapacities({"mails": 10}, clock)


def admitted(capacities: QueueCapacities, number: int) -> int:
    return [capacities.admit("mails") for _ in range(number)].count(Admission.ADMITTED)


def test_one_count_serves_many_puts_and_what_was_put_and_has_ended_is_added_to_it(capacities: QueueCapacities) -> None:
    capacities.record("mails", 4, took=0.001)
    assert admitted(capacities, 20) == 6
    assert {capacities.admit("other") for _ in range(1000)} == {Admission.ADMITTED}, "it has no limit"
    capacities.leave("other")
    capacities.leave("mails")
    assert admitted(capacities, 2) == 1
    capacities.record("mails", 0, took=0.001)
    capacities.leave("mails")
    assert admitted(capacities, 20) == 10, "nothing leaves an empty queue"


def test_a_count_is_used_for_longer_where_it_took_long_and_a_put_waits_for_ends(
    capacities: QueueCapacities, clock: ManualClock
) -> None:
    for counted, took, valid_for, meanwhile in (
        (0, 0.001, VALID_FOR, Admission.ADMITTED),
        (10, 0.5, LEAST_PAUSE * 0.5, Admission.FULL),
    ):
        capacities.record("mails", counted, took=took)
        clock.now += valid_for * 0.99
        assert capacities.admit("mails") is meanwhile
        clock.now += valid_for * 0.02
        assert capacities.admit("mails") is Admission.UNKNOWN
    capacities.record("mails", 9, took=60.0)
    capacities.begin_end()
    assert admitted(capacities, 1) == 1
    assert (capacities.admit("mails"), capacities.must_count("mails")) == (Admission.UNKNOWN, False)
    assert capacities.admit("mails", after_ends=True) is Admission.FULL, "later ends are not waited for, too"
    capacities.finish_end()
    assert capacities.admit("mails") is Admission.FULL


NO_CONNECTION = cast("Any", None)


def test_a_count_is_used_for_ten_times_as_long_as_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now, takes, counted, jobs = 0.0, 0.0, 0, FEW + 1

    def count(*_: Any) -> TubeCounts:
        nonlocal now, counted
        now += takes
        counted += 1
        return TubeCounts(ready=jobs, urgent=counted)

    monkeypatch.setattr("peerd.gateway.tubes.time.monotonic", lambda: now)
    monkeypatch.setattr("peerd.gateway.tubes.count_jobs", count)
    for takes, jobs, pauses, numbers in (
        (0.0, FEW + 1, (0.0, 0.0), [1, 2, 3]),
        (0.06, FEW + 1, (0.5, 0.2), [1, 1, 2]),
        (3.0, FEW + 1, (0.9, 0.2), [1, 1, 2]),
        (0.2, FEW, (0.0, 0.0), [1, 2, 3]),  # to count few jobs took long by chance
    ):
        counts, counted = TableCounts(), 0
        found = [counts.count(NO_CONNECTION, "a").urgent]
        for pause in pauses:
            now += pause
            found.append(counts.count(NO_CONNECTION, "a").urgent)
        assert found == numbers, (takes, jobs)
    takes, jobs, counts, counted = 0.2, FEW + 1, TableCounts(), 0
    assert [counts.count(NO_CONNECTION, tube).urgent for tube in ("a", "b", "a")] == [1, 2, 1]
    assert [counts.count(NO_CONNECTION, None).urgent for _ in range(2)] == [3, 3]
