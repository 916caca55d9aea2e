"""The operations whose statements are sent often, each with the indexes that it may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import sqlalchemy as sa

from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.domain.task import NewTask, Task
from peerd.store import chore_batches, due, enqueue, outcomes, rescue
from peerd.store.chore_batches import HistoryAge, HistoryPlace, purge_step
from peerd.store.jobs import free, holding, reserving, statistics
from peerd.store.jobs.holding import Bury, Release
from peerd.store.jobs.statistics import count_unfinished_up_to
from peerd.store.outcomes import ClaimId, TaskProgress
from peerd.store.schema.tables import limits
from peerd.store.statements import new_token
from peerd.store.take import backlog, claiming, quarantined
from peerd.store.take.claimer import Claimer
from tests.store.filled_table import LONG_AGO
from tests.store.world import World, held
from tests.support.outcomes import record_outcome


def operations_on_tasks(world: World, claimer: Claimer) -> Iterator[tuple[Callable[[], object], set[str]]]:
    run, mysql = world.run, world.store.name == "mysql"
    working = {"tasks_claim"} if mysql else {"tasks_working"}
    by_id = {"PRIMARY"}
    held_now: list[Task] = []
    token = new_token()

    def take() -> None:
        held_now.extend(run(claiming.claim, claimer, token=token, limit=10).tasks)

    yield take, {"tasks_claim"} | by_id
    assert len(held_now) == 10
    yield partial(run, claiming.claim, claimer, token=new_token(), limit=1, quarantined=True), {"tasks_claim"} | by_id
    yield partial(run, quarantined.should_empty_for_quarantined, claimer, 1.0), {"tasks_claim", "tasks_turns"} | by_id
    limited_indexes = {"tasks_turns", "PRIMARY", "a sort of all"}
    yield partial(run, backlog.find_claimable, claimer), {"tasks_claim", "tasks_turns"} | by_id
    yield (partial(run, claiming.claim_limited, claimer, "q", token=8, limit=5), limited_indexes | working)
    limited = sa.insert(limits).values(queue="q", limit_key="", running=1000)
    run(lambda connection: connection.execute(limited).rowcount)
    yield (
        partial(run, claiming.claim_limited, claimer, "q", token=9, limit=5),
        limited_indexes | {"tasks_claim"} | working,
    )
    run(lambda connection: connection.execute(sa.delete(limits)).rowcount)
    yield partial(run, claiming.claimed_by_token, claimer, token), working
    yield partial(run, outcomes.claims_of_process, claimer.process_id), working
    yield partial(run, outcomes.touch, {held(task) for task in held_now}), by_id
    yield partial(run, outcomes.report_progress, {held(task): TaskProgress(0.5) for task in held_now}), by_id
    done: dict[Any, str | None] = {held(task): "1" for task in held_now[:5]}
    yield partial(run, outcomes.complete, claimer.process_id, done), by_id
    yield partial(run, outcomes.complete, claimer.process_id, done), by_id  # and the query of a repeated one
    failed = Failed(error="boom", retry_in=0.0)
    yield partial(run, record_outcome, claimer.process_id, held(held_now[6]), failed), by_id
    yield partial(run, chore_batches.stage_due, Status.FAILURE, 20), {"tasks_due"} | by_id
    yield partial(run, chore_batches.stage_due, Status.SCHEDULED, 20), {"tasks_due"} | by_id
    yield partial(run, chore_batches.postpone, 20), {"tasks_due" if mysql else "tasks_ahead"} | by_id
    yield partial(run, chore_batches.expire, 20), {"tasks_closing"} | by_id
    yield partial(run, chore_batches.purge, Status.DONE, -60.0, 20), {"tasks_closing"} | by_id
    yield partial(run, chore_batches.purge, Status.DEAD, 3600.0, 20), {"tasks_closing"} | by_id
    for place in (None, HistoryPlace(LONG_AGO, 17)):
        yield partial(run, purge_step, HistoryAge(-60.0, frozenset({"q"})), place, 20), {"tasks_closing"} | by_id
    counted = {"tasks_claim", "tasks_turns", "tasks_aside"} | working
    yield partial(run, count_unfinished_up_to, "q", 20), counted
    for pinned in (chore_batches.count_pinned, chore_batches.free_pinned, chore_batches.fail_pinned):
        yield partial(run, pinned, 0.0), {"tasks_claim", "tasks_turns"} | by_id
    with_key = NewTask(queue="q", unique_key="key")
    assert run(enqueue.enqueue, with_key).created
    yield partial(run, enqueue.enqueue, with_key), by_id  # which checks whether the holder has ended
    yield (
        partial(run, rescue.release_tasks_of_process, claimer.process_id, "SIGKILL", crashed=True, limit=20),
        working | by_id,
    )
    yield partial(run, rescue.rescue_untouched, 3600.0, 20), working | by_id
    yield partial(run, rescue.rescue_untouched, -60.0, 20), working | by_id


def operations_on_jobs(world: World) -> Iterator[tuple[partial[Any], set[str]]]:
    run, by_id = world.store.run_group, {"PRIMARY"}  # by which `test_plans.py` knows the engine of groups
    pending, aside = {"tasks_claim", "tasks_turns"}, {"tasks_aside"}
    working = {"tasks_claim"} if world.store.name == "mysql" else {"tasks_working"}
    few, many = world.claimer("other"), world.claimer("q2", "other", *(f"tube-{number}" for number in range(40)))
    held: list[ClaimId] = []

    def reserve(connection: sa.Connection, claimer: Claimer, limit: int) -> None:
        held.extend(job.claim for job in reserving.reserve(connection, claimer, limit, 60))

    for claimer, limit in ((few, 1), (few, 10), (many, 1), (many, 10)):
        yield partial(run, reserve, claimer, limit), pending | by_id
    assert len(held) == 22
    yield partial(run, reserve, world.claimer("empty"), 1), pending | by_id
    yield partial(run, reserve, world.claimer("q", "other"), 2), {*pending, *working, *by_id, "a sort of all"}
    process_id = few.process_id
    for claims in (held[:1], held[:9]):
        yield partial(run, holding.touch_reservations, process_id, claims), by_id
    for claims in (held[:1], held[1:4]):
        yield partial(run, holding.release, process_id, [Release(claim, 1, 0, "releases") for claim in claims]), by_id
    for claims in (held[4:5], held[5:8]):
        yield partial(run, holding.delete_held, process_id, claims), by_id
    yield partial(run, holding.bury, process_id, [Bury(held[8], 1, 1)]), by_id
    yield partial(run, reserving.reserve_by_id, few, held[8].id, 60), by_id
    yield partial(run, free.kick, "q", 5), aside | by_id
    yield partial(run, free.kick, "other", 5), aside | by_id
    yield partial(run, holding.release_all, few.node_id), working | by_id
    read = world.read
    yield partial(read, statistics.peek_ready, "q"), pending | by_id
    yield partial(read, statistics.peek_delayed, "q"), aside
    yield partial(read, statistics.peek_buried, "q"), aside
    yield partial(read, statistics.job_statistics, held[0].id), by_id
    for queue in ("small", "empty"):
        yield partial(read, statistics.count_jobs, queue), pending | aside | working
        yield partial(read, statistics.has_jobs, queue), pending | aside | working
    grouped = {*working, "a sort of all"}  # of those that are reserved
    yield partial(read, statistics.tubes_with_jobs), pending | aside | grouped
    yield partial(run, due.read_due_maintenance), {"tasks_due", "tasks_ahead", "tasks_closing"} | pending | grouped
