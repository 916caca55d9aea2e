from __future__ import annotations

import asyncio

import pytest

from peerd.domain.call import Call
from peerd.domain.errors import InvalidTask, TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Done, Failed
from peerd.operate.client import Client
from peerd.operate.job import JobFailed, JobTimeout
from tests.unit.operate.claiming_process import ClaimingProcess

CALL = Call("video", "transcode", '{"source":"a.mp4"}')


@pytest.mark.one_database
async def test_everything_is_awaitable_too(client: Client) -> None:
    job = await client.aio.enqueue(CALL, priority=20)
    more = await client.aio.enqueue_many([CALL, CALL])
    assert [task.id for task in await client.aio.tasks.list()] == [more[1].id, more[0].id, job.id]
    await client.aio.tasks.cancel(job.id)
    assert (await client.aio.refresh(job)).status is Status.CANCELED
    await client.aio.queues.pause("video", "1h")
    [queue] = await client.aio.queues.list()
    assert (queue.paused, queue.counts) == (True, {Status.PENDING: 2, Status.CANCELED: 1})
    assert await client.aio.nodes.list() == []
    with pytest.raises(InvalidTask):
        await client.aio.enqueue("no spaces")
    with pytest.raises(TaskNotFound):
        await client.aio.tasks.get(4711)


@pytest.mark.one_database
async def test_the_event_loop_continues_while_a_result_is_awaited(client: Client, holder: ClaimingProcess) -> None:
    job, dead = [await client.aio.enqueue(CALL) for _ in range(2)]
    with pytest.raises(JobTimeout):
        await client.aio.result(job, timeout=0.01)
    waiting = asyncio.create_task(client.aio.result(job, timeout="10s"))
    await asyncio.sleep(0)
    holder.run(Done('"there"'))
    assert await waiting == "there"
    holder.run(Failed(error="no"))
    with pytest.raises(JobFailed):
        await client.aio.result(dead)
