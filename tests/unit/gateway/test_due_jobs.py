from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from peerd.domain.errors import DatabaseUnavailable
from peerd.gateway import due_jobs
from peerd.gateway.batches import OperationFailed
from peerd.gateway.due_jobs import DueJobs, StagedJobs
from peerd.testing import eventually_async

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


async def test_a_job_is_found_when_it_is_due_however_many_are_due_later() -> None:
    table = Table(StagedJobs(("q",), is_full=False, next_in=3600.0))
    due = table.due_jobs()
    for number in range(20_000):
        due.expect(3600.0 + number)
    due.expect(0.01)
    await eventually_async(lambda: table.ready == ["q"])
    assert table.checks == 1
    due.close()


async def test_each_check_tells_when_the_next_one_is_needed_and_a_full_batch_is_followed_at_once() -> None:
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
    monkeypatch.setattr(due_jobs, "CHECK_EVERY", 0.01)
    table = Table()
    due = table.due_jobs(follow_table=True)
    for _ in range(20_000):
        due.expect(3600.0)
    await eventually_async(lambda: table.checks > 3)
    due.close()


async def test_a_check_that_could_not_stage_is_repeated_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_jobs, "RETRY_AFTER", 0.05)
    for result in (  # the database is away; its row is locked
        OperationFailed(DatabaseUnavailable("away")), StagedJobs((), is_full=False, next_in=-5.0),
    ):  # fmt: skip
        table = Table(result, result, StagedJobs(("a",), is_full=False, next_in=None))
        due = table.due_jobs(follow_table=True)
        began = asyncio.get_running_loop().time()
        await eventually_async(partial(table.is_ready, "a"))
        assert asyncio.get_running_loop().time() - began >= 0.1
        due.close()
