"""The invariants 1 to 6 of the design, checked after every step and at the end of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peerd.domain.lifecycle import FINISHED, TRANSITIONS, Status
from tests.simulation.faults import BATCH
from tests.simulation.history import ClaimKey, InvariantViolation, forbid
from tests.simulation.limit_rules import LimitRules
from tests.simulation.observer import ObservedAttempt, ObservedTask, Observer
from tests.simulation.plan import MAX_UPDATE, ONLY_NEW, QUEUES
from tests.simulation.reservation_rules import ReservationRules, is_reservation
from tests.simulation.services import MAX_COMPLETED, POLL_EVERY, UPDATE

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.world import World

STEPS: Final = {(before, after) for (before, _), after in TRANSITIONS.items() if isinstance(after, Status)}
MAX_FAILED: Final = 259_200.0
STARTED_WITHIN: Final = 3 * POLL_EVERY
NOTICED_WITHIN: Final = UPDATE + 15.0
"""Seconds: a touch, and the time that slow calls before it may take."""
OUTCOMES: Final = frozenset(("complete", "complete_available", "record_outcomes"))
BY_HAND: Final = frozenset(("cancel", "retry", "move", "move by hand"))


class InvariantRules:
    def __init__(self, world: World, observer: Observer) -> None:
        self._world = world
        self._history = world.history
        self._observer = observer
        self._limits = LimitRules(world)
        self.reservations = ReservationRules(world)
        self._lost_at: dict[ClaimKey, float] = {}
        self._waiting_since: dict[int, float] = {}

    @property
    def rows(self) -> dict[int, ObservedTask]:
        return self._observer.rows

    def judge_step(self) -> None:
        claimed = []
        for before, after in self._observer.changes():
            self._world.note(f"    {_describe(before)} -> {_describe(after)}")
            evidence = f"{before} -> {after} by {self._world.by()}"
            self.reservations.judge_change(before, after, evidence)
            if after is None:
                assert before is not None
                self._judge_deletion(before, evidence)
            elif before is not None:
                self._judge_write(before, after, evidence)
                if after.status == "working" and after.lease != before.lease:
                    claimed.append(after)
            elif after.status == "working" and after.process_id is not None:  # a batch has put and reserved it
                self._history.claimed[after.claim] = after.process_id
        self._limits.judge(claimed, self.rows.values())
        self._judge_running()
        self.reservations.judge_step()

    def _judge_write(self, before: ObservedTask, after: ObservedTask, evidence: str) -> None:
        was_working, is_working = before.status == "working", after.status == "working"
        is_step = before.status == after.status or (before.status, after.status) in STEPS
        forbid(not is_step, "a status changes only by a transition", evidence)
        forbid(after.lease - before.lease not in (0, 1), "a lease grows by one", evidence)
        keeps_lease = after.lease == before.lease
        forbid(is_working and not was_working and keeps_lease, "a claim raises the lease", evidence)
        is_taken = was_working and keeps_lease and self._world.call_name in BY_HAND
        forbid(is_taken, "taking a task from its holder raises the lease", evidence)
        if was_working and not (is_working and keeps_lease):
            self._judge_end_of_claim(before, after, evidence)
        if is_working and not keeps_lease:
            self._judge_claim(before, after, evidence)
        if after.unique_key is not None and after.status not in FINISHED:
            key = (after.queue, after.unique_key)
            unfinished = (one for one in self.rows.values() if one.status not in FINISHED)
            same = [one.id for one in unfinished if (one.queue, one.unique_key) == key]
            forbid(len(same) > 1, "one unfinished task has a unique key", key, same)

    def _judge_running(self) -> None:
        """A handler whose claim was lost is cancelled soon."""
        for process in self._world.processes:
            for claim, ctx in process.running.items():
                row = self.rows.get(claim[0])
                if row is not None and (row.status, row.lease) == ("working", claim[1]):
                    self._lost_at.pop(claim, None)
                    continue
                lost_at = self._lost_at.setdefault(claim, self._world.now)
                since = max(lost_at, process.hindered_at, process.unresponsive_until)
                is_late = self._world.now - since > NOTICED_WITHIN and not ctx._cancelled
                is_late = is_late and claim not in self._history.ended
                forbid(is_late, "a holder learns that it has lost its claim", claim, process, row)

    def judge_waiting(self) -> None:
        """Without faults, no task waits while an executor slot is free and the limits permit it."""
        self.reservations.judge_waiting()
        rows, now = self.rows.values(), self._world.database_text()
        startable = set()
        has_slot = any(process.has_free_executor_slot for process in self._world.processes)
        if has_slot and not any(row.crashes for row in rows):
            due = [row for row in rows if row.queue in QUEUES and _is_due(row, now)]
            startable = {row.id for row in due if self._limits.leaves_room(row, rows)}
        self._waiting_since = {one: self._waiting_since.get(one, self._world.now) for one in startable}
        for task_id, since in self._waiting_since.items():
            waits_long = self._world.now - since > STARTED_WITHIN
            forbid(waits_long, "a startable task is started", self.rows[task_id], f"waits since {since}")

    def _judge_deletion(self, before: ObservedTask, evidence: str) -> None:
        if before.id in self._history.deleted_by_hand:
            return
        if self._world.call_name == BATCH and self._world.caller is not None:
            self._history.deleted_by_clients.add(before.id)
            if is_reservation(before):
                self.reservations.judge_end(before, None, evidence)
                return
            is_free = before.status != "working" and before.status not in FINISHED
            may = is_free and self.reservations.may_delete(before)
            forbid(not may, "a client deletes only a job that it asked for", evidence)
            return
        age = MAX_FAILED if before.status == "dead" else MAX_COMPLETED
        over = before.finished_at or before.updated_at
        is_old = before.status in FINISHED and over <= self._world.database_text(ago=age)
        has_expired = before.finish_at is not None and before.finish_at <= self._world.database_text()
        forbid(not (is_old or (before.status == "pending" and has_expired)), "nothing is lost", evidence)

    def _judge_claim(self, before: ObservedTask, after: ObservedTask, evidence: str) -> None:
        """A task was claimed: it was eligible, and only its claimer holds it."""
        caller, now = self._world.caller, self._world.database_text()
        in_batch = self._world.call_name == BATCH
        is_taken = in_batch and self.reservations.may_take(before)
        is_staged = in_batch and before.status in ("scheduled", "failure")
        was_claimable = before.status == "pending" or is_taken or is_staged or is_reservation(before)
        forbid(not was_claimable, "only pending tasks are claimed", evidence)
        is_other = caller is None or after.process_id != caller.process_id
        forbid(is_other, "a claimer claims for itself", evidence)
        assert caller is not None
        assert after.process_id is not None
        self._history.claimed[after.claim] = after.process_id
        if is_taken:
            return
        is_early = before.start_at is not None and before.start_at > now
        is_late = before.finish_at is not None and before.finish_at <= now
        forbid(is_early or is_late, "a task is claimed between start_at and finish_at", evidence)
        forbid(before.node_id not in (None, after.worker_node_id), "a pinned task is claimed by its node", evidence)
        forbid(self._observer.is_paused(before.queue, now), "no task of a paused queue is claimed", evidence)
        is_on_duty = self._observer.is_on_duty(after.worker_node_id or 0)
        forbid(not is_on_duty, "a draining or ended node claims nothing", evidence)
        forbid(before.crashes and caller.running, "a task that crashed a process runs alone", evidence)
        self._history.count("claims")

    def _judge_end_of_claim(self, before: ObservedTask, after: ObservedTask, evidence: str) -> None:
        """A claim ended: by its holder, by hand, or because its holder is dead or was unreachable for long."""
        name, caller, holder = self._world.call_name, self._world.caller, self._world.holder_of(before)
        if name == "move by hand":
            self._history.taken_by_sql.add(before.claim)
        if caller is None or name in BY_HAND:
            return
        if is_reservation(before) and name == BATCH:
            self.reservations.judge_end(before, after, evidence)
        elif name in OUTCOMES:
            self._judge_outcome(before.claim, after, holder, evidence)
        else:
            self._judge_taking_back(before.claim, caller, holder, evidence)

    def _judge_taking_back(
        self, claim: ClaimKey, caller: SimulatedProcess, holder: SimulatedProcess | None, evidence: str
    ) -> None:
        name, now = self._world.call_name, self._world.now
        could_touch = holder is not None and holder.alive and now - holder.hindered_at > MAX_UPDATE
        if name == "release_unknown_claims":
            is_known = holder is not caller or claim in self._history.began
            forbid(is_known, "only a claim unknown to its process is released unstarted", evidence)
            self._history.released_as_unknown.add(claim)
        elif name == "release_tasks_of_process":
            forbid(could_touch, "only tasks of a dead process are released at once", evidence)
            self._history.count("taken back")
        else:
            forbid(name != "rescue_untouched", "only a permitted operation ends a claim", evidence)
            is_living = could_touch and not self._world.clock_was_stepped(within=MAX_UPDATE)
            forbid(is_living, "no task that a living holder can touch is rescued", evidence)
            self._history.count("rescued")

    def _judge_outcome(
        self, claim: ClaimKey, after: ObservedTask, holder: SimulatedProcess | None, evidence: str
    ) -> None:
        ended, has_begun = self._history.ended.get(claim), claim in self._history.began
        is_done = after.status == "done"
        forbid(claim not in self._history.claimed, "an outcome is written under the lease of its claim", evidence)
        forbid(has_begun and ended is None, "an outcome is written after the handler has ended", evidence)
        did_more = is_done and ended is not None and ended != "done"
        forbid(did_more, "a task is done only if its handler was", evidence)
        forbid(is_done and after.result != str(after.lease), "the result is that of the claim", evidence)
        is_other = holder is None or self._world.caller is not holder
        forbid(is_other, "an outcome is written by its holder", evidence)
        is_given_up = after.status == "dead" and after.name in ONLY_NEW and not has_begun
        forbid(is_given_up, "a task that other code knows is not made dead", evidence)
        self._history.count("outcomes")

    def judge_beginning(self, process: SimulatedProcess, claim: ClaimKey, crashes: int) -> None:
        """A handler begins."""
        row, beside = self.rows.get(claim[0]), process.running
        evidence = f"{claim} in {process} beside {list(beside)}; {row}"
        is_new = row is not None and row.name in ONLY_NEW and process.node.has_old_code
        forbid(is_new, "no process runs a task that its code does not know", evidence)
        forbid(claim in self._history.began, "a claim is run once", evidence)
        forbid(claim in self._history.released_as_unknown, "a released claim is not run", evidence)
        is_own = self._history.claimed.get(claim) == process.process_id
        forbid(not is_own, "a handler runs under its own process's claim", evidence)
        crashed = crashes or any(ctx.task.crashes for ctx in beside.values())
        forbid(beside and crashed, "a task that crashed a process runs alone", evidence)
        is_full = len(beside) >= self._world.plan.executor_slots
        forbid(is_full, "a process runs no more tasks than it has executor slots", evidence)

    def judge_accepted(self, task_id: int) -> None:
        """An enqueue was acknowledged: the row is there."""
        is_there = task_id in self.rows.keys() | self._history.deleted_by_hand | self._history.deleted_by_clients
        forbid(not is_there, "nothing is lost", f"task {task_id} was accepted, and is not there")

    def judge_uncaught(self, process: SimulatedProcess, reason: str) -> None:
        raise InvariantViolation("no exception goes uncaught", f"{process}: {reason}")

    def judge_the_end(self) -> None:
        """All tasks have ended; each run is explained by an attempt."""
        attempts = self._observer.attempts()
        explained = {one.claim for one in attempts} | self._history.taken_by_sql
        for claim in sorted(self._history.began):
            row = self.rows.get(claim[0])  # None: deleted by rule, with its attempts
            is_open = row is not None and claim not in explained and not self._is_done_by(claim, row)
            forbid(is_open, "each run is explained by its attempt", claim, row)
        for one in attempts:
            forbid(one.claim not in self._history.claimed, "each attempt has a claim", one)
        for row in self.rows.values():
            if row.id not in self._history.retried_by_hand:
                _judge_attempts(row, [one for one in attempts if one.task_id == row.id and one.number > 0])

    def _is_done_by(self, claim: ClaimKey, row: ObservedTask) -> bool:
        """Whether this run is the one that succeeded, or that had succeeded before a retry by hand."""
        if row.id in self._history.retried_by_hand:
            return self._history.ended.get(claim) == "done"
        return row.status == "done" and row.lease == claim[1]


def _judge_attempts(row: ObservedTask, counted: list[ObservedAttempt]) -> None:
    forbid(row.attempts != len(counted), "the attempts are counted", row, counted)
    numbers = [one.number for one in counted]
    forbid(numbers != list(range(1, len(counted) + 1)), "the attempts are numbered", row, counted)
    forbid(row.max_attempts is not None and row.attempts > row.max_attempts, "no more attempts than allowed", row)


def _is_due(row: ObservedTask, now: str) -> bool:
    if row.status != "pending" or row.node_id is not None:
        return False
    return (row.start_at or row.created_at) <= now and (row.finish_at is None or now < row.finish_at)


def _describe(row: ObservedTask | None) -> str:
    if row is None:
        return "-"
    return f"task {row.id} {row.name} {row.status} lease {row.lease} attempts {row.attempts} of {row.process_id}"
