"""Reserves as a state machine: who waits, who attempts, and how reserves end. Jobs are values; nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from peerd.gateway.batches import Batch, OperationFailed
from peerd.gateway.clients import QueueClient, Reservation, ReserveEnd
from peerd.gateway.operations import Reserve, StoreCall, StoreQuery
from peerd.gateway.reserving import Reserving
from peerd.store.jobs.types import ReservedJob
from peerd.testing.waiting import eventually_async

Steps = Callable[["Table"], Coroutine[Any, Any, None]]


class Table:
    """Reserving, and a table of ready jobs from which its attempts take."""

    def __init__(self) -> None:
        self.ready: list[ReservedJob] = []
        self.returned: list[int] = []
        self.expired: list[int] = []
        self.attempts = 0
        self.reserving = Reserving(
            lambda commands: None,
            lambda job: self.returned.append(job.id),
            lambda client, held: self.expired.append(held.job.id),
        )

    def client(self, *tubes: str) -> QueueClient:
        client = QueueClient()
        client.watched = tubes
        return client

    def put(self, job_id: int, tube: str = "a", ttr: int = 60) -> None:
        self.ready.append(
            ReservedJob(
                id=job_id,
                queue=tube,
                body=b"",
                priority=0,
                ttr=ttr,
                lease=1,
                unique_key=None,
                has_attempts=False,
                timeouts=0,
                releases=0,
            )
        )
        self.reserving.wake(tube, 1)

    def begin_batch(self) -> Batch:
        batch = Batch()
        self.reserving.add_attempts(batch)
        return batch

    def end_batch(self, batch: Batch, failure: OperationFailed | None = None) -> None:
        for run in batch.runs:
            for operation, answer in zip(run.operations, run.answers, strict=True):
                assert isinstance(operation, Reserve)
                self.attempts += 1
                answer(failure or self._take(operation))
        self.reserving.finish_batch()

    def run_batches(self) -> None:
        while batch := self.begin_batch():
            self.end_batch(batch)

    def _take(self, operation: Reserve) -> list[ReservedJob]:
        found = operation.demand.take([job for job in self.ready if job.queue in operation.tubes])
        self.ready = [job for job in self.ready if job not in found]
        return found


class Answers(list[object]):
    """The answers of reserves: ids of jobs, and how reserves ended."""

    def note(self, number: int, _: object) -> None:
        self.append(number)

    def take(self, result: object) -> None:
        self.append(result.job.id if isinstance(result, Reservation) else result)


def scenario(steps: Steps) -> Callable[[], None]:
    """A test of one table, on an event loop."""

    async def run() -> None:
        await steps(Table())

    def test() -> None:
        asyncio.run(run())

    test.__name__ = steps.__name__
    test.__doc__ = steps.__doc__
    return test


@scenario
async def test_a_job_that_waits_is_reserved_at_once(table: Table) -> None:
    answers, client = Answers(), table.client("a")
    table.put(1)
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    assert answers == [1]
    assert list(client.reservations) == [1]


@scenario
async def test_a_reserve_that_comes_after_the_end_of_input_does_not_wait(table: Table) -> None:
    answers, client = Answers(), table.client("a")
    table.reserving.end_waits(client)
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    await eventually_async(lambda: answers == [ReserveEnd.TIMED_OUT])


@scenario
async def test_the_client_that_waits_longest_gets_the_first_job(table: Table) -> None:
    answers = Answers()
    for number in (1, 2, 3):
        table.reserving.want(table.client("a"), None, partial(answers.note, number))
    table.run_batches()
    table.put(7)
    table.run_batches()
    table.put(8)
    table.run_batches()
    assert answers == [1, 2]


@scenario
async def test_one_job_causes_one_attempt_among_many_waiting_clients(table: Table) -> None:
    for _ in range(100):
        table.reserving.want(table.client("a"), None, lambda result: None)
    table.run_batches()
    before = table.attempts
    table.put(1)
    table.run_batches()
    assert table.attempts == before + 1


@scenario
async def test_a_job_that_the_woken_client_does_not_take_goes_to_the_next_one(table: Table) -> None:
    """The first client watches both tubes and gets the job of the other one."""
    first, second = Answers(), Answers()
    table.reserving.want(table.client("a", "b"), None, first.take)
    table.reserving.want(table.client("b"), None, second.take)
    table.run_batches()
    table.put(1, "a")
    table.put(2, "b")
    table.run_batches()
    assert (first, second) == ([1], [2])


@scenario
async def test_a_job_put_while_the_attempt_of_a_client_runs_is_not_missed(table: Table) -> None:
    answers = Answers()
    table.reserving.want(table.client("a"), None, answers.take)
    batch = table.begin_batch()
    found_before: list[ReservedJob] = []
    table.put(1)
    for run in batch.runs:
        for answer in run.answers:
            answer(found_before)
    table.reserving.finish_batch()
    table.run_batches()
    assert answers == [1]


@scenario
async def test_a_ring_lets_all_waiting_clients_get_jobs(table: Table) -> None:
    answers = Answers()
    for _ in range(200):
        table.reserving.want(table.client("a"), None, answers.take)
    table.run_batches()
    for number in range(150):
        table.put(number + 1, "a")
    table.reserving.waiters.wake("a")
    table.run_batches()
    assert sorted(answers) == list(range(1, 151))  # type: ignore[type-var]


@scenario
async def test_a_reserve_that_does_not_wait_times_out_at_once(table: Table) -> None:
    answers = Answers()
    table.reserving.want(table.client("a"), 0, answers.take)
    table.run_batches()
    assert answers == [ReserveEnd.TIMED_OUT]
    assert not table.reserving.waiters


@scenario
async def test_a_reserve_times_out(table: Table) -> None:
    answers = Answers()
    table.reserving.want(table.client("a"), 0.02, answers.take)
    table.run_batches()
    assert answers == []
    await eventually_async(lambda: answers == [ReserveEnd.TIMED_OUT])


@scenario
async def test_pipelined_reserves_are_answered_in_order(table: Table) -> None:
    answers, client = Answers(), table.client("a")
    table.put(1)
    table.put(2)
    for timeout in (None, None, 0):
        table.reserving.want(client, timeout, answers.take)
    table.run_batches()
    assert answers == [1, 2, ReserveEnd.TIMED_OUT]


@scenario
async def test_a_waiting_client_is_told_that_its_deadline_comes_soon(table: Table) -> None:
    answers, client = Answers(), table.client("a")
    table.put(1, ttr=1)
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    assert answers == [1, ReserveEnd.DEADLINE_SOON]


@scenario
async def test_a_ready_job_is_given_although_a_deadline_comes_soon(table: Table) -> None:
    answers, client = Answers(), table.client("a")
    table.put(1, ttr=1)
    table.put(2)
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    assert answers == [1, 2]


@scenario
async def test_a_reservation_ends_at_its_deadline(table: Table) -> None:
    client = table.client("a")
    table.put(1, ttr=0)
    table.reserving.want(client, None, lambda result: None)
    table.run_batches()
    await eventually_async(lambda: table.expired == [1])
    assert not client.reservations


@scenario
async def test_a_job_for_a_client_that_has_gone_is_returned(table: Table) -> None:
    client = table.client("a")
    table.put(1)
    table.reserving.want(client, None, lambda result: pytest.fail("it has gone"))
    batch = table.begin_batch()
    client.is_open = False
    table.reserving.forget(client)
    table.end_batch(batch)
    assert table.returned == [1]


@scenario
async def test_a_client_that_watches_other_tubes_after_its_answer_waits_no_more_on_the_old_ones(table: Table) -> None:
    client = table.client("a")

    def watch_another(result: object) -> None:
        client.watched = ("b",)

    table.reserving.want(client, None, watch_another)
    table.put(1)
    table.run_batches()
    assert table.reserving.waiters.count("a") == 0
    assert not table.reserving.waiters


@scenario
async def test_a_client_waits_on_while_the_database_is_away(table: Table) -> None:
    answers = Answers()
    table.reserving.want(table.client("a"), None, answers.take)
    table.end_batch(table.begin_batch(), OperationFailed(OSError("away")))
    assert answers == []
    table.put(1)
    table.run_batches()
    assert answers == [1]


@scenario
async def test_an_attempt_that_the_database_does_not_answer_is_not_repeated_at_once(table: Table) -> None:
    table.reserving.want(table.client("a"), None, lambda result: None)
    table.run_batches()
    for wake in (partial(table.reserving.wake, "a", 1), table.reserving.wake_all):
        wake()
        batch = table.begin_batch()
        assert batch
        table.end_batch(batch, OperationFailed(RuntimeError("the database is away")))
        assert not table.begin_batch()


@scenario
async def test_a_wait_that_is_over_during_an_attempt_costs_no_time(table: Table) -> None:
    loop, answers, client = asyncio.get_running_loop(), Answers(), table.client("a")
    table.put(1, ttr=30)
    table.reserving.want(client, None, answers.take)
    table.run_batches()
    table.reserving.want(client, 0.01, answers.take)
    batch = table.begin_batch()
    await eventually_async(lambda: loop.time() > client.waits_until)
    table.reserving._on_timer(client)
    assert client.timer_at > loop.time() + 1.0, "the next one is for the deadline of the job that it holds"
    table.end_batch(batch)
    assert answers == [1, ReserveEnd.TIMED_OUT]


def reads_a_table(_: Connection) -> None:
    """An operation that stands between offers."""


def sequence(batch: Batch) -> list[str]:
    return [run.kind.__name__ for run in batch.runs for _ in run.operations]


@scenario
async def test_a_client_gets_a_new_job_before_the_next_command_of_its_producer_though_it_attempts(table: Table) -> None:
    answers, producer = Answers(), table.client()
    table.reserving.want(table.client("a"), None, answers.take)
    executed, following = table.begin_batch(), Batch()
    following.add(producer, StoreCall(reads_a_table), lambda _: None)
    table.reserving.offers.add(following, producer, "a", 1, is_certain=True)
    following.add(producer, StoreQuery(reads_a_table), lambda _: None)
    table.end_batch(executed)
    table.reserving.add_attempts(following)
    assert sequence(following) == ["StoreCall", "Reserve", "StoreQuery"]


@scenario
async def test_a_client_that_an_offer_may_have_served_attempts_after_the_next_one_too_and_gets_one_job(
    table: Table,
) -> None:
    answers, producer = Answers(), table.client()
    for number in (1, 2):
        table.reserving.want(table.client("a"), None, partial(answers.note, number))
    table.run_batches()
    batch = Batch()
    for is_certain in (False, True):
        batch.add(producer, StoreCall(reads_a_table), lambda _: None)
        table.reserving.offers.add(batch, producer, "a", 1, is_certain=is_certain)
    table.put(7)
    table.put(8)
    table.reserving.add_attempts(batch)
    assert sequence(batch) == ["StoreCall", "Reserve", "StoreCall", "Reserve", "Reserve"]
    batch.runs = [run for run in batch.runs if run.kind is Reserve]
    table.end_batch(batch)
    assert answers == [1, 2]


@scenario
async def test_certain_offers_are_for_one_client_each(table: Table) -> None:
    producer = table.client()
    for _ in range(5):
        table.reserving.want(table.client("a"), None, lambda _: None)
    table.run_batches()
    batch = Batch()
    for _ in range(3):
        batch.add(producer, StoreCall(reads_a_table), lambda _: None)
        table.reserving.offers.add(batch, producer, "a", 1, is_certain=True)
    table.reserving.add_attempts(batch)
    assert sequence(batch) == ["StoreCall", "Reserve"] * 3


@scenario
async def test_a_client_that_begins_to_wait_after_an_offer_attempts_after_all_operations(table: Table) -> None:
    producer, batch = table.client(), Batch()
    table.reserving.want(table.client("a"), 0.0, lambda _: None)
    batch.add(producer, StoreCall(reads_a_table), lambda _: None)
    table.reserving.offers.add(batch, producer, "a", 1, is_certain=False)
    table.reserving.forget(next(iter(table.reserving.waiters._by_tube["a"])))
    table.reserving.want(table.client("a"), None, lambda _: None)
    batch.add(producer, StoreQuery(reads_a_table), lambda _: None)
    table.reserving.add_attempts(batch)
    assert sequence(batch) == ["StoreCall", "StoreQuery", "Reserve"]
