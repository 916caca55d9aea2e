from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from peerd.domain import errors
from peerd.runtime import inbox
from peerd.runtime.concurrency import BackgroundTasks
from peerd.runtime.frames import MAX_IN_FLIGHT, MAX_MESSAGE_BYTES, Peer, Target
from peerd.runtime.inbox import Message
from peerd.runtime.messenger import Messenger
from peerd.runtime.observability import events
from peerd.runtime.observability.log_messages import log_message_of
from peerd.testing import eventually_async
from tests.support.rows import rows

AGENT = Peer(7, "agent", "agent", "agent")


class Bench:
    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.events: list[events.Event] = []
        self.background = BackgroundTasks(events.EventBus(self.events.append))
        self.messenger = Messenger(self, self.background, events.EventBus(self.events.append))

    def send(self, message: Mapping[str, object]) -> None:
        self.sent.append(dict(message))

    def receive(self, action: str, data: object = None, *, number: int = 1, request: bool = False) -> None:
        frame = {"type": "message", "action": action, "data": data, "from": AGENT.to_json()}
        assert self.messenger.receive({**frame, "id": number, "request": request})

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [frame for frame in self.sent if frame["type"] == kind]


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_each_way_of_sending_names_its_recipients(bench: Bench) -> None:
    messenger = bench.messenger
    messenger.broadcast("a", 1)
    messenger.send_to_workers("a", kind="video")
    messenger.send_to_agent("a")
    messenger.send_random("a", kind="video")
    messenger.send_to(17, "a", {"b": None})
    roles = [
        {"role": "all"}, {"role": "workers", "kind": "video"}, {"role": "agent"}, {"role": "random", "kind": "video"},
    ]  # fmt: skip
    assert [frame["to"] for frame in bench.sent] == [*roles, {"pid": 17}]
    assert len({frame["id"] for frame in bench.sent}) == 5
    first = {"type": "message", "id": 1, "to": {"role": "all"}, "action": "a", "data": 1, "request": False}
    assert bench.sent[0] == first


async def test_an_undelivered_message_raises_in_an_awaiting_sender_and_is_logged_otherwise(bench: Bench) -> None:
    awaited = asyncio.ensure_future(_await(bench.messenger.send_to(17, "a")))
    bench.messenger.send_to_agent("b")
    await asyncio.sleep(0)
    for number in (1, 2):
        bench.messenger.receive({"type": "delivery", "id": number, "delivered": 0, "error": "no such process"})
    with pytest.raises(errors.Undeliverable, match="'a' for process 17 was not delivered: no such process") as caught:
        await awaited
    assert caught.value.delivered == 0
    (event,) = bench.events
    assert isinstance(event, events.MessageNotDelivered)
    assert "'b' for the agent was not delivered: no such process" in event.error
    delivery = bench.messenger.broadcast("c")
    assert not delivery.future.done()
    bench.messenger.receive({"type": "delivery", "id": 3, "delivered": 3, "error": None})
    assert (await delivery, await asyncio.to_thread(delivery.wait, 1.0)) == (3, 3)


async def _await(delivery: Any) -> Any:
    return await delivery


@rows("action, data, target, problem", [
    ("a", {1, 2}, "agent", "cannot be written as JSON"), ("", None, "agent", "a text of 1 to 200 characters"),
    (None, None, "agent", "a text of 1 to 200 characters"), ("\udcff", None, "agent", "cannot be written as JSON"),
    ("a", None, "boss", "a message is for all, workers, agent, random, or a process id; .*boss.* is none"),
    ("a", None, 1.5, "is none of these"), ("a", None, None, "is none of these"),
])  # fmt: skip
async def test_an_invalid_message_is_refused(
    bench: Bench, action: Any, data: object, target: Any, problem: str
) -> None:
    with pytest.raises(errors.InvalidMessage, match=problem):
        bench.messenger.send(target, action, data)
    assert bench.sent == []
    assert bench.messenger._in_flight.close_all() == []
    with pytest.raises(errors.MessageTooLarge, match="put what is large into a file or the database") as caught:
        bench.messenger.broadcast("a", "x" * MAX_MESSAGE_BYTES)
    assert caught.value.size > MAX_MESSAGE_BYTES


async def test_a_sender_of_more_than_is_delivered_is_reported_and_may_continue_when_it_is(bench: Bench) -> None:
    for _ in range(MAX_IN_FLIGHT):
        bench.messenger.send_to_agent("a")
    with pytest.raises(errors.MessengerFull, match="await what the send methods return"):
        bench.messenger.send_to_agent("a")
    bench.messenger.receive({"type": "delivery", "id": 1, "delivered": 1, "error": None})
    bench.messenger.send_to_agent("a")
    assert len(bench.sent) == MAX_IN_FLIGHT + 1
    of_large = Bench()
    for _ in range(16):
        of_large.messenger.send_to_agent("a", "x" * 250_000)
    with pytest.raises(errors.MessengerFull):
        of_large.messenger.send_to_agent("a", "x" * 250_000)


async def test_a_request_returns_its_reply_or_raises_the_error_of_its_failure(bench: Bench) -> None:
    request = asyncio.ensure_future(bench.messenger.request("agent", "a", {"b": 1}, timeout=5.0))
    await asyncio.sleep(0)
    assert (bench.sent[0]["request"], bench.sent[0]["timeout"]) == (True, 5.0)
    for data in ([1, 2], "again"):
        bench.messenger.receive({"type": "reply", "id": 1, "data": data})
    assert await request == [1, 2]
    reasons = {"handler": errors.RequestFailed, "died": errors.NoReply, "undeliverable": errors.Undeliverable}
    for number, (reason, error) in enumerate(reasons.items(), start=2):
        request = asyncio.ensure_future(bench.messenger.request(Target.random("video"), "a"))
        await asyncio.sleep(0)
        bench.messenger.receive({"type": "reply", "id": number, "error": "it is broken", "reason": reason})
        with pytest.raises(error, match=r"'a'.*one worker of video.*it is broken"):
            await request
    assert bench.events == []


async def test_a_request_without_a_reply_ends_at_its_timeout_and_is_removed(bench: Bench) -> None:
    with pytest.raises(errors.NoReply, match=r"no reply to the request 'a' from process 17: its 0\.01 s are over"):
        await bench.messenger.request(17, "a", timeout=0.01)
    bench.messenger.receive({"type": "reply", "id": 1, "data": "late"})
    assert bench.messenger._in_flight.close_all() == []
    for seconds in (0, -1, float("nan"), float("inf"), 100_000):
        with pytest.raises(errors.InvalidMessage, match="its timeout is"):
            await bench.messenger.request("agent", "a", timeout=seconds)
    delivery = bench.messenger.broadcast("a")
    request = asyncio.ensure_future(bench.messenger.request("agent", "b"))
    await asyncio.sleep(0)
    bench.messenger.close()
    for waiting in (_await(delivery), request):
        with pytest.raises(errors.Undeliverable, match="this process stops"):
            await waiting


async def test_handlers_get_their_action_in_order_and_once_means_once(bench: Bench) -> None:
    received: list[tuple[str, Any]] = []

    def always(message: Message) -> None:
        received.append((message.sender.slot, message.data))

    bench.messenger.on("a", always)
    bench.messenger.once("a", lambda message: received.append(("once", message.data)))
    for number in (1, 2):
        bench.receive("a", number)
    bench.receive("b", 3)
    bench.messenger.off("a", always)
    bench.messenger.off("a", always)
    bench.receive("a", 4)
    assert received == [("agent", 1), ("once", 1), ("agent", 2)]


async def test_what_is_no_function_no_coroutine_or_no_message_is_refused(bench: Bench) -> None:
    with pytest.raises(TypeError, match="the handler of messages 'a' must be a function"):
        bench.messenger.on("a", "refresh")  # type: ignore[arg-type]  # a mistake of user code
    with pytest.raises(TypeError, match=r"as in run_in_background\(refresh\(\)\)"):
        bench.background.run(print)  # type: ignore[arg-type]  # a mistake of user code
    assert not bench.messenger.receive({"type": "ready"}), "other frames are left to other readers"
    assert not bench.messenger.receive({"type": ["message"]})


async def test_an_exception_in_a_handler_or_the_background_is_an_event(bench: Bench) -> None:
    received: list[Any] = []

    def broken(message: Message) -> None:
        raise SystemExit(3)

    async def broken_later(message: Message) -> None:
        raise ValueError("no such cache")

    async def background() -> None:
        raise SystemExit(1)

    for handler in (broken, broken_later, lambda message: received.append(message.data)):
        bench.messenger.on("a", handler)
    bench.receive("a", 1)
    await eventually_async(lambda: len(bench.events) == 2)
    bench.background.run(background())
    await eventually_async(lambda: len(bench.events) == 3)
    assert received == [1]
    tracebacks = [log_message_of(event)[2]["exception"] for event in bench.events]
    for name, traceback in zip(("broken", "broken_later", "background"), tracebacks, strict=True):
        assert f"in {name}\n" in traceback, "with the function"
    *failed, in_background = bench.events
    errors_ = [event.error for event in failed if isinstance(event, events.MessageHandlerFailed)]
    assert errors_ == ["SystemExit: 3", "ValueError: no such cache"]
    assert isinstance(in_background, events.BackgroundWorkFailed)
    assert (in_background.name.rpartition(".")[2], in_background.error) == ("background", "SystemExit: 1")


async def test_the_result_of_a_handler_is_the_reply_to_a_request_or_the_reason_why_there_is_none(bench: Bench) -> None:
    async def later(message: Message) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"twice": 2 * message.data}

    async def broken(message: Message) -> None:
        raise ValueError("no such cache")

    bench.messenger.on("plain", lambda message: message.data + 1)
    bench.messenger.on("async", lambda message: None)
    bench.messenger.on("async", later)
    bench.messenger.on("broken", broken)
    bench.messenger.on("unsayable", lambda message: {1, 2})
    bench.messenger.on("large", lambda message: "x" * MAX_MESSAGE_BYTES)
    for number, action in enumerate(("plain", "async", "unknown", "unsayable", "large", "broken")):
        bench.receive(action, 1, number=number, request=True)
    await eventually_async(lambda: len(bench.of_type("reply")) == 6)
    replies = {frame["id"]: frame for frame in bench.of_type("reply")}
    assert replies[0] == {"type": "reply", "to": {"pid": 7}, "id": 0, "data": 2}
    assert replies[1]["data"] == {"twice": 2}
    unknown, unsayable, large, failed = (replies[number]["error"] for number in (2, 3, 4, 5))
    assert unknown == "no handler is registered for 'unknown' there"
    assert "cannot be written as JSON" in unsayable
    assert f"{MAX_MESSAGE_BYTES} are allowed" in large
    assert failed == "ValueError: no such cache"


async def test_few_handlers_run_at_once_and_the_rest_wait_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_CONCURRENT_HANDLERS", 2)
    monkeypatch.setattr(inbox, "MAX_QUEUED_MESSAGES", 3)
    gate, began = asyncio.Event(), list[int]()

    async def slow(message: Message) -> None:
        began.append(message.data)
        await gate.wait()

    bench.messenger.on("a", slow)
    for number in range(6):
        bench.receive("a", number)
    bench.receive("a", 6, number=66, request=True)
    await asyncio.sleep(0)
    assert began == [0, 1]
    assert [type(event) for event in bench.events] == [events.MessageDropped] * 2
    assert bench.of_type("reply")[0]["error"] == "3 messages wait there to be handled"
    gate.set()
    await eventually_async(lambda: bench.messenger.is_idle)
    assert began == [0, 1, 2, 3, 4]
    for _ in range(inbox.ACKNOWLEDGE_AT):
        bench.receive("b")
    await eventually_async(lambda: sum(frame["count"] for frame in bench.of_type("taken")) == inbox.ACKNOWLEDGE_AT + 7)


async def test_the_messenger_keeps_the_list_of_processes_and_notifies_subscribers(bench: Bench) -> None:
    seen: list[int] = []

    def broken() -> None:
        raise ValueError("no")

    bench.messenger.on_change(broken)
    bench.messenger.on_change(lambda: seen.append(len(bench.messenger.workers)))
    video, site = Peer(8, "video-1", "video", "worker", 2), Peer(9, "site-1", "site", "web")
    manager = Peer(10, "manager", "manager", "manager")
    for peers in ([AGENT, manager], [AGENT, video, site], [video]):
        bench.messenger.receive({"type": "processes", "processes": [peer.to_json() for peer in peers]})
    assert seen == [0, 2, 1]
    assert (bench.messenger.workers, bench.messenger.agent) == ((video,), None)
    assert len(bench.events) == 3


async def test_work_in_the_background_is_awaited_when_the_process_stops(bench: Bench) -> None:
    gate, done = asyncio.Event(), list[str]()

    async def refresh() -> None:
        await gate.wait()
        done.append("refreshed")

    bench.background.run(refresh())
    await asyncio.to_thread(bench.background.run, refresh())
    finishing = asyncio.ensure_future(bench.background.finish(grace=30.0))
    await asyncio.sleep(0)
    assert not finishing.done()
    gate.set()
    await finishing
    assert done == ["refreshed", "refreshed"]
    assert bench.events == []


async def test_work_that_does_not_end_within_the_grace_is_cancelled_and_named(bench: Bench) -> None:
    ended: list[str] = []

    async def endless(message: Message | None = None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    bench.background.run(endless())
    bench.messenger.on("wait", endless)
    bench.receive("wait", number=5, request=True)
    first = asyncio.ensure_future(bench.background.finish(grace=30.0))
    await asyncio.sleep(0)
    first.cancel()  # a second stop, with no grace
    await bench.background.finish(grace=0.0)
    await eventually_async(lambda: bench.of_type("reply"))
    assert ended == ["cleaned up"] * 2
    assert bench.of_type("reply")[0]["error"] == "its process stopped before it had ended"
    (event,) = bench.events
    assert isinstance(event, events.BackgroundWorkCancelled)
    assert event.names[0].endswith("endless")
    assert event.names[1] == "the handler of the message 'wait'"
    with pytest.raises(errors.ProcessStopping, match="endless was not started: the process stops"):
        bench.background.run(endless())
    bench.messenger.on("late", lambda message: endless())
    bench.receive("late", number=6, request=True)
    await eventually_async(lambda: len(bench.of_type("reply")) == 2)
    assert "the process stops" in bench.of_type("reply")[1]["error"]
