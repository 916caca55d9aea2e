from __future__ import annotations

import asyncio
import threading

from peerd.agent.outage_reports import OutageReporter
from peerd.runtime.observability import events as e
from peerd.testing.waiting import eventually_async

Reports = list[e.Event]


def listen(after: float) -> tuple[e.EventBus, Reports]:
    reports: Reports = []
    events = e.EventBus()
    events.listen(lambda event: reports.append(event) if isinstance(event, e.DatabaseAway | e.DatabaseBack) else None)
    events.listen(OutageReporter(events, after))
    return events, reports


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_an_outage_that_lasts_is_reported_once_with_its_end_and_a_short_one_is_not() -> None:
    events, reports = listen(after=60.0)
    events.emit(e.DatabaseOutageStarted(reason="gone"))
    await settle()
    events.emit(e.DatabaseOutageEnded(seconds=3.0))
    await settle()
    assert reports == []
    events, reports = listen(after=0.0)
    for _ in range(2):
        threading.Thread(target=events.emit, args=(e.DatabaseOutageStarted(reason="gone"),)).start()
    await eventually_async(lambda: reports)
    await settle()
    assert reports == [e.DatabaseAway(seconds=0.0, reason="gone")]
    events.emit(e.DatabaseOutageEnded(seconds=40.0))
    await settle()
    assert reports[1:] == [e.DatabaseBack(seconds=40.0)]
    events.emit(e.DatabaseOutageStarted(reason="again"))
    await eventually_async(lambda: len(reports) == 3)
    assert reports[2] == e.DatabaseAway(seconds=0.0, reason="again")
