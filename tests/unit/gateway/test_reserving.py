from __future__ import annotations

import asyncio
from functools import partial
from unittest.mock import Mock

import pytest

from peerd.gateway.group_commit import Batch, OperationFailed
from peerd.gateway.operations import Reserve, StoreCall, StoreQuery
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.reserving import Reserving
from peerd.gateway.waiting import QueueClient, Reservation, ReserveEnd
from peerd.store.jobs.reserving import ReservedJob
from peerd.testing.waiting import eventually_async

TIMED_OUT, DEADLINE_SOON = ReserveEnd.TIMED_OUT, ReserveEnd.DEADLINE_SOON


class Table:
    def __init__(self) -> None:
        self.ready: list[ReservedJob] = []
        self.returned: list[int] = []
        self.expired: list[int] = []
        self.answers: list[object] = []
        """Of all clients: the id of a job, or how a reserve ended; of named ones, the name."""
        self.attempts = 0
        ends = Mock(
            return_job=lambda job: self.returned.append(job.id),
            expire=lambda client, held: self.expired.append(held.job.id),
        )
        operations = Mock(submit=lambda _, __, answer: None)
        self.ready_jobs = ReadyJobs(operations, Mock(), follow_table=False)
        self.waiters = self.ready_jobs.waiters
        self.reserving = Reserving(operations, self.ready_jobs, ends)

    def want(
        self, *tubes: str, by: QueueClient | None = None, timeout: float | None = None, name: str | None = None
    ) -> QueueClient:
        client = by or QueueClient()
        client.watched = client.watched if by else tubes or ("a",)
        self.reserving.reserve(client, timeout, partial(self._note, name))
        return client

    def _note(self, name: str | None, result: object) -> None:
        self.answers.append(name or (result.job.id if isinstance(result, Reservation) else result))

    def put(self, job_id: int, tube: str = "a", ttr: int = 60) -> None:
        self.ready.append(
            ReservedJob(
                id=job_id, queue=tube, body=b"", priority=0, ttr=ttr, lease=1, unique_key=None, has_attempts=False,
                timeouts=0, releases=0,
            )
        )  # fmt: skip
        self.waiters.wake(tube, 1)

    def begin_batch(self) -> Batch:
        batch = Batch()
        self.reserving.add_attempts(batch)
        return batch

    def end_batch(self, batch: Batch, failure: OperationFailed | None = None) -> None:
        for run in batch.runs:
            for operation, answer in zip(run.operations, run.callbacks, strict=True):
                assert isinstance(operation, Reserve)
                self.attempts += 1
                answer(failure or self._take(operation))
        self.reserving.finish_batch()

    def run_batches(self) -> None:
        while batch := self.begin_batch():
            self.end_batch(batch)

    def _take(self, operation: Reserve) -> list[ReservedJob]:
        found = operation.demand.fill([job for job in self.ready if job.queue in operation.tubes])
        self.ready = [job for job in self.ready if job not in found]
        return found


@pytest.fixture
async def table() -> Table:
    return Table()


async def test_pipelined_reserves_are_answered_in_order_and_one_that_does_not_wait_at_once(table: Table) -> None:
    table.put(1)
    table.put(2)
    client = table.want()
    for timeout in (None, 0):
        table.want(by=client, timeout=timeout)
    table.run_batches()
    assert table.answers == [1, 2, TIMED_OUT]
    assert list(client.reservations) == [1, 2]
    assert not table.waiters


async def test_a_reserve_ends_with_its_timeout_and_does_not_wait_behind_the_end_of_input(table: Table) -> None:
    table.want(timeout=0.02)
    client = QueueClient()
    client.watched = ("a",)
    table.reserving.end_waits(client)
    table.run_batches()
    assert table.answers == []
    await eventually_async(lambda: table.answers == [TIMED_OUT])
    table.want(by=client)
    table.run_batches()
    await eventually_async(lambda: table.answers == [TIMED_OUT] * 2)


async def test_one_job_causes_one_attempt_of_who_waits_longest_and_a_ring_lets_all_get_jobs(table: Table) -> None:
    for number in range(100):
        table.want(name=f"client {number}")
    table.run_batches()
    before = table.attempts
    for job_id in (7, 8):
        table.put(job_id)
        table.run_batches()
    assert (table.answers, table.attempts) == (["client 0", "client 1"], before + 2)
    for number in range(90):
        table.put(number)
    table.waiters.wake("a")
    table.run_batches()
    assert set(table.answers) == {f"client {number}" for number in range(92)}


async def test_a_job_that_the_woken_client_does_not_take_goes_to_the_next_one(table: Table) -> None:
    table.want("a", "b", name="first")  # gets the job of the other tube
    table.want("b", name="second")
    table.run_batches()
    table.put(1, "a")
    table.put(2, "b")
    table.run_batches()
    assert table.answers == ["first", "second"]


async def test_a_job_put_while_the_attempt_of_a_client_runs_is_not_missed(table: Table) -> None:
    table.want()
    batch = table.begin_batch()
    found_before: list[ReservedJob] = []
    table.put(1)
    for run in batch.runs:
        for answer in run.callbacks:
            answer(found_before)
    table.reserving.finish_batch()
    table.run_batches()
    assert table.answers == [1]


async def test_a_ready_job_is_given_although_a_deadline_comes_soon_of_which_one_who_waits_is_told(table: Table) -> None:
    table.put(1, ttr=1)
    table.put(2)
    client = table.want()
    for _ in range(2):
        table.want(by=client)
        table.run_batches()
    assert table.answers == [1, 2, DEADLINE_SOON]


async def test_who_has_gone_gets_no_job_and_who_watches_other_tubes_waits_no_more_on_the_old_ones(table: Table) -> None:
    table.put(1)
    client = table.want()
    batch = table.begin_batch()
    table.reserving.disconnect(client)
    table.end_batch(batch)
    assert (table.returned, table.answers) == ([1], [])
    client = QueueClient()
    client.watched = ("a",)
    table.reserving.reserve(client, None, lambda _: setattr(client, "watched", ("b",)))
    table.put(1)
    table.run_batches()
    assert (table.waiters.count("a"), bool(table.waiters)) == (0, False)


async def test_a_client_waits_on_while_the_database_is_away_and_attempts_once_for_each_reason(table: Table) -> None:
    table.want()
    table.end_batch(table.begin_batch(), OperationFailed(OSError("away")))
    for wake in (partial(table.waiters.wake, "a", 1), partial(table.waiters.wake_all, ())):
        wake()
        batch = table.begin_batch()
        assert batch
        table.end_batch(batch, OperationFailed(OSError("away")))
        assert not table.begin_batch()
    assert table.answers == []
    table.put(1)
    table.run_batches()
    assert table.answers == [1]


async def test_a_wait_that_is_over_during_an_attempt_costs_no_time(table: Table) -> None:
    loop = asyncio.get_running_loop()
    table.put(1, ttr=30)
    client = table.want()
    table.run_batches()
    table.want(by=client, timeout=0.01)
    batch = table.begin_batch()
    await eventually_async(lambda: loop.time() > client.waits_until)
    table.reserving._on_timer(client)
    assert client.timer_at > loop.time() + 1.0, "the next one is for the deadline of the job that it holds"
    table.end_batch(batch)
    assert table.answers == [1, TIMED_OUT]


class Offering:
    """Attempts right behind what makes jobs ready, in a batch of a producer."""

    def __init__(self, table: Table) -> None:
        self.batch, self.producer = Batch(), QueueClient()
        self._table = table

    def call(self, *, is_certain: bool) -> None:
        self.batch.add(self.producer, StoreCall(Mock()), lambda _: None)
        self._table.waiters.offer(self.batch, self.producer, "a", 1, is_certain=is_certain)

    def query(self) -> None:
        self.batch.add(self.producer, StoreQuery(Mock()), lambda _: None)

    def sequence(self) -> list[str]:
        self._table.reserving.add_attempts(self.batch)
        return [run.kind.__name__ for run in self.batch.runs for _ in run.operations]


@pytest.fixture
async def offering(table: Table) -> Offering:
    return Offering(table)


async def test_a_client_gets_a_new_job_before_the_next_command_of_its_producer(
    table: Table, offering: Offering
) -> None:
    table.want()
    executed = table.begin_batch()
    offering.call(is_certain=True)
    offering.query()
    table.end_batch(executed)
    assert offering.sequence() == ["StoreCall", "Reserve", "StoreQuery"]


async def test_a_client_that_an_offer_may_have_served_attempts_again(table: Table, offering: Offering) -> None:
    for name in ("first", "second"):
        table.want(name=name)
    table.run_batches()
    for is_certain in (False, True):
        offering.call(is_certain=is_certain)
    table.put(7)
    table.put(8)
    assert offering.sequence() == ["StoreCall", "Reserve", "StoreCall", "Reserve", "Reserve"]
    offering.batch.runs = [run for run in offering.batch.runs if run.kind is Reserve]
    table.end_batch(offering.batch)
    assert table.answers == ["first", "second"]


async def test_a_client_that_waits_after_an_offer_attempts_after_all(table: Table, offering: Offering) -> None:
    early = table.want(timeout=0.0)
    offering.call(is_certain=False)
    table.reserving.disconnect(early)
    table.want()
    offering.query()
    assert offering.sequence() == ["StoreCall", "StoreQuery", "Reserve"]


async def test_certain_offers_are_for_one_client_each(table: Table, offering: Offering) -> None:
    for _ in range(5):
        table.want()
    table.run_batches()
    for _ in range(3):
        offering.call(is_certain=True)
    assert offering.sequence() == ["StoreCall", "Reserve"] * 3
