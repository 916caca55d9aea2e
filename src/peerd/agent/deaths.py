"""The deaths of this node's processes: what a dead one held is given back at once, with the cause of its death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from peerd.domain.lifecycle import Event
from peerd.runtime.events import Events, ProcessDied, TasksTakenBack
from peerd.store.database import DatabaseThreads
from peerd.store.outages import Outages
from peerd.store.processes import end_nameless_process, end_process
from peerd.store.rescue import release_process

Report = Mapping[str, Any]


class Deaths:
    """Takes the master's reports, one after the other, and acknowledges each that has been dealt with.

    Args:
        threads: of the database.
        incarnation: of this life of the master.
        send: to the master.
        outages: what is learned about the database.
        events: what happens.
    """

    def __init__(
        self,
        threads: DatabaseThreads,
        incarnation: str,
        send: Callable[[Mapping[str, object]], None],
        outages: Outages,
        events: Events,
    ) -> None:
        self._threads = threads
        self._incarnation = incarnation
        self._send = send
        self._outages = outages
        self._events = events
        self._waiting: asyncio.Queue[Report] = asyncio.Queue()

    def hear(self, report: Report) -> None:
        """Take a report of the master."""
        self._events.emit(
            ProcessDied(
                slot=report["slot"],
                pid=report["pid"],
                cause=str(report["cause"]["text"]),
                expected=bool(report["expected"]),
            )
        )
        self._waiting.put_nowait(report)

    async def run(self) -> None:
        """Deal with each report, as they come; one that the database did not answer is tried until it does."""
        while True:
            await self._outages.outlast(self._take_next)

    async def finish(self) -> None:
        """Deal with those that have come.

        Raises:
            DatabaseAway: they stay, and tasks of theirs are rescued by others.
        """
        while not self._waiting.empty():
            await self._take_next()

    async def _take_next(self) -> None:
        report = await self._waiting.get()
        try:
            await self._take(report)
        except BaseException:
            self._waiting.put_nowait(report)
            raise
        self._send({"type": "death-acknowledged", "id": report["id"]})

    async def _take(self, report: Report) -> None:
        """Give back what a dead process held, and record how it died."""
        cause = str(report["cause"]["text"])
        process_id = (report.get("identity") or {}).get("process_id")
        if process_id is None:  # it died in its boot, before it could claim
            nameless = (self._incarnation, report["slot"], report["pid"], cause)
            await self._threads.run(end_nameless_process, *nameless)
            return
        crashed = not report["expected"]
        while taken := await self._threads.run(release_process, process_id, cause, crashed=crashed):
            dead = sum(one.event is Event.DIE for one in taken)
            ids = tuple(one.task_id for one in taken)
            self._events.emit(TasksTakenBack(cause=f"{report['slot']} {cause}", task_ids=ids, dead=dead))
        await self._threads.run(end_process, process_id, cause)
