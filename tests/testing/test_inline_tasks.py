from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from peerd import Context, JobFailed, Message, Queue, Snooze, Status, Task, TaskWorker
from peerd.runtime.observability.events import EventBus, MessageNotDelivered
from peerd.runtime.process.process_context import NotAvailableInProcess, ProcessContext
from peerd.testing import AttemptEnded, ClaimLost, InlineNode, run_inline
from tests.support.servers import DATABASES, DatabaseFactory
from tests.testing.mail import invite, mail, ran, send, statuses
from tests.unit.work import process_handlers
from tests.unit.work.test_rung_polling import FakeLink


def test_a_task_is_run_when_the_test_decides_and_not_before() -> None:
    with InlineNode(mail) as node:
        job = node.client.enqueue(send.with_args("me"))
        assert (job.status, ran) == (Status.PENDING, [])
        task = node.run_one()
        assert task is not None
        assert (task.id, task.status, task.lease, task.attempts, task.progress) == (job.id, Status.DONE, 1, 0, 1.0)
        assert job.result(timeout=0) == "sent to me by inline"
        assert node.run_one() is None


@pytest.mark.every_database
@pytest.mark.parametrize("kind", DATABASES)
def test_a_failure_is_retried_when_its_time_has_come(database_factory: DatabaseFactory, kind: str) -> None:
    with InlineNode(mail, database=database_factory(kind), delay_ratio="0s" if kind == "postgresql" else "5m") as node:
        job = node.client.enqueue(send.with_args("unknown"))
        if kind != "postgresql":
            for attempt in range(1, 4):
                assert statuses(node.run_all()) == ["failure"]
                assert job.refresh().task is not None
                node.clock.advance(attempt * 300 - 0.01)
                assert node.run_all() == []
                node.clock.advance(0.01)
        assert statuses(node.run_all())[-1] == "dead"
        assert [attempt.number for attempt in node.client.tasks.attempts(job.id)] == [1, 2, 3, 4]
        with pytest.raises(JobFailed, match="no such address"):
            job.result(timeout=0)
    assert ran == ["unknown"] * 4


def test_tasks_run_in_the_order_of_the_claim_and_of_no_paused_queue_or_drained_node() -> None:
    several: dict[str, dict[str, Any]] = {
        "late": {"start_in": "1m"}, "low": {"priority": 1}, "first": {"unique": "k"}, "second": {},
        "high": {"priority": 99}, "pinned": {"node": "inline"},
    }  # fmt: skip
    with InlineNode(mail) as node:
        jobs = {to: node.client.enqueue(send.with_args(to), **options) for to, options in several.items()}
        assert node.client.enqueue(send.with_args(), unique="k").id == jobs["first"].id
        node.client.enqueue(invite.with_args(["a", "b"]), priority=98)
        queues, nodes = node.client.queues, node.client.nodes
        for close, open_ in (
            (partial(queues.pause, "mail", duration="1h"), partial(queues.resume, "mail")),
            (partial(nodes.drain, "inline"), partial(nodes.undrain, "inline")),
        ):
            close()
            assert node.run_all() == []
            open_()
        node.run_all()
        assert node.client.enqueue(send.with_args("again"), unique="k").created
        node.clock.advance("1m")
        node.run_all()
    assert ran == ["high", "invited", "a", "b", "first", "second", "pinned", "low", "again", "late"]


def test_a_handler_in_a_process_of_its_own_is_run_in_one() -> None:
    with InlineNode(process_handlers.apart) as node:
        job = node.client.enqueue(process_handlers.double.with_args(21))
        [task] = node.run_all()
        assert (task.process_id, job.result(timeout=0)) == (1, 42)


async def test_a_cancelled_attempt_is_released_as_by_a_stopping_process() -> None:
    queue = Queue("q")
    began = asyncio.Event()

    @queue.task
    async def stays() -> None:
        began.set()
        await asyncio.sleep(60)

    async with InlineNode(queue) as node:
        job = await node.client.aio.enqueue(stays.with_args())
        running = asyncio.create_task(node.aio.run_all())
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await node.client.aio.refresh(job)).status is Status.PENDING
        assert [one.outcome for one in await node.client.aio.tasks.attempts(job.id)] == ["released"]


def test_a_task_that_is_changed_while_it_runs_keeps_the_change_and_none_runs_for_ever() -> None:
    queue = Queue("q")

    @queue.task
    async def cancels_itself(ctx: Context) -> str:
        await ctx.client.aio.tasks.cancel(ctx.task.id, "not wanted")
        return "too late"

    @queue.task
    async def again() -> Snooze:
        return Snooze(0)

    with InlineNode(queue) as node:
        node.client.enqueue(cancels_itself.with_args())
        [task] = node.run_all()
        assert (task.status, task.error, task.result) == (Status.CANCELED, "not wanted", None)
        assert node.events.of(ClaimLost, task_id=task.id)
        assert node.events.of(AttemptEnded) == []
        node.client.enqueue(again.with_args())
        with pytest.raises(RuntimeError, match="5 attempts were run, and more may be due: the last was task 2"):
            node.run_all(limit=5)


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


async def test_what_a_process_does_not_have_is_named_in_the_error() -> None:
    ran = await run_inline(sends_to_none.with_args())
    assert "work in a worker's own process only" in (ran.error or "")
    listener = Listener()
    with pytest.raises(NotAvailableInProcess, match="from setup"):
        listener.process  # noqa: B018 - the attribute access raises
    async with InlineNode(listener):
        with pytest.raises(NotAvailableInProcess, match="only in the processes of a running node"):
            listener.process.shared("x")
    with pytest.raises(NotAvailableInProcess, match="only in processes that have a database"):
        ProcessContext(FakeLink(), EventBus()).client  # noqa: B018 - the attribute access raises
