"""The deaths of this node's processes: what a dead one held is given back at once, with the cause of its death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from peerd.domain.lifecycle import TaskEvent
from peerd.domain.outcome import StuckAttempt
from peerd.runtime.observability.events import AttemptEnded, EventBus, ProcessExited, TasksRescued
from peerd.runtime.process import exit_codes
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.maintenance.rescue import holds_tasks, release_tasks_of_process
from peerd.store.nodes.processes import end_process, end_unregistered_process
from peerd.store.outcomes.recording import ClaimId, record_outcomes

DeathReport = Mapping[str, Any]

RETRY_LOCKED_AFTER: Final = 0.5
"""Seconds after which tasks of the dead are looked for again whose rows were locked: most often by its last write,
which the server is undoing."""


class OrphanReleaser:
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
        outages: OutageTracker,
        events: EventBus,
    ) -> None:
        self._threads = threads
        self._incarnation = incarnation
        self._send = send
        self._outages = outages
        self._events = events
        self._reports: asyncio.Queue[DeathReport] = asyncio.Queue()

    def receive(self, report: DeathReport) -> None:
        """Take a report of the master."""
        self._events.emit(
            ProcessExited(
                slot=report["slot"],
                pid=report["pid"],
                cause=str(report["cause"]["text"]),
                expected=bool(report["expected"]) or _exited_cleanly(report["cause"]),
            )
        )
        self._reports.put_nowait(report)

    async def run(self) -> None:
        """Deal with each report, as they come; one that the database did not answer is tried until it does."""
        while True:
            await self._outages.retry_while_down(self._process_next)

    async def finish(self) -> None:
        """Deal with those that have come, once.

        Raises:
            DatabaseUnavailable: they stay, and tasks of theirs are rescued by others.
        """
        while not self._reports.empty():
            await self._process_next()

    async def _process_next(self) -> None:
        """Deal with a report, and acknowledge it; later once more where another session has locked tasks of it."""
        report = await self._reports.get()
        try:
            is_released = await self._release(report)
        except BaseException:
            self._reports.put_nowait(report)
            raise
        if is_released:
            self._send({"type": "death-acknowledged", "id": report["id"]})
        else:
            asyncio.get_running_loop().call_later(RETRY_LOCKED_AFTER, self._reports.put_nowait, report)

    async def _release(self, report: DeathReport) -> bool:
        """Give back what a dead process held, and record how it died; whether nothing is left of it."""
        cause = str(report["cause"]["text"])
        process_id = (report.get("identity") or {}).get("process_id")
        if process_id is None:  # it died in its boot, before it could claim
            nameless = (self._incarnation, report["slot"], report["pid"], cause)
            await self._threads.run(end_unregistered_process, *nameless)
            return True
        await self._record_stuck_attempts(
            process_id, [StuckAttempt.from_json(one) for one in report.get("stuck", ())], cause
        )
        crashed = not report["expected"]
        while taken := await self._threads.run(release_tasks_of_process, process_id, cause, crashed=crashed):
            dead = sum(one.event is TaskEvent.DIE for one in taken)
            ids = tuple(one.task_id for one in taken)
            self._events.emit(TasksRescued(cause=f"{report['slot']} {cause}", task_ids=ids, dead=dead))
        await self._threads.run(end_process, process_id, cause)
        return not await self._threads.read(holds_tasks, process_id)

    async def _record_stuck_attempts(self, process_id: int, stuck: Sequence[StuckAttempt], cause: str) -> None:
        """Write the outcomes of attempts that ended with their process.

        Of one that ended before, it is refused. One whose row another session has locked is written with the report's
        next turn.
        """
        by_claim = {ClaimId(one.task_id, one.lease): one for one in stuck}
        outcomes = {held: one.outcome(cause) for held, one in by_claim.items()}
        if not outcomes:
            return
        written = await self._threads.run(record_outcomes, process_id, outcomes)
        for held, one in by_claim.items():
            if held not in written.refused | written.locked:
                retry_in = None if one.is_last else one.retry_in
                self._events.emit(
                    AttemptEnded(
                        task_id=one.task_id,
                        queue=one.queue,
                        name=one.name,
                        seconds=one.seconds,
                        outcome=one.label,
                        error=one.error,
                        retry_in=retry_in,
                    )
                )


def _exited_cleanly(cause: Mapping[str, Any]) -> bool:
    """Whether a process has ended by its own will, in good order."""
    return bool(cause["kind"] == "exit" and cause["status"] == exit_codes.OK)
