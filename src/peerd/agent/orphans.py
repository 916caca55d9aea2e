"""Releases the claims of this node's dead processes at once, with the cause of their death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from peerd.domain.outcome import StuckAttempt
from peerd.runtime.observability.events import AttemptEnded, EventBus, ProcessExited
from peerd.runtime.process import exit_codes
from peerd.store.connection.database import DatabaseThreads
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import ClaimId, record_outcomes
from peerd.store.processes import end_process, end_unregistered_process
from peerd.store.rescue import events_of_rescue, holds_tasks, release_tasks_of_process

ExitReport = Mapping[str, Any]

# most often the server is undoing the last write of the dead process
RETRY_LOCKED_AFTER: Final = 0.5
"""Seconds until tasks whose rows were locked are tried again."""


@dataclass(eq=False)
class OrphanReleaser:
    """Processes the master's death reports one after the other, and acknowledges each.

    Args:
        incarnation: of the master.
        send: to the master.
    """

    threads: DatabaseThreads
    incarnation: str
    send: Callable[[Mapping[str, object]], None]
    outages: OutageTracker
    events: EventBus

    def __post_init__(self) -> None:
        self._reports: asyncio.Queue[ExitReport] = asyncio.Queue()

    def receive(self, report: ExitReport) -> None:
        """Queue a report of the master."""
        cause = report["cause"]
        exited_cleanly = cause["kind"] == "exit" and cause["status"] == exit_codes.OK
        self.events.emit(
            ProcessExited(
                slot=report["slot"],
                pid=report["pid"],
                cause=str(cause["text"]),
                expected=bool(report["expected"] or exited_cleanly),
                status=cause.get("status"),
            )
        )
        self._reports.put_nowait(report)

    async def run(self) -> None:
        """Process reports as they come; while the database does not answer, try again."""
        while True:
            await self.outages.retry_while_down(self._process_next)

    async def finish(self) -> None:
        """Process the queued reports, once.

        Raises:
            DatabaseUnavailable: they stay queued; other nodes rescue their tasks.
        """
        while not self._reports.empty():
            await self._process_next()

    async def _process_next(self) -> None:
        """Process a report and acknowledge it; process it again later if another session has locked tasks of it."""
        report = await self._reports.get()
        try:
            is_released = await self._release(report)
        except BaseException:
            self._reports.put_nowait(report)
            raise
        if is_released:
            self.send({"type": "death-acknowledged", "id": report["id"]})
        else:
            asyncio.get_running_loop().call_later(RETRY_LOCKED_AFTER, self._reports.put_nowait, report)

    async def _release(self, report: ExitReport) -> bool:
        """Release the claims of a dead process, and record its end; return whether it holds none any more."""
        cause = str(report["cause"]["text"])
        process_id = (report.get("identity") or {}).get("process_id")
        if process_id is None:  # it died in its boot, before it could claim
            await self.threads.run(end_unregistered_process, self.incarnation, report["slot"], report["pid"], cause)
            return True
        await self._record_stuck_attempts(process_id, report, cause)
        crashed = not report["expected"]
        while released := await self.threads.run(release_tasks_of_process, process_id, cause, crashed=crashed):
            for event in events_of_rescue(released, f"{report['slot']} {cause}"):
                self.events.emit(event)
        await self.threads.run(end_process, process_id, cause)
        return not await self.threads.read(holds_tasks, process_id)

    async def _record_stuck_attempts(self, process_id: int, report: ExitReport, cause: str) -> None:
        """Write the outcomes of attempts that ended with their process.

        That of an attempt that ended before is refused; one whose row is locked is written when the report is
        processed again.
        """
        stuck = [StuckAttempt.from_json(attempt) for attempt in report.get("stuck", ())]
        if not stuck:
            return
        by_claim = {ClaimId(attempt.task_id, attempt.lease): attempt for attempt in stuck}
        outcomes = {claim: attempt.outcome(cause) for claim, attempt in by_claim.items()}
        written = await self.threads.run(record_outcomes, process_id, outcomes)
        for claim, attempt in by_claim.items():
            if claim not in written.refused | written.locked:
                self.events.emit(
                    AttemptEnded(
                        task_id=attempt.task_id,
                        queue=attempt.queue,
                        name=attempt.name,
                        seconds=attempt.seconds,
                        outcome=attempt.label,
                        error=attempt.error,
                        retry_in=None if attempt.is_last else attempt.retry_in,
                        traceback=attempt.traceback or None,
                    )
                )
