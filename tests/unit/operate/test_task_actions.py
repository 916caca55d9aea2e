from __future__ import annotations

import pytest

from peerd.domain.access import Actor, Role
from peerd.domain.errors import InvalidFilter, InvalidTask, NodeNotFound, TaskNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.outcome import Done, Failed
from peerd.operate.client import Client
from tests.unit.operate.claiming_process import ClaimingProcess

pytestmark = pytest.mark.one_database


def test_a_running_task_is_snoozed_and_its_attempt_not_counted(client: Client, holder: ClaimingProcess) -> None:
    job = client.enqueue("video")
    claimed = holder.claim()
    client.tasks.snooze(job.id, "1h")
    task = client.tasks.get(job.id)
    assert (task.status, task.attempts, task.lease) == (Status.SCHEDULED, 0, 2)
    assert task.start_at is not None
    assert claimed is not None
    assert [attempt.outcome for attempt in client.tasks.attempts(job.id)] == ["snoozed"]


def test_neither_a_running_nor_an_ended_task_is_changed(client: Client, holder: ClaimingProcess) -> None:
    job = client.enqueue("video")
    client.tasks.change(job.id, priority=99, body={"source": "b.mp4"})
    holder.claim()
    for _ in range(2):
        with pytest.raises(IllegalTransition, match="cannot change a task that is"):
            client.tasks.change(job.id, priority=1)
        client.tasks.cancel(job.id) if client.tasks.get(job.id).status is Status.WORKING else None
    assert (client.tasks.get(job.id).priority, client.tasks.get(job.id).json) == (99, {"source": "b.mp4"})
    with pytest.raises(InvalidTask, match="nothing is to be changed"):
        client.tasks.change(job.id)


def test_a_unique_key_goes_with_its_task_to_another_queue(client: Client) -> None:
    moved = client.enqueue("video", unique="a.mp4")
    client.tasks.move_to_queue(moved.id, "other")
    assert client.enqueue("other", unique="a.mp4").id == moved.id
    again = client.enqueue("video", unique="a.mp4")
    assert again.id != moved.id
    with pytest.raises(UniqueKeyTaken):
        client.tasks.move_to_queue(again.id, "other")
    assert client.tasks.get(again.id).queue == "video"


def test_tasks_are_found_by_queue_name_status_and_node_page_by_page(client: Client, holder: ClaimingProcess) -> None:
    ids = [job.id for job in client.enqueue_many(["pages"] * 5)]
    first = client.tasks.page(queue="pages", limit=3)
    second = client.tasks.page(queue="pages", limit=3, after=first.next)
    assert [task.id for task in [*first.items, *second.items]] == ids[::-1]
    assert second.next is None
    mine = client.enqueue("video", name="transcode", node="video-1")
    other = client.enqueue("mail", name="send")
    assert [task.id for task in client.tasks.list(queue="mail")] == [other.id]
    assert [task.id for task in client.tasks.list(name="transcode")] == [mine.id]
    assert [task.id for task in client.tasks.list(node="video-1")] == [mine.id]
    holder.claim()
    assert [task.id for task in client.tasks.list(status="working")] == [mine.id]
    assert client.tasks.counts()[Status.WORKING] == 1


def test_a_missing_task_and_a_filter_that_nothing_can_match_are_refused(client: Client) -> None:
    for call in (client.tasks.get, client.tasks.attempts, client.tasks.retry, client.tasks.cancel, client.tasks.delete):
        with pytest.raises(TaskNotFound, match="no task 4711"):
            call(4711)
    assert client.tasks.find(4711) is None
    with pytest.raises(InvalidFilter, match="'finished' is none of scheduled, pending"):
        client.tasks.list(status="finished")
    with pytest.raises(InvalidFilter, match="limit"):
        client.tasks.list(limit=0)
    with pytest.raises(NodeNotFound):
        client.tasks.list(node="nowhere")


def test_the_holder_of_a_canceled_task_can_no_longer_write_it(client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video")
    task = holder.claim()
    client.tasks.cancel(task.id, "not today")
    with pytest.raises(AssertionError):
        holder.end(task, Done())
    assert client.tasks.get(task.id).error == "not today"
    with pytest.raises(IllegalTransition, match="cannot cancel a task that is canceled"):
        client.tasks.cancel(task.id)


def test_a_dead_task_is_retried_with_all_its_attempts_unless_another_has_its_key(
    client: Client, holder: ClaimingProcess
) -> None:
    job = client.enqueue("video")
    holder.run(Failed(error="no", traceback="Traceback …"))
    [attempt] = client.tasks.attempts(job.id)
    assert (attempt.outcome, attempt.error, attempt.traceback) == ("dead", "no", "Traceback …")
    client.tasks.retry(job.id)
    task = client.tasks.get(job.id)
    assert (task.status, task.attempts) == (Status.PENDING, 0)
    with pytest.raises(IllegalTransition):
        client.tasks.retry(job.id)
    client.tasks.delete(job.id)
    old = client.enqueue("video", unique="a")
    holder.run(Failed(error="no"))
    young = client.enqueue("video", unique="a")
    with pytest.raises(UniqueKeyTaken, match=f"task {young.id}"):
        client.tasks.retry(old.id)


def test_a_running_task_is_moved_to_another_node(client: Client, holder: ClaimingProcess) -> None:
    other = ClaimingProcess(client.database, "video-2")
    client.enqueue("video")
    task = holder.claim()
    client.tasks.move(task.id, "video-2")
    with pytest.raises(AssertionError):
        holder.end(task, Done())
    assert other.claim().id == task.id
    client.tasks.move(task.id, None)
    assert client.tasks.get(task.id).node_id is None


def test_a_queue_is_paused_for_a_while_and_resumed(client: Client) -> None:
    client.queues.pause("video", "1h")
    [queue] = client.queues.list()
    assert (queue.paused, queue.paused_until is None) == (True, False)
    client.queues.resume("video")
    assert not client.queues.list()[0].paused
    for wrong in (("video", "a while"), ("no spaces", "1h")):
        with pytest.raises(InvalidTask):
            client.queues.pause(*wrong)


def test_a_node_is_drained_and_undrained(client: Client, holder: ClaimingProcess) -> None:
    client.nodes.drain("video-1")
    assert client.nodes.list()[0].draining
    client.nodes.undrain("video-1")
    assert not client.nodes.list()[0].draining
    assert [process.id for process in client.nodes.processes()] == [holder.process_id]
    with pytest.raises(NodeNotFound, match="known are: video-1"):
        client.nodes.drain("video-7")


def test_the_load_of_a_node_is_what_its_processes_hold_and_an_actor_may_see(
    client: Client, holder: ClaimingProcess
) -> None:
    ClaimingProcess(client.database, "idle")
    client.enqueue_many(["video"] * 3)
    holder.claim()
    holder.claim()
    loads = [(load.name, load.running, load.slots) for load in client.nodes.loads()]
    assert loads == [("idle", 0, 4), ("video-1", 2, 4)]
    mail_viewer = client.acting_as(Actor.with_role("ann", Role.VIEWER, queues=["mail"]))
    assert [load.running for load in mail_viewer.nodes.loads()] == [0, 0]
