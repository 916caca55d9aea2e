"""From the master's alerts to their table, beside the hooks and whether there are any.

An alert waits until the database has it: the one that reports that the database is away, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from peerd.agent.alerts.messages import alert_of
from peerd.agent.alerts.report_buffer import ReportBuffer, WaitingReport
from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain.alert_record import reports_of
from peerd.domain.backoff import Backoff
from peerd.domain.errors import DatabaseUnavailable
from peerd.runtime.observability.events import AlertNotRecorded, AlertReportsDropped, EventBus
from peerd.runtime.process.link import Link
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.alerts.recording import ReportAge, end_condition, record_alert
from peerd.store.connection.database import Database, DatabaseThreads

COMPONENT: Final = "alert rows"
MAX_WAITING: Final = 500
"""Alerts that wait for the database; beyond it the oldest are dropped."""
PAUSE: Final = 1.0
"""Seconds between two writes: what is reported meanwhile about the same is one row's change."""
FLUSH_WITHIN: Final = 1.0
"""Seconds that a stopping agent gives to the last rows."""


class AlertRecorder(Subsystem):
    """Writes the alerts of a node into their table."""

    def __init__(self, database: Database, events: EventBus) -> None:
        self._database = database
        self._events = events
        self._buffer = ReportBuffer(MAX_WAITING)
        self._changed = asyncio.Event()
        self._components: ComponentSupervisor | None = None

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        """Start writing."""
        self._node = link.node
        self._threads = DatabaseThreads(self._database, threads=1)
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
