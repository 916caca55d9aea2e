"""In any order of operations, a status changes only by the table of transitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from peerd.domain.errors import PeerdError
from peerd.domain.lifecycle import GONE, TRANSITIONS, Gone, Status, TaskEvent
from peerd.domain.outcome import Canceled, Deferred, Failed, Outcome, Released, Snoozed
from peerd.domain.task import Task
from peerd.store import jobs
from peerd.store.claim.claimer import Claimer
from peerd.store.jobs import Bury, Release, ReservedJob
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.outcomes import touch
from peerd.store.outcomes.recording import ClaimId
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks import actions
from tests.store.world import World, held
from tests.support.outcomes import record_outcome

pytestmark = pytest.mark.every_database

E = TaskEvent


@dataclass
class Play:
    """A table, a claimer, and all claims that were ever made: the stale ones write too."""

    world: World
    claimer: Claimer
    claims: list[Task] = field(default_factory=list)
    reservations: list[ReservedJob] = field(default_factory=list)

    def statuses(self) -> dict[int, tuple[Status, int]]:
        rows = self.world.rows(select(tasks.c.id, tasks.c.status, tasks.c.lease))
        return {row.id: (Status(row.status), row.lease) for row in rows}

    def any_id(self, number: int) -> int:
        ids = sorted(self.statuses())
        return ids[number % len(ids)] if ids else 1

    def take(self, _: int) -> None:
        self.claims += self.world.take(self.claimer, 2)

    def take_alone(self, _: int) -> None:
        self.claims += self.world.take(self.claimer, 1, quarantined=True)

    def complete(self, number: int) -> None:
        if self.claims:
            self.world.complete(self.claims[number % len(self.claims)])

    def record_outcome(self, outcome: Outcome, number: int) -> None:
        if self.claims:
            task = self.claims[number % len(self.claims)]
            self.world.run(record_outcome, self.claimer.process_id, held(task), outcome)

    def touch(self, number: int) -> None:
        self.world.run(touch.touch, {held(task) for task in self.claims[number % 7 :]})

    def rescue(self, number: int) -> None:
        self.world.set(self.any_id(number), checked_at=seconds_from_now(-60))
        self.world.run(rescue.rescue_untouched, 30.0)

    def crash(self, _: int) -> None:
        self.world.run(rescue.release_tasks_of_process, self.claimer.process_id, "SIGKILL", crashed=True)

    def end(self, _: int) -> None:
        self.world.run(rescue.release_tasks_of_process, self.claimer.process_id, "stopped", crashed=False)

    def by_hand(self, what: Callable[..., None], number: int) -> None:
        self.world.run(what, self.any_id(number))

    def move(self, number: int) -> None:
        self.world.run(actions.move, self.any_id(number), "a" if number % 2 else None)

    def start_later(self, number: int) -> None:
        self.world.set(self.any_id(number), start_at=seconds_from_now(60))
        self.world.run(chore_batches.postpone)

    def expire(self, number: int) -> None:
        self.world.set(self.any_id(number), finish_at=seconds_from_now(-1))
        self.world.run(chore_batches.expire)

    def stage_due(self, number: int) -> None:
        self.world.set(self.any_id(number), start_at=None)
        self.world.run(chore_batches.stage_due, Status.SCHEDULED)
        self.world.run(chore_batches.stage_due, Status.FAILURE)

    def purge(self, number: int) -> None:
        self.world.run(chore_batches.purge, (Status.DONE, Status.DEAD, Status.CANCELED)[number % 3], -60.0)

    def reserve(self, _: int) -> None:
        self.reservations += self.world.run_group(jobs.reserve, self.claimer, 2, 60)

    def take_job(self, number: int) -> None:
        job = self.world.run_group(jobs.take, self.claimer, self.any_id(number), 60)
        self.reservations += [] if job is None else [job]

    def end_reservation(self, end: Callable[[ClaimId], tuple[Callable[..., object], object]], number: int) -> None:
        if self.reservations:
            operation, argument = end(self.reservations[number % len(self.reservations)].claim)
            self.world.run_group(operation, self.claimer.process_id, [argument])

    def kick(self, number: int) -> None:
        if number % 2:
            self.world.run_group(jobs.kick, "q", number)
        else:
            self.world.run_group(jobs.kick_job, self.any_id(number))

    def delete_free(self, number: int) -> None:
        self.world.run_group(jobs.delete_free, [self.any_id(number)])

    def add(self, number: int) -> None:
        self.world.add(priority=number, max_attempts=1 + number % 3, start_in=60.0 if number % 5 == 0 else None)


MOVES: list[tuple[set[TaskEvent], Callable[[Play, int], None]]] = [
    (set(), Play.add),
    (set(), Play.add),
    ({E.CLAIM}, Play.take),
    ({E.CLAIM}, Play.take),
    ({E.CLAIM}, Play.take_alone),
    ({E.COMPLETE}, Play.complete),
    ({E.FAIL, E.DIE}, lambda play, n: play.record_outcome(Failed(error="boom", retry_in=float(n % 2)), n)),
    ({E.DIE}, lambda play, n: play.record_outcome(Failed(error="boom"), n)),
    ({E.SNOOZE}, lambda play, n: play.record_outcome(Snoozed(60.0, "later"), n)),
    ({E.DEFER}, lambda play, n: play.record_outcome(Deferred(60.0, "no such handler"), n)),
    ({E.CANCEL}, lambda play, n: play.record_outcome(Canceled("unwanted"), n)),
    ({E.RELEASE}, lambda play, n: play.record_outcome(Released("it ends"), n)),
    (set(), Play.touch),
    ({E.RESCUE, E.DIE, E.RELEASE}, Play.rescue),
    ({E.RESCUE, E.DIE, E.RELEASE}, Play.crash),
    ({E.RELEASE}, Play.end),
    ({E.CANCEL}, lambda play, n: play.by_hand(actions.cancel, n)),
    ({E.RETRY}, lambda play, n: play.by_hand(actions.retry, n)),
    ({E.DELETE}, lambda play, n: play.by_hand(actions.delete, n)),
    ({E.MOVE}, Play.move),
    ({E.POSTPONE}, Play.start_later),
    ({E.EXPIRE}, Play.expire),
    ({E.STAGE}, Play.stage_due),
    ({E.PURGE}, Play.purge),
    ({E.CLAIM}, Play.reserve),
    ({E.TAKE}, Play.take_job),
    ({E.RELEASE}, lambda play, n: play.end_reservation(lambda claim: (jobs.release, Release(claim)), n)),
    ({E.SNOOZE}, lambda play, n: play.end_reservation(lambda claim: (jobs.release, Release(claim, 1, 60)), n)),
    ({E.BURY}, lambda play, n: play.end_reservation(lambda claim: (jobs.bury, Bury(claim, 1, n)), n)),
    ({E.DELETE}, lambda play, n: play.end_reservation(lambda claim: (jobs.delete_held, claim), n)),
    ({E.KICK}, Play.kick),
    ({E.DELETE}, Play.delete_free),
]


SOME_MOVES = st.lists(st.tuples(st.sampled_from(range(len(MOVES))), st.integers(0, 50)), min_size=15, max_size=40)
CHECKS = [HealthCheck.function_scoped_fixture]


@settings(max_examples=6, derandomize=True, suppress_health_check=CHECKS)
@given(moves=SOME_MOVES)
def test_every_operation_makes_only_transitions_of_the_table(world: World, moves: list[tuple[int, int]]) -> None:
    assert_only_transitions(world, moves)


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=CHECKS)
@given(moves=SOME_MOVES)
def test_so_they_do_in_an_order_that_is_new_in_each_run(world: World, moves: list[tuple[int, int]]) -> None:
    assert_only_transitions(world, moves)


def assert_only_transitions(world: World, moves: list[tuple[int, int]]) -> None:
    world.empty()
    play = Play(world, world.claimer())
    for number in range(4):
        play.add(number + 1)
    for which, number in moves:
        events, move = MOVES[which]
        before = play.statuses()
        try:
            move(play, number)
        except PeerdError:
            assert play.statuses() == before  # a refused operation changes nothing
            continue
        after = play.statuses()
        allowed = {(status, end) for (status, event), end in TRANSITIONS.items() if event in events}
        for task_id, (status, lease) in before.items():
            end: Status | Gone = after[task_id][0] if task_id in after else GONE
            assert end is status or (status, end) in allowed, f"{status} → {end} by {events}"
            assert end is GONE or after[task_id][1] >= lease, "a lease never falls"
        assert_attempts_explain_every_run(play)


def assert_attempts_explain_every_run(play: Play) -> None:
    """Each claim ended as a row of its own, or is the present one; or the row's later leases were written by hand."""
    for task_id, (status, lease) in play.statuses().items():
        leases = [attempt.lease for attempt in play.world.attempts(task_id)]
        assert leases == sorted(set(leases))
        assert all(one <= lease for one in leases)
        if status is Status.WORKING:
            assert lease not in leases
        assert len(leases) >= play.world.get(task_id).attempts
