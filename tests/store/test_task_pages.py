"""Pages of tasks: every filter finds just its tasks, in one order, page by page."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.column_condition import parse_conditions
from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.store.schema.tables import tasks
from peerd.store.tasks import pages
from peerd.store.tasks.filters import TaskConditions
from tests.store.world import World

NOW = datetime.now(UTC).replace(microsecond=0)
"""Of a whole second, so that many rows have the same times."""


def fill(world: World, count: int = 300) -> None:
    """Tasks of all statuses, with many equal values."""
    chance, rows = random.Random(5), list[dict[str, Any]]()
    for number in range(count):
        status = chance.choice(list(Status))
        moment = NOW - timedelta(seconds=chance.randrange(5))
        row: dict[str, Any] = {
            "queue": chance.choice("ab"),
            "name": chance.choice(["draw", "encode"]),
            "status": status,
        }
        row |= {"priority": chance.choice([10, 10, 20, -5]), "failures": chance.randrange(3)}
        row |= {"crashes": chance.choice([0, 0, 1]), "node_id": chance.choice([None, None, 7])}
        row |= {"limit_key": chance.choice([None, None, "k1", "k2"]), "created_at": moment, "updated_at": moment}
        row |= {"start_at": moment + timedelta(hours=1) if status in {Status.SCHEDULED, Status.FAILURE} else None}
        row |= {"finished_at": moment if status in {Status.DONE, Status.DEAD, Status.CANCELED} else None}
        row |= {"process_id": 5 if status is Status.WORKING else None}
        row |= {"error": f"no space left on disk {number % 3}" if status is Status.DEAD else None}
        rows.append(row | {"body": f'{{"source": "Größe_{number % 10}%.mp4"}}'})
    world.execute(sa.insert(tasks), rows)


def walk(world: World, wanted: TaskConditions, **options: Any) -> list[int]:
    """The ids of all pages."""
    found: list[int] = []
    after = None
    while True:
        page = world.read(pages.list_tasks, wanted, after=after, **options)
        found += [task.id for task in page.items]
        if page.next is None:
            return found
        assert page.examined
        after = page.next


def matching(world: World, wanted: TaskConditions) -> set[int]:
    statement = sa.select(tasks.c.id).where(*wanted.conditions())
    return set(world.scalars(statement))


FILTERS = [
    TaskConditions(),
    *(TaskConditions(status=status) for status in Status),
    *(TaskConditions(status=status, queue="a") for status in Status),
    TaskConditions(status=Status.PENDING, queue="b", name="draw"),
    TaskConditions(status=Status.DEAD, search="DISK 1"),
    TaskConditions(search="größe_3%"),
    TaskConditions(node_id=7),
    TaskConditions(where=parse_conditions(["priority>=10", "attempts!=1", "limit_key=null"])),
    TaskConditions(where=parse_conditions(["node_id!=7", "status!=done", "name~RAW"])),
    TaskConditions(status=Status.DONE, where=parse_conditions(["finished_at>-1h", "created_at<=+1h"])),
    TaskConditions(queue="nowhere"),
]


def test_pages_of_every_filter_hold_each_of_its_tasks_once(world: World) -> None:
    fill(world)
    for wanted in FILTERS:
        whole = walk(world, wanted, limit=1000)
        assert len(whole) == len(set(whole))
        assert set(whole) == matching(world, wanted), wanted
        assert walk(world, wanted, limit=7) == whole, wanted
        assert walk(world, wanted, limit=7, search_time=0.0) == whole, wanted  # each page ends after its first entries


def test_the_status_decides_the_order(world: World) -> None:
    fill(world)

    def read(status: Status, queue: str | None = None) -> list[Any]:
        return world.read(pages.list_tasks, TaskConditions(status=status, queue=queue), limit=1000).items

    ended = [(task.finished_at, task.id) for task in read(Status.DEAD)]
    assert ended == sorted(ended, reverse=True)
    due = [(task.start_at, task.id) for task in read(Status.SCHEDULED)]
    assert due == sorted(due)
    pending = [
        (task.limit_key is not None, -1 - (task.node_id or 0) if task.crashes else task.node_id or 0, -task.priority)
        for task in read(Status.PENDING, "a")
    ]
    assert pending == sorted(pending)
    newest = [(task.created_at, task.id) for task in read(Status.WORKING)]
    assert newest == sorted(newest, reverse=True)


def test_a_cursor_that_is_none_or_of_another_filter_is_refused(world: World) -> None:
    fill(world, 50)
    page = world.read(pages.list_tasks, TaskConditions(queue="a"), limit=2)
    for cursor in ("", "\udce4", "WyJhIiwwLFsxXV0", "x" * 2000, page.next):
        with pytest.raises(InvalidFilter, match="no cursor of a page of this filter"):
            world.read(pages.list_tasks, TaskConditions(queue="b"), after=cursor)


def test_recent_tasks_are_those_that_work_have_ended_last_are_newest_or_are_named(world: World) -> None:
    fill(world)
    everything = {task.id: task for task in world.read(pages.list_tasks, limit=1000).items}
    wanted = {max(everything)}
    for status in (Status.WORKING, Status.DONE, Status.DEAD, Status.CANCELED):
        wanted |= {task.id for task in world.read(pages.list_tasks, TaskConditions(status=status), limit=1).items}
    oldest = min(set(everything) - wanted)
    recent = world.read(pages.list_recent, [oldest, 2**60], limit=1)
    assert [task.id for task in recent] == sorted({oldest, *wanted})
    assert all(task.body is None and task.status == everything[task.id].status for task in recent)
    assert len(world.read(pages.list_recent, limit=1000)) == len(everything)
