"""A client whose tasks have run when ``enqueue`` returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import Unpack

from peerd.domain.task import Call
from peerd.operate.client import AioClient, Client
from peerd.operate.job import Job
from peerd.operate.operations import AsyncMode
from peerd.operate.request import EnqueueOptions
from peerd.store.connection.database import Database


class EagerClient(Client):
    """A `Client` whose ``enqueue`` runs all tasks that are due."""

    def __init__(
        self, database: Database, run_due: Callable[[], object], run_due_async: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(database)
        self._run_due = run_due
        self._run_due_async = run_due_async

    def enqueue(
        self, what: Call | str, *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Job:
        """`Client.enqueue`, and run all tasks that are due."""
        job = super().enqueue(what, idempotency_key=idempotency_key, **options)
        self._run_due()
        return job

    def enqueue_many(
        self, what: Iterable[Call | str], *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> list[Job]:
        """`Client.enqueue_many`, and run all tasks that are due."""
        jobs = super().enqueue_many(what, idempotency_key=idempotency_key, **options)
        self._run_due()
        return jobs

    @cached_property
    def aio(self) -> AioClient:
        """This client with awaitable operations."""
        return EagerAioClient(AsyncMode(self._mode), self._run_due_async)


class EagerAioClient(AioClient):
    """``client.aio`` of an `EagerClient`."""

    def __init__(self, mode: AsyncMode, run_due: Callable[[], Awaitable[object]]) -> None:
        super().__init__(mode)
        self._run_due = run_due

    async def enqueue(
        self, what: Call | str, *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> Job:
        """`AioClient.enqueue`, and run all tasks that are due."""
        job = await super().enqueue(what, idempotency_key=idempotency_key, **options)
        await self._run_due()
        return job

    async def enqueue_many(
        self, what: Iterable[Call | str], *, idempotency_key: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> list[Job]:
        """`AioClient.enqueue_many`, and run all tasks that are due."""
        jobs = await super().enqueue_many(what, idempotency_key=idempotency_key, **options)
        await self._run_due()
        return jobs
