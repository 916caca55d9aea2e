from __future__ import annotations

import asyncio
from typing import Any

import pytest

from peerd import Context, Message, Queue, Task, TaskWorker
from peerd.runtime.observability.events import BackgroundWorkCancelled, MessageNotDelivered
from peerd.runtime.process.process_context import NotAvailableInProcess
from peerd.testing import InlineNode, run_inline

talk = Queue("talk")


class Listener(TaskWorker):
    queues = ("listens",)

    def __init__(self) -> None:
        super().__init__()
        self.received: list[Any] = []

    async def setup(self) -> None:
        self.process.messenger.on("hello", self.receive)

    async def receive(self, message: Message) -> None:
        await asyncio.sleep(0.01)
        self.received.append((message.data, message.sender.slot))
        self.process.messenger.send_to(message.sender.pid, "thanks")

    def handle_task(self, task: Task) -> object:
        """In a thread."""
        return self.process.messenger.send_to_workers("hello", "from a thread").wait(timeout=10.0)


@talk.task
async def greets(ctx: Context) -> list[str]:
    thanks: list[str] = []
    ctx.messenger.on("thanks", lambda message: thanks.append(message.sender.slot))
    await ctx.messenger.send_to_workers("hello", 1, kind="Listener")
    while not thanks:  # noqa: ASYNC110 - it comes by the same event loop
        await asyncio.sleep(0)
    return thanks


@talk.task
async def sends_to_none(ctx: Context) -> None:
    ctx.messenger.send_to_agent("hello")


def test_messages_of_workers_have_been_handled_when_the_task_has_run() -> None:
    listener = Listener()
    with InlineNode(talk, listener) as node:
        job = node.client.enqueue("listens")
        node.run_one()
        assert listener.received == [("from a thread", "Listener-1")]
        assert job.result(timeout=0) == 2
        greeting = node.client.enqueue(greets.with_args())
        node.run_all()
        assert greeting.result(timeout=0) == ["Listener-1"]
        assert listener.received[1:] == [(1, "QueueWorker-1")]
        node.client.enqueue(sends_to_none.with_args())
        node.run_one()
        [event] = node.events.of(MessageNotDelivered)
        assert "this node has no agent" in event.error


def test_endless_work_in_the_background_is_cancelled_when_the_node_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerd.testing.node.process.BACKGROUND_WITHIN", 0.0)
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    @talk.task(name="begins")
    async def begins(ctx: Context) -> None:
        ctx.run_in_background(endless())

    with InlineNode(talk) as node:
        node.client.enqueue(begins.with_args())
        node.run_one()
        assert ended == []
    assert ended == ["cleaned up"]
    assert node.events.of(BackgroundWorkCancelled)


async def test_what_a_process_does_not_have_is_named_in_the_error() -> None:
    ran = await run_inline(sends_to_none.with_args())
    assert "work in a worker's own process only" in (ran.error or "")
    listener = Listener()
    with pytest.raises(NotAvailableInProcess, match="from setup"):
        listener.process  # noqa: B018 - the attribute access raises
    async with InlineNode(listener):
        with pytest.raises(NotAvailableInProcess, match="only in the processes of a running node"):
            listener.process.shared("x")
