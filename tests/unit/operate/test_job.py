from __future__ import annotations

import asyncio
from threading import Event, Thread

import pytest
import sqlalchemy as sa

from peerd.domain.errors import InvalidTask, TaskNotFound
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Canceled, Done, Failed
from peerd.domain.task import Call
from peerd.operate.client import Client
from peerd.operate.job import JobCanceled, JobExpired, JobFailed, JobTimeout
from peerd.store.schema.tables import tasks
from tests.unit.operate.claiming_process import ClaimingProcess

pytestmark = pytest.mark.one_database


def test_a_result_is_what_the_handler_returned_and_is_waited_for(client: Client, holder: ClaimingProcess) -> None:
    job = client.enqueue("video", name="transcode")
    holder.run(Done('{"height":720}'))
    assert job.result(timeout=5) == {"height": 720}
    assert job.status is Status.DONE
    later = client.enqueue("video")
    task = holder.claim()
    answers: list[object] = []
    waiting = Thread(target=lambda: answers.append(later.result(timeout=10)))
    waiting.start()
    holder.end(task, Done("[1]"))
    waiting.join(10)
    assert answers == [[1]]


def test_what_did_not_end_well_or_in_time_raises_how_it_ended(client: Client, holder: ClaimingProcess) -> None:
    dead, canceled = client.enqueue_many(["video"] * 2)
    holder.run(Failed(error="OSError: the disk is full"))
    with pytest.raises(JobFailed, match="the disk is full") as failed:
        dead.result(timeout=5)
    assert failed.value.task.status is Status.DEAD
    holder.run(Canceled("not wanted"))
    with pytest.raises(JobCanceled, match="not wanted"):
        canceled.result()
    deleted = client.enqueue("video")
    client.tasks.delete(deleted.id)
    for call in (deleted.refresh, deleted.result, lambda: deleted.status):
        with pytest.raises(JobExpired, match="gone"):
            call()
    job = client.enqueue("video")
    with pytest.raises(TimeoutError, match="still pending after 50ms"):
        job.result(timeout="50ms")
    assert job.refresh().status is Status.PENDING
    holder.run(Failed(error="again", retry_in=60.0))
    assert job.status is Status.PENDING, "as it was read last"
    with pytest.raises(JobTimeout, match="still failure"):
        job.result(timeout=0.05)


CALL = Call("video", "transcode", '{"source":"a.mp4"}')


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


async def test_what_reads_does_not_wait_for_writes_that_wait_for_a_lock(client: Client) -> None:
    job = await client.aio.enqueue("video")
    is_locked, is_over = Event(), Event()

    def hold(connection: sa.Connection) -> None:
        connection.execute(sa.update(tasks).values(priority=1))
        is_locked.set()
        is_over.wait(10)

    holder = asyncio.ensure_future(asyncio.to_thread(client.database.run, hold))
    await asyncio.to_thread(is_locked.wait, 10)
    waiting = [asyncio.ensure_future(client.aio.tasks.change(job.id, priority=one)) for one in range(10)]
    task = await asyncio.wait_for(client.aio.tasks.get(job.id), 5)
    assert (task.priority, [one.done() for one in waiting]) == (10, [False] * 10)
    is_over.set()
    await asyncio.gather(holder, *waiting)


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
