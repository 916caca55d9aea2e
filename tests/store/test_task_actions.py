"""Actions of users on a task: cancel, retry, move, bury, kick, delete."""

from __future__ import annotations

import pytest

from peerd.domain.errors import NodeNotFound, TaskNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import IllegalTransition, Status, TaskEvent, after, sources
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import attempts, unique_keys
from peerd.store.tasks import actions
from tests.store.world import World

ACTIONS = {
    TaskEvent.CANCEL: actions.cancel,
    TaskEvent.RETRY: actions.retry,
    TaskEvent.MOVE: lambda connection, task_id: actions.move(connection, task_id, None),
    TaskEvent.BURY: lambda connection, task_id: actions.bury(connection, task_id, 17),
    TaskEvent.KICK: actions.kick,
    TaskEvent.DELETE: actions.delete,
}


def test_an_action_makes_the_transition_of_the_table_and_records_the_attempt_that_it_ends(world: World) -> None:
    labels = {
        TaskEvent.CANCEL: "withdrawn",
        TaskEvent.RETRY: "retried",
        TaskEvent.MOVE: "moved",
        TaskEvent.BURY: "buried",
    }
    for event, action in ACTIONS.items():
        for status in Status:
            task_id = world.task_in(status)
            before, attempts_before = world.get(task_id), world.attempts(task_id)
            if status not in sources(event):
                with pytest.raises(IllegalTransition, match=f"cannot {event} a task that is {status}"):
                    world.run(action, task_id)
                assert world.get(task_id) == before, (event, status)
                continue
            world.run(action, task_id)
            found = world.find(task_id)
            if found is None:
                assert event is TaskEvent.DELETE, (event, status)
                continue
            assert found.status is after(status, event), (event, status)
            ended = [(one.outcome, one.number) for one in world.attempts(task_id)[len(attempts_before) :]]
            if status is Status.WORKING:
                assert (found.lease, ended) == (before.lease + 1, [(labels[event], 0)]), event
            world.run(actions.delete, task_id)
        for nowhere in (10**9, 0, -1, 2**64):
            with pytest.raises(TaskNotFound, match=str(nowhere)):
                world.run(action, nowhere)


def test_a_retry_gives_all_attempts_back_and_drops_an_end_that_has_passed(world: World) -> None:
    task_id = world.task_in(Status.DEAD)
    world.set(task_id, finish_at=seconds_from_now(-1), result="1", progress=0.5, crashes=2)
    world.run(actions.retry, task_id)
    task = world.get(task_id)
    assert (task.attempts, task.crashes, task.finish_at, task.finished_at) == (0, 0, None, None)
    assert (task.result, task.progress, task.start_at) == (None, None, None)
    world.run(actions.delete, task_id)
    ahead = world.task_in(Status.FAILURE)
    world.set(ahead, finish_at=seconds_from_now(60))
    world.run(actions.retry, ahead)
    assert world.get(ahead).finish_at is not None


def test_a_task_that_a_queue_client_holds_is_taken_from_it_without_a_record_of_an_attempt(world: World) -> None:
    for event in (TaskEvent.CANCEL, TaskEvent.RETRY, TaskEvent.MOVE, TaskEvent.BURY):
        task_id = world.task_in(Status.WORKING)
        world.set(task_id, ttr=60, deadline_at=seconds_from_now(60))
        lease = world.get(task_id).lease
        world.run(ACTIONS[event], task_id)
        task = world.get(task_id)
        assert (world.attempts(task_id), task.deadline_at, task.lease) == ([], None, lease + 1), event
        world.run(actions.delete, task_id)


def test_a_buried_task_is_claimed_by_nobody_until_it_is_kicked_and_keeps_its_attempts(world: World) -> None:
    task_id = world.add()
    world.fail(world.take_one(), retry_in=0.0)
    world.run(actions.bury, task_id, 1234)
    world.stage_due()
    assert world.take(world.claimer()) == []
    assert (world.column(task_id, "buried_order"), world.get(task_id).buries) == (1234, 1)
    world.run(actions.kick, task_id)
    task = world.get(task_id)
    assert (world.column(task_id, "buried_order"), task.buries, task.kicks, task.attempts) == (None, 1, 1, 1)
    assert world.take_one().id == task_id


def test_a_kicked_task_is_due_at_once_and_does_not_expire_at_once(world: World) -> None:
    scheduled = world.add(start_in=3600.0)
    world.run(actions.kick, scheduled)
    assert world.take_one().id == scheduled
    expired = world.add()
    world.run(actions.bury, expired, 1)
    world.set(expired, finish_at=seconds_from_now(-1))
    world.run(actions.kick, expired)
    assert world.get(expired).finish_at is None


def test_a_moved_task_is_taken_by_its_new_node_only(world: World) -> None:
    task_id = world.task_in(Status.WORKING)
    world.node("b")
    world.run(actions.move, task_id, "b")
    assert world.take(world.claimer(node="a")) == []
    assert [task.id for task in world.take(world.claimer(node="b"))] == [task_id]
    world.run(actions.move, task_id, None)
    assert [task.id for task in world.take(world.claimer(node="a"))] == [task_id]
    with pytest.raises(NodeNotFound, match=r"'nowhere'; known are: a"):
        world.run(actions.move, task_id, "nowhere")


def test_a_deleted_task_takes_its_attempts_and_its_key_with_it(world: World) -> None:
    task_id = world.add(unique_key="k")
    world.fail(world.take_one(), retry_in=60.0)
    world.run(actions.delete, task_id)
    assert (world.count(attempts), world.count(unique_keys)) == (0, 0)
    assert world.add(unique_key="k") != task_id


def test_a_retry_takes_the_key_back_unless_a_younger_task_has_it(world: World) -> None:
    old = world.add(unique_key="k")
    world.complete(world.take_one())
    young = world.add(unique_key="k")
    assert young != old
    with pytest.raises(UniqueKeyTaken, match=rf"task {old} .* belongs to task {young}"):
        world.run(actions.retry, old)
    assert world.status(old) is Status.DONE
    world.run(actions.cancel, young)
    world.run(actions.retry, old)
    assert world.add(unique_key="k") == old
