from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from peerd import Context, JobFailed, Queue, Snooze, Status
from peerd.domain.errors import DatabaseUnavailable
from peerd.testing import AttemptEnded, ClaimLost, InlineNode
from tests.support.servers import DatabaseFactory
from tests.testing.mail import ends_with, invite, mail, ran, send, statuses, wait
from tests.unit.work import process_handlers


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
@pytest.mark.parametrize("kind", ["sqlite", "mariadb", "postgresql"])
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


def test_every_outcome_is_written_as_a_worker_writes_it() -> None:
    wanted = {
        "retry": ("failure", "failure"), "snooze": ("scheduled", "snoozed"), "cancel": ("canceled", "canceled"),
        "dead": ("dead", "dead"), "timeout": ("failure", "timeout"), "arguments": ("dead", "dead"),
    }  # fmt: skip
    with InlineNode(mail) as node:
        jobs = {how: node.client.enqueue(ends_with.with_args(how)) for how in list(wanted)[:4]}
        jobs["timeout"] = node.client.enqueue(wait.with_args())
        jobs["arguments"] = node.client.enqueue("mail", name="ends_with", body={"wrong": 1})
        node.run_all()
        rows = {how: node.client.tasks.get(job.id) for how, job in jobs.items()}
        labels = {how: [one.outcome for one in node.client.tasks.attempts(job.id)] for how, job in jobs.items()}
        assert {how: (row.status.value, *labels[how]) for how, row in rows.items()} == wanted
        assert rows["retry"].start_at == node.clock.now + timedelta(minutes=10)
        assert rows["snooze"].start_at == node.clock.now + timedelta(hours=1)


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


def test_lost_replies_run_nothing_twice_and_a_refused_result_fails_the_attempt() -> None:
    with InlineNode(mail, delay_ratio=60.0) as node:
        for operation in ("claim", "complete", "record_outcomes"):
            jobs = [node.client.enqueue(send.with_args(to)) for to in ("a", "unknown")]
            fault = node.faults.lose_reply(operation)
            if operation == "claim":
                with pytest.raises(DatabaseUnavailable):
                    node.run_all()
            node.run_all()
            assert fault.hits == 1, operation
            assert [job.refresh().status for job in jobs] == [Status.DONE, Status.FAILURE], operation
            assert [node.client.tasks.get(job.id).lease for job in jobs] == [1, 1], operation
        assert ran == ["a", "unknown"] * 3
        node.faults.fail("complete", error=ValueError("too strange"))
        node.client.enqueue(send.with_args())
        [task] = node.run_all()
        assert task.status is Status.FAILURE
        assert task.error == "its outcome could not be written: ValueError: too strange"


def test_keys_take_turns_and_a_rate_holds_by_the_clock() -> None:
    def ran_now() -> list[str]:
        node.run_all()
        found, ran[:] = list(ran), []
        return found

    with InlineNode(mail) as node:
        for to in ("a1", "a2", "b1", "b2"):
            node.client.enqueue(send.with_args(to), limit_key=to[0])
        assert ran_now() == ["a1", "b1", "a2", "b2"]
        node.client.limits.set("mail", each_key=True, rate="1/1m")
        for to in ("a1", "a2"):
            node.client.enqueue(send.with_args(to), limit_key="a")
        assert ran_now() == ["a1"]
        node.clock.advance("59s")
        assert ran_now() == []
        node.clock.advance("1s")
        assert ran_now() == ["a2"]
