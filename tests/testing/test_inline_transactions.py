"""The ways of running: eagerly at the enqueue, step by step, and in a test's own event loop."""

from __future__ import annotations

import asyncio

import pytest

from peerd import Queue, Status
from peerd.testing import InlineNode
from tests.testing.mail import invite, mail, ran, send, statuses


def test_eagerly_a_task_has_been_run_when_enqueue_returns_and_none_inside_another() -> None:
    with InlineNode(mail, eager=True) as node:
        job = node.client.enqueue(invite.with_args(["a", "b"]))
        assert (job.status, ran) == (Status.DONE, ["invited", "a", "b"])
        both = node.client.enqueue_many([send.with_args("c"), send.with_args("d")])
        assert [job.status for job in both] == ["done"] * 2
        assert node.client.enqueue(send.with_args("late"), start_in="1h").status is Status.SCHEDULED
        node.clock.advance("1h")
        node.run_all()
    assert ran == ["invited", "a", "b", "c", "d", "late"]
    queue, order = Queue("q"), list[str]()

    @queue.task
    def parent() -> None:
        node.client.enqueue(child.with_args())
        order.append("parent")

    @queue.task
    def child() -> None:
        order.append("child")

    with InlineNode(queue, eager=True) as node:
        node.client.enqueue(parent.with_args())
    assert order == ["parent", "child"]


def test_there_is_no_aio_inside_a_with_statement() -> None:
    with InlineNode(mail) as node, pytest.raises(RuntimeError, match=r"call node\.run_all"):
        _ = node.aio


async def test_in_a_coroutine_everything_runs_in_the_tests_own_loop() -> None:
    queue = Queue("q")
    loops: list[asyncio.AbstractEventLoop] = []

    @queue.task
    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    async with InlineNode(queue) as node:
        job = await node.client.aio.enqueue(note.with_args())
        assert statuses(await node.aio.run_all()) == ["done"]
        assert (await node.aio.run_one(), await node.client.aio.result(job, timeout=0)) == (None, None)
        await node.aio.run_chores()
    async with InlineNode(queue, eager=True) as node:
        assert (await node.client.aio.enqueue(note.with_args())).status is Status.DONE
        [job] = await node.client.aio.enqueue_many([note.with_args()])
        assert job.status is Status.DONE
    assert loops == [asyncio.get_running_loop()] * 3


async def test_the_wrong_way_of_running_shows_which_one_is_right() -> None:
    node = InlineNode(mail)
    with pytest.raises(RuntimeError, match="enter it first"):
        node.run_all()
    async with node:
        with pytest.raises(RuntimeError, match=r"await node\.aio"):
            node.run_all()
    with pytest.raises(RuntimeError, match="async with"):
        await InlineNode(mail).aio.run_all()
