"""Alerts: which facts are some, how many of them a hook gets, and the four ways out, to real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from peerd.agent.alerts import delivery as module
from peerd.agent.alerts.delivery import ROOM, TRIES, Delivery
from peerd.agent.alerts.dispatcher import Desk
from peerd.agent.alerts.factory import deliveries, hook_of
from peerd.agent.alerts.hooks import Command, HookFailed, LogHook, Webhook
from peerd.agent.components import Components
from peerd.config.reading.models import read
from peerd.config.settings import AlertSettings
from peerd.domain.alert import Alert, AlertKind, Rate, RateLimit
from peerd.runtime.observability.alert_detection import AlertReader
from peerd.runtime.observability.events import (
    AlertDelayed,
    AlertRaised,
    AlertsDropped,
    AttemptEnded,
    Events,
    Fact,
    TasksTakenBack,
)
from peerd.testing import eventually_async
from tests.support.fake_servers import mail_server, web_server


def alert(kind: str = "dead-tasks", text: str = "task 17 is dead") -> Alert:
    return Alert(alert=kind, text=text, node="a", at=datetime(2026, 1, 1, tzinfo=UTC), slot="video-1", pid=17)


class Remembering:
    """A hook that remembers, after it has failed so many times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.taken: list[Alert] = []

    async def send(self, alert: Alert) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionRefusedError("nobody listens")
        self.taken.append(alert)


# ---------------------------------------------------------------- which facts


def test_tasks_that_die_together_are_one_alert_and_a_count() -> None:
    sent: list[tuple[str, str, dict[str, Any]]] = []
    clock = iter([0.0, 1.0, 2.0, 20.0])
    read = AlertReader(lambda alert, text, **data: sent.append((alert, text, data)), lambda: next(clock))
    for number in range(1, 5):
        read(AttemptEnded(task_id=number, queue="video", name="cut", outcome="dead", seconds=1.0, error="no"))
    assert [(kind, text) for kind, text, _ in sent] == [
        ("dead-tasks", "task 1 (video/cut) is dead: no"),
        ("dead-tasks", "task 4 (video/cut) is dead: no; and 2 more alike"),
    ]
    assert sent[0][2] == {"tasks": [1], "queue": "video", "handler": "cut"}


@pytest.mark.parametrize(
    "fact",
    [
        AttemptEnded(task_id=1, queue="q", name="", outcome="done", seconds=1.0),
        AttemptEnded(task_id=1, queue="q", name="", outcome="failed", seconds=1.0, error="x", retry_in=5.0),
        AttemptEnded(task_id=1, queue="q", name="", outcome="canceled", seconds=1.0),
        TasksTakenBack(cause="video-1 killed by SIGKILL", task_ids=(1, 2)),
    ],
)
def test_what_is_no_persons_concern_is_no_alert(fact: Fact) -> None:
    sent: list[str] = []
    AlertReader(lambda alert, text, **data: sent.append(text))(fact)
    assert sent == []


def test_the_last_ones_of_a_burst_are_told_when_the_time_is_over() -> None:
    sent: list[str] = []
    later: list[tuple[float, Callable[[], object]]] = []
    now = [0.0]
    read = AlertReader(lambda alert, text, **data: sent.append(text), lambda: now[0], lambda *call: later.append(call))
    for number in range(1, 8):
        now[0] = number - 1.0
        read(AttemptEnded(task_id=number, queue="video", name="", outcome="dead", seconds=1.0, error="no"))
    [(delay, tell)] = later
    assert delay == 9.0
    now[0] += delay
    tell()
    assert sent == ["task 1 (video) is dead: no", "task 7 (video) is dead: no; and 5 more alike"]
    tell()
    assert len(sent) == 2


# ---------------------------------------------------------------- how many


async def test_a_hook_gets_the_latest_of_what_was_held_back_when_its_time_is_over() -> None:
    hook = Remembering()
    delivery, cancel = await delivered(hook, [], rate="1 per 1s")
    for number in range(1, 8):
        delivery.offer(alert(text=f"task {number} is dead"))
    await eventually_async(lambda: len(hook.taken) == 2)
    assert [(one.text, one.suppressed) for one in hook.taken] == [("task 1 is dead", 0), ("task 7 is dead", 5)]
    delivery.offer(alert(text="task 8 is dead"))
    delivery.offer(alert(text="task 9 is dead"))
    delivery.offer_what_is_held()  # as a stop does, which does not wait
    await eventually_async(lambda: len(hook.taken) == 3)
    assert (hook.taken[-1].text, hook.taken[-1].suppressed) == ("task 9 is dead", 1)
    cancel()


@pytest.mark.parametrize("text", ["", "1", "0 per 5m", "1 per", "1 per 0s", "often", "-1 per 5m", 5, None])
def test_what_is_no_rate_is_refused(text: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the settings word it
        Rate.parse(text)


def test_no_span_of_time_sees_more_than_its_rate() -> None:
    limit = RateLimit(Rate(2, 10.0))
    assert [limit.admit("a", now) for now in (0.0, 9.0, 9.5, 10.0, 11.0, 19.0)] == [0, 0, None, 1, None, 1]


async def delivered(
    hook: Remembering, facts: list[Fact], *, kinds: frozenset[str] = frozenset(AlertKind), rate: str = "1 per 5m"
) -> tuple[Delivery, Callable[[], Any]]:
    now = asyncio.get_running_loop().time
    delivery = Delivery("hook", hook, kinds, RateLimit(Rate.parse(rate)), Events(facts.append), now)
    task = asyncio.create_task(delivery.run())
    return delivery, task.cancel


async def test_a_hook_gets_the_kinds_that_it_wants_each_at_its_rate_and_hears_how_many_were_held_back() -> None:
    hook, now = Remembering(), [0.0]
    limit = RateLimit(Rate(1, 60.0))
    delivery = Delivery("hook", hook, {"dead-tasks", "crash-loop"}, limit, Events(), lambda: now[0])
    task = asyncio.create_task(delivery.run())
    for kind in ("dead-tasks", "dead-tasks", "hung", "dead-tasks", "crash-loop", "test"):
        delivery.offer(alert(kind))
    now[0] = 60.0
    delivery.offer(alert("dead-tasks", "once more"))
    await delivery.idle.wait()
    assert [(one.alert, one.suppressed) for one in hook.taken] == [
        ("dead-tasks", 0),
        ("crash-loop", 0),
        ("test", 0),
        ("dead-tasks", 2),
    ]
    assert hook.taken[-1].sentence == "once more (and 2 more of this kind since the last that was sent)"
    task.cancel()


async def test_a_hook_that_fails_is_tried_again_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    facts: list[Fact] = []
    hook = Remembering(failures=2 + TRIES)
    delivery, end = await delivered(hook, facts, rate="100 per 1s")
    hook.failures = 2
    delivery.offer(alert())
    await delivery.idle.wait()
    assert len(hook.taken) == 1
    assert [fact.again_in is None for fact in facts if isinstance(fact, AlertDelayed)] == [False, False]
    hook.failures = TRIES
    delivery.offer(alert(text="is lost"))
    delivery.offer(alert(text="comes through"))
    await delivery.idle.wait()
    assert [one.text for one in hook.taken[1:]] == ["comes through"]
    assert [fact.again_in is None for fact in facts if isinstance(fact, AlertDelayed)][2:] == [False] * 7 + [True]
    end()


async def test_alerts_that_wait_for_a_dead_hook_have_a_bound() -> None:
    facts: list[Fact] = []
    delivery, end = await delivered(Remembering(failures=10**9), facts, rate="100000 per 1s")
    for number in range(ROOM + 5):
        delivery.offer(alert(text=str(number)))
    assert facts == [AlertsDropped(hook="hook", count=1)] * 5
    end()


# ---------------------------------------------------------------- the ways out


async def test_a_webhook_is_sent_json_whose_text_chat_programs_show(tmp_path: Path) -> None:
    async with web_server() as web:
        settings = AlertSettings(webhook=web.url)
        await hook_of(settings, tmp_path, Events()).send(alert())
        assert web.bodies == [
            {
                "alert": "dead-tasks",
                "text": "task 17 is dead",
                "node": "a",
                "at": "2026-01-01T00:00:00Z",
                "slot": "video-1",
                "pid": 17,
            }
        ]
        assert "secret" not in repr(settings)


async def test_a_webhook_that_answers_with_an_error_has_not_taken_it() -> None:
    async with web_server(503) as web:
        with pytest.raises(HookFailed, match="the server answered 503") as failed:
            await Webhook(web.url).send(alert())
        assert "secret" not in str(failed.value)


async def test_a_mail_goes_to_all_with_the_alert_in_its_subject(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("sesame\n")
    async with mail_server("sesame") as server:
        mail = {
            "server": server.address,
            "sender": "peerd@studio.example",
            "to": ["ops@studio.example", "boss@studio.example"],
            "user": "peerd",
            "password_file": str(tmp_path / "password"),
        }
        hook = hook_of(read(AlertSettings, {"mail": mail}), tmp_path, Events())
        await hook.send(alert(text="task 17 is dead:\nno such file"))
        assert server.recipients == ["ops@studio.example", "boss@studio.example"]
        assert "Subject: [peerd a] dead-tasks: task 17 is dead: no such file" in server.mails[0]
        assert "process: video-1 (17)" in server.mails[0]
        (tmp_path / "password").write_text("wrong")
        with pytest.raises(OSError, match="wrong password"):
            await hook.send(alert())


async def test_a_command_reads_the_alert_and_its_failure_is_told_in_its_own_words(tmp_path: Path) -> None:
    await Command(["sh", "-c", "cat > got; echo $PEERD_ALERT >> got"], tmp_path).send(alert())
    line, _, kind = (tmp_path / "got").read_text().rpartition("}")
    assert (json.loads(line + "}")["text"], kind) == ("task 17 is dead", "dead-tasks\n")
    with pytest.raises(HookFailed, match="sh ended with status 3: no pager here"):
        await Command(["sh", "-c", "echo no pager here >&2; exit 3"], tmp_path).send(alert())
    with pytest.raises(HookFailed, match="status 127: there is no program"):
        await Command(["no-such-pager"], tmp_path).send(alert())


async def test_the_log_is_a_hook_too() -> None:
    facts: list[Fact] = []
    await LogHook(Events(facts.append)).send(alert())
    assert facts == [AlertRaised(alert="dead-tasks", text="task 17 is dead", slot="video-1")]


# ---------------------------------------------------------------- the desk


class Node:
    """What the desk wants to know of its link."""

    node = "a"


async def test_the_desk_gives_an_alert_of_the_master_to_each_hook_and_lets_the_last_one_out(tmp_path: Path) -> None:
    facts: list[Fact] = []
    async with web_server(500, 204) as web:
        hooks = {
            "chat": AlertSettings(webhook=web.url),
            "page": AlertSettings(log=True, on=(AlertKind.HUNG,)),
            "log": AlertSettings(log=True),
            "old": AlertSettings(log=True, enabled=False),
        }
        components = Components(Events())
        desk = Desk(lambda: deliveries(hooks, tmp_path, Events(facts.append)))
        await desk.start(Node(), components)  # type: ignore[arg-type]
        assert components.names == ["alerts chat", "alerts page", "alerts log"]
        desk.receive({"type": "alert", "alert": "crash-loop", "text": "video-1 keeps failing", "slot": "video-1"})
        desk.receive({"type": "ready"})
        await eventually_async(lambda: len(web.bodies) == 1)
        await desk.stop(0.0)
        assert [body["text"] for body in web.bodies] == ["video-1 keeps failing"] * 2
        assert [fact for fact in facts if isinstance(fact, AlertRaised)] == [
            AlertRaised(alert="crash-loop", text="video-1 keeps failing", slot="video-1")
        ]
        assert components.names == []
