"""The agent writes the alerts of its node into the table, and those that came while the database was away later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from peerd import Client
from peerd.agent import alert_recorder as module
from peerd.agent.alert_recorder import AlertRecorder, ReportBuffer
from peerd.agent.components import ComponentSupervisor
from peerd.domain.alert import CONDITIONS, MAX_GATHERED, OF_STORAGE, Alert, AlertReport, reports_of
from peerd.manager.samplers import QUIET_EVERY, REPEAT_EVERY
from peerd.manager.service import PINNED_REPORT_INTERVAL
from peerd.runtime.observability.alert_detection import AlertEventListener
from peerd.runtime.observability.events import (
    AlertNotRecorded,
    AlertReportsDropped,
    EventBus,
    QueueBacklogEnded,
    QueueBacklogFound,
)
from peerd.store.alerts import AlertRecord
from peerd.testing import eventually_async
from tests.work.harness import RunnerHarness

AWAY = {"type": "alert", "alert": "database-away", "text": "the database has not answered for 15s: no route"}
BACK = {"type": "alert", "alert": "recovered", "text": "the database answers again", "data": {"seconds": 60}}
LATE = {"type": "alert", "alert": "backlog", "text": "tasks of video wait", "data": {"queue": "video"}}


@asynccontextmanager
async def recording(harness: RunnerHarness) -> AsyncIterator[AlertRecorder]:
    components = ComponentSupervisor(EventBus())
    recorder = AlertRecorder()
    shell = Mock(link=Mock(node="one"), database=harness.database, events=EventBus(harness.events))
    await recorder.start(shell, components)
    try:
        yield recorder
    finally:
        harness.database.heal()
        await recorder.stop(0.0)
        assert components.names == []


def rows(harness: RunnerHarness) -> list[AlertRecord]:
    return Client(harness.database).alerts.list().items


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.01)


async def test_alerts_are_written_and_a_recovery_ends_the_row_of_its_condition(harness: RunnerHarness) -> None:
    async with recording(harness) as recorder:
        recorder.receive({"type": "ready"})
        recorder.receive(LATE)
        recorder.receive({"type": "alert", "alert": "crash-loop", "text": "video-1 fails", "slot": "video-1", "pid": 7})
        await eventually_async(lambda: len(rows(harness)) == 2)
        crash, late = rows(harness)
        found = (crash.kind, crash.subject, crash.slot, crash.pid, crash.state)
        assert found == ("crash-loop", "video-1", "video-1", 7, "recent")
        assert (late.subject, late.node, late.state, late.data) == ("video", "one", "on", {"queue": "video"})
        recorder.receive({"type": "alert", "alert": "recovered", "text": "over", "data": {"queue": "video"}})
        await eventually_async(lambda: rows(harness)[1].state == "ended")


async def test_an_outage_is_written_when_it_is_over_with_its_times(harness: RunnerHarness) -> None:
    async with recording(harness) as recorder:
        with harness.database.away():
            recorder.receive(AWAY)
            recorder.receive(LATE)
            began = datetime.now(UTC)
            await eventually_async(lambda: harness.database.calls["record_alert"] >= 2)
            recorder.receive(LATE)
        recorder.receive(BACK)
        await eventually_async(lambda: [row.state for row in rows(harness)] == ["on", "ended"])
        late, away = rows(harness)
        assert (away.kind, away.subject, late.times) == ("database-away", "one", 2)
        assert away.ended_at is not None
        assert away.raised_at < away.ended_at
        assert abs((away.raised_at - began).total_seconds()) < 5
        assert began < away.ended_at


async def test_while_the_database_is_away_a_bounded_number_is_kept(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    async with recording(harness) as recorder:
        with harness.database.away():
            for number in range(5):
                recorder.receive({**LATE, "data": {"queue": f"q{number}"}})
        await eventually_async(lambda: len(harness.of(AlertReportsDropped)) == 1)
        assert [row.subject for row in rows(harness)] == ["q4", "q3", "q2"]
        assert harness.of(AlertReportsDropped)[0].count == 2


async def test_an_alert_that_cannot_be_written_is_said_and_holds_no_other_up(harness: RunnerHarness) -> None:
    async with recording(harness) as recorder:
        harness.database.fail("record_alert", error=ValueError("no such thing"))
        recorder.receive(LATE)
        recorder.receive(AWAY)
        await eventually_async(lambda: [row.kind for row in rows(harness)] == ["database-away"])
        assert [(one.alert, one.error) for one in harness.of(AlertNotRecorded)] == [
            ("backlog", "ValueError: no such thing")
        ]


async def test_the_last_alert_of_a_node_is_written_at_its_stop(harness: RunnerHarness) -> None:
    async with recording(harness) as recorder:
        recorder.receive({"type": "alert", "alert": "master-died", "text": "the master has died"})
    assert [(row.kind, row.subject) for row in rows(harness)] == [("master-died", "one")]


async def test_a_stop_does_not_wait_for_a_database_that_is_away(harness: RunnerHarness) -> None:
    async with recording(harness) as recorder:
        with harness.database.away():
            recorder.receive(LATE)
            async with asyncio.timeout(10):
                await recorder.stop(0.0)
    assert len(rows(harness)) <= 1


def test_of_queues_that_are_late_together_each_is_reported_and_of_each_its_end() -> None:
    sent: list[Alert] = []

    def send(kind: str, text: str, **data: Any) -> None:
        sent.append(Alert(alert=kind, text=text, node="one", at=datetime.now(UTC), data=data))

    listener = AlertEventListener(send, lambda: 1.0)
    for number in (*range(MAX_GATHERED + 50), 1, 1, 1):
        listener(QueueBacklogFound(queue=f"q{number}", oldest=9_000.0, is_served=True))
    for number in range(3):
        listener(QueueBacklogEnded(queue=f"q{number}", seconds=9.0))
    listener.flush_suppressed()
    first, ended, others, *more = sent
    assert others.text.endswith(f"; and {MAX_GATHERED + 51} more alike")
    found = {report.subject: report for alert in (first, others) for report in reports_of(alert)}
    assert {f"q{number}" for number in range(MAX_GATHERED + 1)} <= set(found)
    assert (found["q1"].times, found["q1"].text) == (4, "tasks of q1 wait: the oldest has been due for 2h30m")
    ends = [report for alert in (ended, *more) for report in reports_of(alert)]
    assert {report.subject for report in ends if report.ended} == {"q0", "q1", "q2"}


def test_what_ends_and_begins_again_while_it_waits_goes_on() -> None:
    buffer = ReportBuffer(10)
    begun = AlertReport(kind="backlog", subject="q", node="a")
    ended = AlertReport(kind="backlog", subject="q", node="a", ended=True)
    for second, report in enumerate((begun, ended, begun)):
        buffer.add(report, float(second))
    [one] = buffer.take_all()
    assert (one.report.ended, one.report.times, one.first_at, one.latest_at) == (False, 2, 0.0, 2.0)
    buffer.add(ended, 3.0)
    [end] = buffer.take_all()
    buffer.add(begun, 4.0)
    buffer.put_back(end)
    assert [waiting.report.ended for waiting in buffer.take_all()] == [False]
    buffer.add(ended, 5.0)
    buffer.put_back(one)
    assert [waiting.report.ended for waiting in buffer.take_all()] == [False, True]


def test_a_condition_counts_as_on_for_longer_than_what_is_between_two_reports() -> None:
    assert CONDITIONS["backlog"] == CONDITIONS["unserved-queue"] >= REPEAT_EVERY + 2 * QUIET_EVERY
    assert {CONDITIONS[kind] for kind in OF_STORAGE} == {CONDITIONS["backlog"]}
    assert CONDITIONS["pinned-tasks"] >= 2 * PINNED_REPORT_INTERVAL
