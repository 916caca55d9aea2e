from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from peerd.agent import alert_delivery as module
from peerd.agent.alert_delivery import (
    MAX_QUEUED,
    MAX_TRIES,
    AlertDelivery,
    AlertDispatcher,
    AlertHookFailed,
    make_hook,
    post_alert,
    run_alert_command,
)
from peerd.agent.components import ComponentSupervisor
from peerd.config.parsing import parse_section
from peerd.config.settings import AlertSettings
from peerd.domain.alert import Alert, AlertKind, AlertRate, AlertRateLimiter
from peerd.runtime.observability import events as e
from peerd.runtime.observability.alert_detection import AlertEventListener
from peerd.runtime.observability.log_messages import alert_raised, alerts_dropped
from peerd.testing import eventually_async
from tests.support.fake_servers import fake_mail_server, fake_web_server
from tests.support.rows import rows


def alert(kind: str = "dead-tasks", text: str = "task 17 is dead") -> Alert:
    return Alert(alert=kind, text=text, node="a", at=datetime(2026, 1, 1, tzinfo=UTC), slot="video-1", pid=17)


RUN: dict[str, Any] = {"schedule": "refresh", "run_id": 7, "seconds": 1.0}
ALERTS: list[tuple[e.Event, tuple[str, str] | None]] = [
    (e.AttemptEnded(task_id=1, queue="q", name="", seconds=1.0, outcome="failed", error="x", retry_in=5.0), None),
    (e.ScheduleRunEnded(**RUN, status="skipped"), None),
    (e.ScheduleRunEnded(**RUN, status="failed", error="KeyError: 'x'"),
     ("failed-runs", "run 7 of schedule refresh ended as failed: KeyError: 'x'")),
    (e.ScheduleRunEnded(**RUN, status="died"), ("failed-runs", "run 7 of schedule refresh ended as died")),
    (e.ScheduleRunsLost(run_ids=(1, 2)), ("failed-runs", "2 scheduled runs are lost with their node")),
    (e.ScheduleFailed(schedule="x", error="no module"), ("failed-runs", "schedule x does not work: no module")),
    (e.QueueBacklogFound(queue="video", oldest=5400.0, is_served=True),
     ("backlog", "tasks of video wait: the oldest has been due for 1h30m")),
    (e.QueueBacklogFound(queue="viedo", oldest=61.0, is_served=False),
     ("unserved-queue",
      "tasks wait in viedo, which no worker process has ever served; start a node with a worker of it")),
    (e.QueueBacklogEnded(queue="video", seconds=60.0), ("recovered", "tasks of video wait no longer")),
    (e.DatabaseAway(seconds=15.0, reason="refused"),
     ("database-away", "the database has not answered for 15s: refused")),
    (e.DatabaseBack(seconds=61.0), ("recovered", "the database answers again, after 1m1s")),
    (e.StorageConditionFound(condition="disk-full", text="disk 3 is full", disk=3), ("disk-full", "disk 3 is full")),
    (e.StorageConditionEnded(condition="repair-brake", text="all is repaired", seconds=60.0),
     ("recovered", "all is repaired")),
    (e.BadCopiesFound(disk=3, path="/srv/a", files=("0f",), bad=10, found_by="reading"),
     ("bad-copies", "disk 3 (/srv/a): 10 copies are damaged or missing, the latest was found by reading")),
]  # fmt: skip


@rows("event, expected", ALERTS)
def test_what_needs_an_operator_raises_an_alert_that_names_it(event: e.Event, expected: object) -> None:
    sent: list[tuple[str, str]] = []
    AlertEventListener(lambda alert, text, **data: sent.append((alert, text)))(event)
    assert sent == ([] if expected is None else [expected])


def test_tasks_that_die_together_raise_one_alert_and_another_of_the_rest_when_the_time_is_over() -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    later: list[tuple[float, Callable[[], object]]] = []
    now = [0.0]
    read = AlertEventListener(
        lambda alert, text, **data: sent.append((text, data)), lambda: now[0], lambda *call: later.append(call)
    )

    def die(number: int, at: float) -> None:
        now[0] = at
        read(e.AttemptEnded(task_id=number, queue="video", name="cut", outcome="dead", seconds=1.0, error="no"))

    for number in range(1, 8):
        die(number, number - 1.0)
    [(delay, flush)] = later
    assert delay == 9.0
    now[0] += delay
    flush()
    flush()
    texts = ["task 1 (video/cut) is dead: no", "task 7 (video/cut) is dead: no; and 5 more alike"]
    assert [text for text, _ in sent] == texts
    assert sent[0][1] == {"tasks": [1], "queue": "video", "handler": "cut"}
    die(8, 100.0)
    assert sent[2][0] == "task 8 (video/cut) is dead: no"


class RecordingHook:
    def __init__(self) -> None:
        self.failures = 0
        self.sent: list[Alert] = []

    async def send(self, alert: Alert) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionRefusedError("no listener")
        self.sent.append(alert)


def deliver(hook: RecordingHook, rate: AlertRate, events: list[e.Event], **more: Any) -> AlertDelivery:
    given: dict[str, Any] = {"kinds": frozenset(AlertKind), "now": asyncio.get_running_loop().time, **more}
    limiter, bus = AlertRateLimiter(rate), e.EventBus(events.append)
    return AlertDelivery("hook", hook.send, given["kinds"], limiter, bus, given["now"])


def test_no_period_has_more_alerts_than_its_rate() -> None:
    limit = AlertRateLimiter(AlertRate(2, 10.0))
    assert [limit.admit("a", now) for now in (0.0, 9.0, 9.5, 10.0, 11.0, 19.0)] == [0, 0, None, 1, None, 1]
    for text in ("", "1", "0 per 5m", "1 per", "1 per 0s", "-1 per 5m", 5):
        with pytest.raises(ValueError):  # noqa: PT011 - the message is that of the settings
            AlertRate.parse(text)


async def test_a_hook_gets_the_latest_suppressed_alert_when_its_time_is_over() -> None:
    hook = RecordingHook()
    delivery = deliver(hook, AlertRate(1, 1.0), [])
    task = asyncio.create_task(delivery.run())
    for number in range(1, 8):
        delivery.offer(alert(text=f"task {number} is dead"))
    await eventually_async(lambda: len(hook.sent) == 2)
    assert [(one.text, one.suppressed) for one in hook.sent] == [("task 1 is dead", 0), ("task 7 is dead", 5)]
    delivery.offer(alert(text="task 8 is dead"))
    delivery.offer(alert(text="task 9 is dead"))
    delivery.flush_suppressed()  # as a stop does, which does not wait
    await eventually_async(lambda: len(hook.sent) == 3)
    assert (hook.sent[-1].text, hook.sent[-1].suppressed) == ("task 9 is dead", 1)
    task.cancel()


async def test_a_hook_gets_its_kinds_each_at_its_rate_with_the_number_of_suppressed_alerts() -> None:
    hook, now = RecordingHook(), [0.0]
    delivery = deliver(hook, AlertRate(1, 60.0), [], kinds={"dead-tasks", "crash-loop"}, now=lambda: now[0])
    task = asyncio.create_task(delivery.run())
    for kind in ("dead-tasks", "dead-tasks", "hung", "dead-tasks", "crash-loop", "test"):
        delivery.offer(alert(kind))
    now[0] = 60.0
    delivery.offer(alert("dead-tasks", "once more"))
    await delivery.wait_idle()
    found = [(one.alert, one.suppressed) for one in hook.sent]
    assert found == [("dead-tasks", 0), ("crash-loop", 0), ("test", 0), ("dead-tasks", 2)]
    assert hook.sent[-1].sentence == "once more (and 2 more of this kind since the last that was sent)"
    task.cancel()


async def test_a_failing_hook_is_retried_and_then_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    events: list[e.Event] = []
    hook = RecordingHook()
    delivery = deliver(hook, AlertRate(100, 1.0), events)
    task = asyncio.create_task(delivery.run())
    for failures, texts in ((2, ["comes late"]), (MAX_TRIES, ["is lost", "comes through"])):
        hook.failures = failures
        for text in texts:
            delivery.offer(alert(text=text))
        await delivery.wait_idle()
    assert [one.text for one in hook.sent] == ["comes late", "comes through"]
    given_up = [event.again_in is None for event in events if isinstance(event, e.AlertDeliveryFailed)]
    assert given_up == [False] * 2 + [False] * (MAX_TRIES - 1) + [True]
    task.cancel()
    events.clear()
    waiting = deliver(hook, AlertRate(100_000, 1.0), events)
    for number in range(MAX_QUEUED + 5):
        waiting.offer(alert(text=str(number)))
    assert events == [alerts_dropped("hook", 1)] * 5, "few wait for a dead hook"


async def test_a_webhook_is_sent_json_that_chat_programs_show_and_fails_with_the_servers_answer(tmp_path: Path) -> None:
    expected: dict[str, Any] = {"alert": "dead-tasks", "text": "task 17 is dead", "node": "a", "slot": "video-1"}
    async with fake_web_server() as web:
        settings = AlertSettings(webhook=web.url)
        await make_hook(settings, tmp_path, e.EventBus())(alert())
        assert web.bodies == [{**expected, "at": "2026-01-01T00:00:00Z", "pid": 17}]
        assert "secret" not in repr(settings)
    async with fake_web_server(503) as web:
        with pytest.raises(AlertHookFailed, match="the server answered 503") as failed:
            await post_alert(web.url, alert())
        assert "secret" not in str(failed.value)


async def test_a_mail_goes_to_all_and_a_command_reads_the_alert(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame\n")
    async with fake_mail_server("sesame") as server:
        mail = {
            "server": server.address, "sender": "peerd@studio.example", "user": "peerd",
            "to": ["ops@studio.example", "boss@studio.example"], "password_file": str(tmp_path / "password"),
        }  # fmt: skip
        hook = make_hook(parse_section(AlertSettings, {"mail": mail}), tmp_path, e.EventBus())
        await hook(alert(text="task 17 is dead:\nno such file"))
        assert server.recipients == mail["to"]
        assert "Subject: [peerd a] dead-tasks: task 17 is dead: no such file" in server.mails[0]
        assert "process: video-1 (17)" in server.mails[0]
        (tmp_path / "password").write_text("wrong")
        with pytest.raises(OSError, match="wrong password"):
            await hook(alert())
    await run_alert_command(["sh", "-c", "cat > got; echo $PEERD_ALERT >> got"], tmp_path, alert())
    line, _, kind = (tmp_path / "got").read_text().rpartition("}")
    assert (json.loads(line + "}")["text"], kind) == ("task 17 is dead", "dead-tasks\n")
    with pytest.raises(AlertHookFailed, match="sh ended with status 3: no pager here"):
        await run_alert_command(["sh", "-c", "echo no pager here >&2; exit 3"], tmp_path, alert())
    with pytest.raises(AlertHookFailed, match="status 127: there is no program"):
        await run_alert_command(["no-such-pager"], tmp_path, alert())


async def test_the_dispatcher_sends_an_alert_of_the_master_to_each_hook_and_the_last_one_too(tmp_path: Path) -> None:
    events: list[e.Event] = []
    async with fake_web_server(500, 204) as web:
        hooks = {
            "chat": AlertSettings(webhook=web.url), "page": AlertSettings(log=True, on=(AlertKind.HUNG,)),
            "log": AlertSettings(log=True), "old": AlertSettings(log=True, enabled=False),
        }  # fmt: skip
        components = ComponentSupervisor(e.EventBus())
        dispatcher = AlertDispatcher(hooks, tmp_path)
        await dispatcher.start(Mock(link=Mock(node="a"), events=e.EventBus(events.append)), components)
        assert components.names == ["alerts chat", "alerts page", "alerts log"]
        dispatcher.receive({"type": "alert", "alert": "crash-loop", "text": "video-1 keeps failing", "slot": "video-1"})
        dispatcher.receive({"type": "ready"})
        await eventually_async(lambda: len(web.bodies) == 1)
        await dispatcher.stop(0.0)
        assert [body["text"] for body in web.bodies] == ["video-1 keeps failing"] * 2
        assert [event for event in events if isinstance(event, e.LogLine)] == [
            alert_raised("crash-loop", "video-1 keeps failing", "video-1")
        ]
        assert components.names == []
