"""Puts that wait for copies on other nodes, without a thread.

A put is a generator: its steps wait for disks and the database, so they run in threads, and between them it yields what
other nodes have to do. For that it waits in the event loop: those nodes read the content by requests that need the
same threads.
"""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from peerd.domain.errors import PeerdError
from peerd.domain.files import CopyState
from peerd.storage.placement.brake import DiskView
from peerd.storage.placement.decision import counts
from peerd.store.connection.database import Database
from peerd.store.files.checks import read_copies

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks whether copies are durable."""

T = TypeVar("T")


class CopiesWanted(msgspec.Struct, frozen=True):
    """A version waits for so many copies, for so many seconds."""

    file_id: int
    copies: int
    within: float


Steps = Generator[CopiesWanted, None, T]
"""A put, between whose steps copies are awaited; what it returns is its outcome."""
Run = Callable[..., Awaitable[Any]]
"""Calls a function in a thread."""


def threads_of(pool: ThreadPoolExecutor) -> Run:
    """Calls functions in the threads of a pool; for the running event loop."""
    return partial(asyncio.get_running_loop().run_in_executor, pool)


class TooFewDurable(PeerdError):
    """A put was not acknowledged: fewer copies than its class wants were durable in time. Nothing was stored.

    The bytes of an upload in parts stay for an hour, in which it can be completed again.
    """

    def __init__(self, durable: int, wanted: int, seconds: float) -> None:
        self.durable = durable
        self.wanted = wanted
        self.seconds = seconds
        super().__init__(
            f"{durable} of {wanted} copies were durable within {seconds:.3g} s, so nothing was stored; "
            "see which disks are online (peerd files disks list), then put it again: an upload in parts goes on"
        )


class AwaitedCopies:
    """The versions of a process that wait for copies: one task looks for the copies of all of them.

    Any number can wait, each with its connection and its open part; none of them has a thread. For one event loop.

    Args:
        database: with the catalogue.
        view: the disks as decisions see them.
    """

    def __init__(self, database: Database, view: Callable[[], DiskView]) -> None:
        self._database = database
        self._view = view
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}
        """By version, how many copies it wants, and what is done when it has them."""
        self._durable: dict[int, int] = {}
        self._pause = FIRST_PAUSE
        self._looking: asyncio.Task[None] | None = None

    async def carry_out(self, steps: Steps[T], run: Run = to_thread) -> T:
        """Carry a put out; return or raise what its last step does.

        Args:
            steps: of the put.
            run: calls a step in a thread.
        """
        outcome = await run(_advance, steps, None)
        while isinstance(outcome, CopiesWanted):
            error: PeerdError | None = None
            try:
                await self._wait(outcome)
            except PeerdError as failure:
                error = failure
            outcome = await run(_advance, steps, error)
        return outcome  # type: ignore[no-any-return]

    async def _wait(self, wanted: CopiesWanted) -> None:
        """Wait until a version has its copies. Raises TooFewDurable, DatabaseUnavailable."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[wanted.file_id] = wanted.copies, future
        self._pause = FIRST_PAUSE
        self._looking = self._looking or asyncio.create_task(self._look_again_and_again(), name="awaited copies")
        try:
            async with asyncio.timeout(wanted.within):
                await future
        except TimeoutError:
            durable = self._durable.get(wanted.file_id, 1)
            raise TooFewDurable(durable, wanted.copies, wanted.within) from None
        finally:
            del self._waiting[wanted.file_id]
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_again_and_again(self) -> None:
        while True:
            try:
                self._durable = await to_thread(self._count_durable, list(self._waiting))
            except Exception as error:  # noqa: BLE001 - of all that wait now
                self._looking = None
                for _, future in self._waiting.values():
                    if not future.done():
                        future.set_exception(error)
                return
            for file_id, (copies, future) in self._waiting.items():
                if self._durable.get(file_id, 0) >= copies and not future.done():
                    future.set_result(None)
            await asyncio.sleep(self._pause)
            self._pause = min(LONGEST_PAUSE, self._pause * 1.5)

    def _count_durable(self, file_ids: Sequence[int]) -> dict[int, int]:
        """On how many nodes versions have a copy."""
        view = self._view()
        durable = {}
        for file_id, rows in self._database.read(read_copies, file_ids).items():
            stored = [row.copy for row in rows if row.copy.state is CopyState.STORED and counts(row.copy, view)]
            durable[file_id] = len({view.disks[copy.disk_id].site for copy in stored})
        return durable


def _advance(steps: Steps[T], error: PeerdError | None) -> CopiesWanted | T:
    """Take the next step; return what it waits for, or the outcome of all."""
    try:
        return next(steps) if error is None else steps.throw(error)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
