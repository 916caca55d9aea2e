from __future__ import annotations

from typing import Any

import pytest

from peerd.domain.access import Actor, Role
from peerd.domain.errors import InvalidFilter, InvalidLimit, InvalidTask, NodeNotFound, TaskNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.limit import Limit, Rate
from peerd.domain.outcome import Done, Failed
from peerd.domain.task import Call
from peerd.operate.client import Client
from peerd.operate.request import new_task, new_tasks
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


def test_a_missing_task_and_a_filter_that_nothing_can_match_are_refused(
    client: Client, holder: ClaimingProcess
) -> None:
    for call in (client.tasks.get, client.tasks.attempts, client.tasks.retry, client.tasks.cancel, client.tasks.delete):
        with pytest.raises(TaskNotFound, match="no task 4711"):
            call(4711)
    assert client.tasks.find(4711) is None
    mine = client.enqueue("video", name="transcode", node="video-1")
    filters: tuple[dict[str, str], ...] = ({"name": "transcode"}, {"node": "video-1"}, {"status": "pending"})
    assert [[task.id for task in client.tasks.list(**one)] for one in filters] == [[mine.id]] * 3  # type: ignore[arg-type]
    with pytest.raises(InvalidFilter, match="'finished' is none of scheduled, pending"):
        client.tasks.list(status="finished")
    with pytest.raises(InvalidFilter, match="limit"):
        client.tasks.list(limit=0)
    with pytest.raises(NodeNotFound):
        client.tasks.list(node="nowhere")


def test_queues_are_paused_nodes_drained_and_their_load_shown(client: Client, holder: ClaimingProcess) -> None:
    client.queues.pause("video", "1h")
    [queue] = client.queues.list()
    assert (queue.paused, queue.paused_until is None) == (True, False)
    client.queues.resume("video")
    assert not client.queues.list()[0].paused
    with pytest.raises(InvalidTask):
        client.queues.pause("video", "a while")
    client.nodes.drain("video-1")
    assert client.nodes.list()[0].draining
    client.nodes.undrain("video-1")
    assert not client.nodes.list()[0].draining
    assert [process.id for process in client.nodes.processes()] == [holder.process_id]
    with pytest.raises(NodeNotFound, match="known are: video-1"):
        client.nodes.drain("video-7")
    ClaimingProcess(client.database, "idle")
    client.enqueue_many(["video"] * 3)
    holder.claim()
    holder.claim()
    loads = [(load.name, load.running, load.slots) for load in client.nodes.loads()]
    assert loads == [("idle", 0, 4), ("video-1", 2, 4)]
    mail_viewer = client.acting_as(Actor.with_role("ann", Role.VIEWER, queues=["mail"]))
    assert [load.running for load in mail_viewer.nodes.loads()] == [0, 0]


KEYED = Call("uploads", "receive", '{"customer":"acme"}', limit_key="acme")


def test_limits_are_set_listed_and_removed_and_what_is_wrong_is_refused(client: Client) -> None:
    limits = client.limits
    assert limits.set("uploads", running=8) == Limit(queue="uploads", running=8)
    assert limits.set("uploads", each_key=True, running=3).each_key
    assert limits.set("uploads", key="acme", running=5, rate="100/1m").rate == Rate(100, 60.0)
    limits.set("api", rate=Rate(5, 1.0))
    assert [(one.queue, one.key) for one in limits.list()] == [
        ("api", ""),
        *[("uploads", key) for key in ("", "*", "acme")],
    ]
    assert [limits.remove("uploads", key="acme") for _ in range(2)] == [True, False]
    assert [limits.remove("uploads", each_key=True), limits.remove("uploads")] == [True, True]
    assert (limits.list("uploads"), limits.remove("api")) == ([], True)
    for given, field, message in WRONG:
        with pytest.raises(InvalidLimit, match=message) as refused:
            client.limits.set("uploads", **given)
        assert refused.value.field == field, given
    assert client.limits.list() == []
    with pytest.raises(InvalidLimit, match="queue: 'no spaces'"):
        client.limits.remove("no spaces")
    with pytest.raises(InvalidLimit, match="not both"):
        client.limits.remove("uploads", key="a", each_key=True)
    with pytest.raises(InvalidFilter, match="7 is not text"):
        client.limits.list(7)  # type: ignore[arg-type]


WRONG: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({}, "running", "give running, rate or both"), ({"key": "acme"}, "running", "give running, rate or both"),
    ({"running": 1, "key": "acme", "each_key": True}, "key", "not both"),
    ({"running": 1, "key": ""}, "key", "leave it out to limit the queue as a whole"),
    ({"running": 1, "key": "*"}, "key", "each_key limits each key"), ({"rate": 5}, "rate", "write starts/period"),
    ({"running": "3"}, "running", "not a number of tasks at once"), ({"rate": "fast"}, "rate", "write starts/period"),
)  # fmt: skip


def test_the_key_of_a_call_is_used_and_an_option_overrides_it() -> None:
    assert new_task(KEYED).limit_key == "acme"
    assert new_task(KEYED, limit_key=None).limit_key == "acme"
    assert new_task(KEYED, limit_key="other").limit_key == "other"
    assert new_task("uploads", limit_key="acme").limit_key == "acme"
    bulk = new_tasks([KEYED, "uploads", Call("uploads", "receive", "{}")])
    assert [task.limit_key for task in bulk] == ["acme", None, None]
    assert [task.limit_key for task in new_tasks([KEYED, "uploads"], limit_key="k")] == ["k", "k"]
