"""What fails most: failed attempts in groups, whose tasks a filter finds, and which a look of a bounded size reads."""

from __future__ import annotations

import re
from functools import partial

import pytest
import sqlalchemy as sa

from peerd import Actor, Client
from peerd.domain.bulk import BulkRetry
from peerd.domain.lifecycle import Status
from peerd.domain.quoting import Masker
from peerd.operate.error_groups import read_error_groups
from peerd.operate.task_filter import TaskFilter
from peerd.store import rescue
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.pages import list_failed_attempts
from tests.store.plans import analyze, problems_of_plans
from tests.store.world import World

REFUSED = "ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.0.{}', 5432)\n  in socket"
DAY = 86_400.0


def fail_with(world: World, queue: str, name: str, error: str, retry_in: float | None, **more: str) -> int:
    task_id = world.add(queue, name=name, max_attempts=3)
    assert world.fail(world.take_one(world.claimer(queue)), error, retry_in, **more)
    return task_id


def crash(world: World, queue: str, name: str) -> int:
    task_id = world.add(queue, name=name, max_attempts=1)
    task = world.take_one(world.claimer(queue))
    assert task.process_id is not None
    world.run(rescue.release_tasks_of_process, task.process_id, "killed by SIGABRT", crashed=True)
    return task_id


def test_failed_attempts_are_grouped_by_handler_and_by_what_their_errors_have_in_common(world: World) -> None:
    dead = [fail_with(world, "sync", "push", REFUSED.format(host), None) for host in (1, 2, 3)]
    fail_with(world, "sync", "push", REFUSED.format(4), 60.0)
    fail_with(world, "sync", "pull", REFUSED.format(5), 60.0)
    fail_with(world, "mail", "send", "KeyError: 'user-17'", None)
    fail_with(world, "mail", "send", "KeyError: 'user-99'", None)
    fail_with(world, "mail", "send", "TimeoutError: it ran for more than 30 s", 60.0, label="timeout")
    aborted = crash(world, "images", "thumbnail")
    twice = fail_with(world, "mail", "send", "TimeoutError: it ran for more than 31 s", 60.0)
    world.set(twice, status="pending", start_at=None)
    assert world.fail(world.take_one(world.claimer("mail")), "ValueError: no address", None)
    world.task_in(Status.DEAD, name="old")
    old = sa.update(attempts).where(attempts.c.error == "boom").values(ended_at=seconds_from_now(-2 * DAY))
    world.execute(old)
    with Client(world.store) as client:
        found = client.statistics.errors("1d")
        assert [(group.queue, group.name, group.error, group.count, group.dead) for group in found.groups] == [
            ("sync", "push", "ConnectionRefusedError: [Errno <n>] Connect call failed ('<address>', <n>)", 4, 3),
            ("mail", "send", "KeyError: 'user-<n>'", 2, 2),
            ("mail", "send", "TimeoutError: it ran for more than <n> s", 2, 0),
            ("images", "thumbnail", "killed by SIGABRT", 1, 1),
            ("mail", "send", "ValueError: no address", 1, 1),
            ("sync", "pull", "ConnectionRefusedError: [Errno <n>] Connect call failed ('<address>', <n>)", 1, 0),
        ]
        assert found.complete
        greatest, keys, _, aborts = found.groups[:4]
        assert greatest.example.startswith(REFUSED.format(4)), "the last one"
        for group, expected in ((greatest, set(dead)), (keys, {keys.example_task, keys.example_task - 1})):
            found_by = client.tasks.list(queue=group.queue, name=group.name, status="dead", search=group.search)
            assert {task.id for task in found_by} == expected, "what 'retry' acts on"
        [one] = client.tasks.list(queue="images", status="dead", search=aborts.search)
        assert one.id == aborted
        [crashed] = world.attempts(aborted)
        assert client.nodes.lost_tasks() == {crashed.process_id: [aborted]}, "no error is a death"
        assert [group.count for group in client.statistics.errors("1d", queue="mail").groups] == [2, 2, 1]
        assert [group.count for group in client.statistics.errors("1d", name="pull").groups] == [1]
        assert [group.count for group in client.statistics.errors("7d", queue="q").groups] == [1]
        restricted = client.acting_as(Actor.with_role("ann", "viewer", queues=["images"]))
        assert [group.queue for group in restricted.statistics.errors().groups] == ["images"]
        elsewhere = client.acting_as(Actor.with_role("ben", "viewer", queues=["mail"]))
        assert elsewhere.nodes.lost_tasks() == {}


def test_no_more_than_the_newest_attempts_are_examined_and_the_answer_says_so(world: World) -> None:
    for number in range(3):
        fail_with(world, "q", "n", f"E{number}", None)
    examined = {most: world.read(list_failed_attempts, DAY, most=most) for most in (2, 3, 4)}
    assert {most: (len(found.items), found.complete) for most, found in examined.items()} == {
        2: (2, False),
        3: (3, False),  # nobody has looked whether there is a fourth
        4: (3, True),
    }
    assert [attempt.error for attempt in examined[2].items] == ["E2", "E1"]
    assert world.read(list_failed_attempts, 0.0, most=2).complete, "those that were not examined are older"


def test_what_is_masked_divides_no_group(world: World) -> None:
    for secret in ("hunter2", "swordfish"):
        fail_with(world, "q", "n", f"ValueError: password={secret} is wrong", None)
    [group] = world.read(read_error_groups, DAY, None, None, Masker(["password"])).groups
    assert (group.error, group.count) == ("ValueError: password=*** is wrong", 2)
    assert not re.search("hunter2|swordfish", str(group))
    found = TaskFilter(status="dead", search=group.search)
    with Client(world.store) as client:
        assert client.bulk.preview(BulkRetry(), found).matched == 2


@pytest.mark.slow
@pytest.mark.every_database
def test_the_tasks_of_the_newest_attempts_are_read_by_their_ids(world: World) -> None:
    store = world.store
    first = world.insert(status="dead")
    rows = [{"task_id": first, "lease": lease, "number": 1, "outcome": "dead", "error": "e"} for lease in range(5_000)]
    world.execute(sa.insert(attempts), rows)
    world.execute(sa.insert(tasks), [{"queue": "q", "status": "done"} for _ in range(2_000)])
    analyze(store, "attempts", "tasks")
    newest = partial(store.read, list_failed_attempts, DAY, most=100)
    assert not problems_of_plans(store, newest, "tasks", may_sort=True)
