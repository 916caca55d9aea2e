"""The holder's writes where the model does not look: many at once, large and dirty texts, the end of a task."""

from __future__ import annotations

import pytest

from peerd import Client
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import ERROR_LIMIT, Failed
from peerd.store import outcomes
from peerd.store.outcomes import ClaimId, TaskProgress, WriteResult
from peerd.store.schema.types import seconds_from_now
from tests.store.world import World, held
from tests.support.outcomes import record_outcome

pytestmark = pytest.mark.every_database


def test_texts_that_a_database_would_refuse_are_cut_and_repaired(world: World) -> None:
    task_id = world.add()
    task = world.take_one()
    assert task.process_id is not None
    dirty = "nul \x00 half \ud800 " + "x" * 10 * ERROR_LIMIT
    assert world.run(outcomes.report_progress, {held(task): TaskProgress(float("nan"), dirty)}) == WriteResult(
        set(), set()
    )
    assert len(world.get(task_id).progress_note or "") <= 255
    failed = Failed(error=dirty, traceback=dirty * 10, retry_in=0.0)
    assert world.run(record_outcome, task.process_id, held(task), failed)
    [attempt] = world.attempts(task_id)
    assert len(attempt.error or "") <= ERROR_LIMIT
    assert "\x00" not in (attempt.error or "\x00")
    Client(world.store).tasks.cancel(task_id, dirty)
    assert len(world.get(task_id).error or "") <= ERROR_LIMIT


def test_a_task_that_could_only_be_retried_after_its_end_is_dead(world: World) -> None:
    task_id = world.insert(finish_at=seconds_from_now(30))
    world.fail(world.take_one(), retry_in=60.0)
    dead = world.get(task_id)
    assert dead.status is Status.DEAD
    assert "finish_at" in (dead.error or "")


RESULTS = (
    None,
    "1",
    '""',
    '"it\'s 100 % \\"so\\", \\\\, %s, :x, ?"',
    '"ünïcödé 漢字 🎬 \\u0000 \u2028"',
    '{"a": [1, 2.5, null]}',
    f'"{"é" * 1_000_000}"',
)


def test_each_of_many_results_is_written_into_its_own_task_however_large(world: World) -> None:
    """All together are larger than what a server takes in one statement."""
    claimer = world.claimer()
    for number in (1, 2, 3, 7, 64, 65):
        for _ in range(number):
            world.add()
        taken = world.take(claimer, number)
        given = {held(task): RESULTS[index % len(RESULTS)] for index, task in enumerate(reversed(taken))}
        assert world.store.run_short(outcomes.complete, claimer.process_id, given) == set(), number
        found = [world.get(task.id) for task in taken]
        assert {ClaimId(task.id, task.lease): task.result for task in found} == given, number
        assert {task.status for task in found} == {Status.DONE}, number
