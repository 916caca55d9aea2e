"""Counting the unfinished tasks of a queue up to a limit."""

from __future__ import annotations

from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store.jobs.fill import count_unfinished_up_to
from peerd.store.schema.tables import tasks
from tests.store.plans import recorded_statements
from tests.store.world import World

pytestmark = pytest.mark.every_database


def test_every_task_that_has_not_ended_counts_and_no_other(world: World) -> None:
    for status in Status:
        world.task_in(status)
    world.add(limit_key="a")
    world.add("other")
    assert world.read(count_unfinished_up_to, "q", 100) == len(Status) - len(FINISHED) + 1
    assert world.read(count_unfinished_up_to, "other", 100) == 1
    assert world.read(count_unfinished_up_to, "nowhere", 100) == 0


def test_the_count_ends_at_the_limit(world: World) -> None:
    for status in (Status.PENDING, Status.SCHEDULED, Status.BURIED):
        queue = str(status)
        world.execute(sa.insert(tasks), [{"queue": queue, "status": queue}] * 30)
        world.add(queue)
        counts = [world.read(count_unfinished_up_to, queue, most) for most in (1, 5, 30, 31, 32, 1000)]
        assert counts == [1, 5, 30, 31, 31, 31], status


def test_one_statement_counts(world: World) -> None:
    with recorded_statements(world.store) as sent:
        world.read(partial(count_unfinished_up_to, queue="q", most=10))
    assert len([statement for statement, _ in sent if "tasks" in statement]) == 1
