from __future__ import annotations

import pytest

from peerd.domain.access import Actor, Role
from peerd.domain.errors import InvalidFilter, InvalidTask, NodeNotFound, TaskNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.outcome import Done, Failed
from peerd.operate.client import Client
from tests.unit.operate.claiming_process import ClaimingProcess

pytestmark = pytest.mark.one_database


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


def test_tasks_are_found_by_queue_name_status_and_node_page_by_page(client: Client, holder: ClaimingProcess) -> None:
    ids = [job.id for job in client.enqueue_many(["pages"] * 5)]
    first = client.tasks.page(queue="pages", limit=3)
    second = client.tasks.page(queue="pages", limit=3, after=first.next)
    assert ([task.id for task in [*first.items, *second.items]], second.next) == (ids[::-1], None)
    mine = client.enqueue("video", name="transcode", node="video-1")
    holder.claim()
    filters: tuple[dict[str, str], ...] = ({"name": "transcode"}, {"node": "video-1"}, {"status": "working"})
    assert [[task.id for task in client.tasks.list(**one)] for one in filters] == [[mine.id]] * 3  # type: ignore[arg-type]


def test_actions_reach_their_task(client: Client, holder: ClaimingProcess) -> None:
    other = ClaimingProcess(client.database, "video-2")
    job = client.enqueue("video")
    claimed = holder.claim()
    client.tasks.snooze(job.id, "1h")
    assert client.tasks.get(job.id).status is Status.SCHEDULED
    client.tasks.cancel(job.id, "not today")
    assert client.tasks.get(job.id).error == "not today"
    with pytest.raises(AssertionError):
        holder.end(claimed, Done())
    client.tasks.retry(job.id)
    client.tasks.move_to_queue(job.id, "other")
    client.tasks.move(job.id, "video-2")
    other.run(Failed(error="no", traceback="Traceback …"), "other")
    assert [(one.outcome, one.error, one.traceback) for one in client.tasks.attempts(job.id)[-1:]] == [
        ("dead", "no", "Traceback …")
    ]
    client.tasks.delete(job.id)
    assert client.tasks.find(job.id) is None


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
