"""Writes the master's alerts into their table, whether or not there are hooks.

An alert waits until the database has it, also the alert that the database is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain.alert import Alert, AlertReport, reports_of
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.pacing import Backoff
from peerd.runtime.observability.events import AlertNotRecorded, AlertReportsDropped
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.shell import ProcessShell
from peerd.store.alerts import ReportAge, end_condition, record_alert
from peerd.store.connection.database import DatabaseThreads

COMPONENT: Final = "alert rows"
MAX_WAITING: Final = 500
"""Alerts that wait for the database; beyond it the oldest are dropped."""
PAUSE: Final = 1.0
"""Seconds between two writes: what is reported meanwhile about the same is one row's change."""
FLUSH_WITHIN: Final = 1.0
"""Seconds that a stopping agent gives to the last rows."""


class WaitingReport(msgspec.Struct, frozen=True):
    """A report, and when it came for the first and the latest time, by a monotonic clock in seconds."""

    report: AlertReport
    first_at: float
    latest_at: float


class ReportBuffer:
    """Reports that wait for the database, in the order in which they came; those of the same alert are one.

    Args:
        most: further ones drop the oldest.

    >>> buffer = ReportBuffer(most=100)
    >>> away = AlertReport(kind="database-away", subject="a", node="a")
    >>> for second in (1.0, 2.0):
    ...     buffer.add(away, second)
    >>> [(one.report.times, one.first_at, one.latest_at) for one in buffer.take_all()]
    [(2, 1.0, 2.0)]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str, bool], WaitingReport] = {}
        self.dropped = 0
        """How many were dropped."""

    def add(self, report: AlertReport, now: float) -> None:
        """Add one. A condition that has ended and begins again before either is written counts as one that lasts."""
        kind, subject = report.key
        if not report.ended:
            self._waiting.pop((kind, subject, True), None)
        place = (kind, subject, report.ended)
        earlier = self._waiting.get(place)
        added = WaitingReport(report, now, now)
        self._waiting[place] = added if earlier is None else _merged(earlier, added)
        if len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1

    def take_all(self) -> Iterator[WaitingReport]:
        """Take one after another, the oldest first, until none waits."""
        while self._waiting:
            yield self._waiting.pop(next(iter(self._waiting)))

    def put_back(self, taken: WaitingReport) -> None:
        """Put back one that could not be written, before all others."""
        kind, subject = taken.report.key
        if taken.report.ended and (kind, subject, False) in self._waiting:
            return  # it has begun again
        place = (kind, subject, taken.report.ended)
        later = self._waiting.pop(place, None)
        self._waiting = {place: taken if later is None else _merged(taken, later), **self._waiting}


def _merged(earlier: WaitingReport, later: WaitingReport) -> WaitingReport:
    """What the later one says, with the times of both; of two ends the first one."""
    if earlier.report.ended:
        return earlier
    times = earlier.report.times + later.report.times
    return WaitingReport(msgspec.structs.replace(later.report, times=times), earlier.first_at, later.latest_at)


class AlertRecorder(Subsystem):
    """Writes the alerts of a node into their table."""

    def __init__(self) -> None:
        self._buffer = ReportBuffer(MAX_WAITING)
        self._changed = asyncio.Event()
        self._components: ComponentSupervisor | None = None

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        """Start writing."""
        self._node, self._events = shell.link.node, shell.events
        self._threads = DatabaseThreads(shell.database, threads=1)
        self._now = asyncio.get_running_loop().time
        self._components = components
        components.start(COMPONENT, self._run)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Keep the alert of a message until it is written."""
        alert = alert_of(message, self._node)
        if alert is None:
            return
        for report in reports_of(alert):
            self._buffer.add(report, self._now())
        self._changed.set()

    async def stop(self, grace: float) -> None:
        """Write what waits, if the database answers at once, and end."""
        if self._components is None:
            return
        await self._components.stop([COMPONENT], within=FLUSH_WITHIN)
        with suppress(TimeoutError, DatabaseUnavailable):
            async with asyncio.timeout(FLUSH_WITHIN):
                await self._write_all()
        self._threads.close()

    async def _run(self) -> None:
        pauses = Backoff(first=0.5)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write_all()
                pauses.reset()
            except DatabaseUnavailable:  # the heartbeat reports it
                self._changed.set()
                await asyncio.sleep(pauses.next())
                continue
            self._report_dropped()
            await asyncio.sleep(PAUSE)

    async def _write_all(self) -> None:
        for waiting in self._buffer.take_all():
            try:
                await self._write(waiting)
            except DatabaseUnavailable:
                self._buffer.put_back(waiting)
                raise
            except Exception as error:  # noqa: BLE001 - the others are written all the same
                self._events.emit(AlertNotRecorded(alert=waiting.report.kind, error=describe_exception(error)))

    async def _write(self, waiting: WaitingReport) -> None:
        report, now = waiting.report, self._now()
        if report.ended:
            await self._threads.run(end_condition, report.kind, report.subject, now - waiting.first_at)
        else:
            age = ReportAge(first=now - waiting.first_at, latest=now - waiting.latest_at)
            await self._threads.run(record_alert, report, age)

    def _report_dropped(self) -> None:
        if self._buffer.dropped:
            self._events.emit(AlertReportsDropped(count=self._buffer.dropped))
            self._buffer.dropped = 0


# ---------------------------------------------------------------- messages


def alert_of(message: Mapping[str, Any], node: str) -> Alert | None:
    """The alert of a message of type `alert`; None for other messages.

    >>> alert = alert_of({"type": "alert", "alert": "hung", "text": "video-1 hangs", "slot": "video-1"}, "one")
    >>> alert.node, alert.slot, alert_of({"type": "ready"}, "one")
    ('one', 'video-1', None)
    """
    if message.get("type") != "alert":
        return None
    return Alert(
        alert=str(message.get("alert")),
        text=str(message.get("text")),
        node=node,
        at=datetime.now(UTC),
        slot=message.get("slot"),
        pid=message.get("pid"),
        data=dict(message.get("data") or {}),
    )
