"""The invariants 1 to 6 of the design, checked after every step and at the end of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from peerd.domain.lifecycle import FINISHED, TRANSITIONS, Status
from tests.simulation.faults import BATCH
from tests.simulation.history import ClaimKey, InvariantViolation, forbid
from tests.simulation.limit_rules import LimitRules
from tests.simulation.observer import ObservedChange, ObservedTask, Observer
from tests.simulation.plan import MAX_UPDATE, QUEUES
from tests.simulation.reservation_rules import ReservationRules, is_reservation
from tests.simulation.services import MAX_COMPLETED, POLL_EVERY, UPDATE
from tests.simulation.versions import judge_beginning, judge_dead

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
        for change in self._observer.changes():
            before, after = change.before, change.after
            self._world.note(f"    {_describe(before)} -> {_describe(after)}")
            self.reservations.judge_change(before, after)
            if before is None:
                self._note_insert(after)
                continue
            if after is None:
                self._judge_deletion(before)
                continue
            self._judge_status(before, after)
            self._judge_lease(before, after)
            if before.status == "working" and (after.status != "working" or after.lease != before.lease):
                self._judge_end_of_claim(before, after)
            if after.lease != before.lease and after.status == "working":
                self._judge_claim(before, after)
                claimed.append(after)
            self._judge_unique(change)
        self._limits.judge(claimed, self.rows.values())
        self._judge_running()
        self.reservations.judge_step()

    def _note_insert(self, after: ObservedTask | None) -> None:
        """A task was inserted; one batch of a gateway process can put a job and reserve it."""
        if after is not None and after.status == "working" and after.process_id is not None:
            self._history.claimed[after.claim] = after.process_id

    def _judge_running(self) -> None:
        for process in self._world.processes:
            if not process.alive:
                continue
            for claim, ctx in process.running.items():
                row = self.rows.get(claim[0])
                if row is not None and (row.status, row.lease) == ("working", claim[1]):
                    self._lost_at.pop(claim, None)
                    continue
                since = max(
                    self._lost_at.setdefault(claim, self._world.now), process.hindered_at, process.unresponsive_until
                )
                ended = claim in self._history.ended or ctx._cancelled
                if not ended and self._world.now - since > NOTICED_WITHIN:
                    raise InvariantViolation(
                        "a holder learns that it has lost its claim", f"{claim} in {process}: {row}"
                    )

    def judge_waiting(self) -> None:
        self.reservations.judge_waiting()
        rows = self.rows.values()
        startable = set()
        if any(process.has_free_executor_slot for process in self._world.processes) and not any(
            row.crashes for row in rows
        ):
            now = self._world.database_text()
            startable = {
                row.id
                for row in rows
                if _is_due(row, now) and row.queue in QUEUES and self._limits.leaves_room(row, rows)
            }
        self._waiting_since = {one: self._waiting_since.get(one, self._world.now) for one in startable}
        for task_id, since in self._waiting_since.items():
            if self._world.now - since > STARTED_WITHIN:
                raise InvariantViolation("a startable task is started", f"{self.rows[task_id]} waits since {since}")

    def _judge_deletion(self, before: ObservedTask) -> None:
        if before.id in self._history.deleted_by_hand:
            return
        if self._world.call_name == BATCH and self._world.caller is not None:
            self._judge_deletion_by_client(before)
            return
        age = MAX_FAILED if before.status == "dead" else MAX_COMPLETED
        over = before.finished_at or before.updated_at
        if before.status in FINISHED and over <= self._world.database_text(ago=age):
            return
        if before.status == "pending" and before.finish_at and before.finish_at <= self._world.database_text():
            return
        raise InvariantViolation("nothing is lost", f"{before} was deleted by {self._world.by()}")

    def _judge_deletion_by_client(self, before: ObservedTask) -> None:
        self._history.deleted_by_clients.add(before.id)
        if is_reservation(before):
            self.reservations.judge_end(before, None)
        elif before.status == "working" or before.status in FINISHED or not self.reservations.may_delete(before):
            raise InvariantViolation("a client deletes only a job that it asked for", f"{before} by {self._world.by()}")

    def _judge_status(self, before: ObservedTask, after: ObservedTask) -> None:
        if before.status != after.status and (before.status, after.status) not in STEPS:
            raise InvariantViolation(
                "a status changes only by a transition", f"{before} -> {after} by {self._world.by()}"
            )

    def _judge_lease(self, before: ObservedTask, after: ObservedTask) -> None:
        if after.lease < before.lease or after.lease > before.lease + 1:
            raise InvariantViolation("a lease grows by one", f"{before} -> {after} by {self._world.by()}")
        if before.status != "working" and after.status == "working" and after.lease == before.lease:
            raise InvariantViolation("a claim raises the lease", f"{before} -> {after} by {self._world.by()}")
        if before.status == "working" and self._world.call_name in BY_HAND and after.lease == before.lease:
            raise InvariantViolation(
                "taking a task from its holder raises the lease", f"{before} -> {after} by {self._world.by()}"
            )

    def _judge_claim(self, before: ObservedTask, after: ObservedTask) -> None:
        evidence = f"{before} -> {after} by {self._world.by()}"
        caller = self._world.caller
        now = self._world.database_text()
        is_taken = self._world.call_name == BATCH and self.reservations.may_take(before)
        is_staged = self._world.call_name == BATCH and before.status in ("scheduled", "failure")
        if before.status != "pending" and not (is_taken or is_staged or is_reservation(before)):
            raise InvariantViolation("only pending tasks are claimed", evidence)
        if caller is None or after.process_id != caller.process_id:
            raise InvariantViolation("a claimer claims for itself", evidence)
        assert after.process_id is not None
        self._history.claimed[after.claim] = after.process_id
        if is_taken:
            return
        if (before.start_at and before.start_at > now) or (before.finish_at and before.finish_at <= now):
            raise InvariantViolation("a task is claimed between start_at and finish_at", evidence)
        forbid(before.node_id not in (None, after.worker_node_id), "a pinned task is claimed by its node", evidence)
        forbid(self._observer.is_paused(before.queue, now), "no task of a paused queue is claimed", evidence)
        if not self._observer.is_on_duty(after.worker_node_id or 0):
            raise InvariantViolation("a draining or ended node claims nothing", evidence)
        forbid(before.crashes and caller.running, "a task that crashed a process runs alone", evidence)
        self._history.count("claims")

    def _judge_end_of_claim(self, before: ObservedTask, after: ObservedTask) -> None:
        """A claim ended: by its holder, by hand, or because its holder is dead or was unreachable for long."""
        claim, name, caller = before.claim, self._world.call_name, self._world.caller
        evidence = f"{before} -> {after} by {self._world.by()}"
        if name == "move by hand":
            self._history.taken_by_sql.add(claim)
        if caller is None or name in BY_HAND:
            return
        holder = self._world.holder_of(before)
        if is_reservation(before) and name == BATCH:
            self.reservations.judge_end(before, after)
        elif name in OUTCOMES:
            self._judge_outcome(claim, after, holder, evidence)
        else:
            self._judge_taking_back(claim, caller, holder, evidence)

    def _judge_taking_back(
        self, claim: ClaimKey, caller: SimulatedProcess, holder: SimulatedProcess | None, evidence: str
    ) -> None:
        name = self._world.call_name
        if name == "release_unknown_claims":
            if holder is not caller or claim in self._history.began:
                raise InvariantViolation("only a claim unknown to its process is released unstarted", evidence)
            self._history.released_as_unknown.add(claim)
        elif name == "release_tasks_of_process":
            if holder is not None and holder.alive and not self._was_away(holder):
                raise InvariantViolation("only tasks of a dead process are released at once", evidence)
            self._history.count("taken back")
        elif name == "rescue_untouched":
            could_touch = holder is not None and holder.alive and not self._was_away(holder)
            if could_touch and not self._world.clock_was_stepped(within=MAX_UPDATE):
                raise InvariantViolation("no task that a living holder can touch is rescued", evidence)
            self._history.count("rescued")
        else:
            raise InvariantViolation("only a permitted operation ends a claim", evidence)

    def _judge_outcome(
        self, claim: ClaimKey, after: ObservedTask, holder: SimulatedProcess | None, evidence: str
    ) -> None:
        ended = self._history.ended.get(claim)
        released_unstarted = after.status == "pending" and claim not in self._history.began
        forbid(self._history.claimed.get(claim) is None, "an outcome is written under the lease of its claim", evidence)
        if ended is None and not released_unstarted:
            never_begun = claim not in self._history.began  # its arguments did not fit, or a hook failed
            forbid(not never_begun, "an outcome is written after the handler has ended", evidence)
        if ended is not None and after.status == "done" and ended.how != "done":
            raise InvariantViolation("a task is done only if its handler was", evidence)
        forbid(after.status == "done" and after.result != str(after.lease), "the result is that of the claim", evidence)
        if holder is None or (self._world.caller is not holder):
            raise InvariantViolation("an outcome is written by its holder", evidence)
        judge_dead(after, has_begun=claim in self._history.began)
        self._history.count("outcomes")

    def _judge_unique(self, change: ObservedChange) -> None:
        row = change.after
        if row is None or row.unique_key is None or row.status in FINISHED:
            return
        same = [
            one.id
            for one in self.rows.values()
            if one.unique_key == row.unique_key and one.queue == row.queue and one.status not in FINISHED
        ]
        if len(same) > 1:
            raise InvariantViolation("one unfinished task has a unique key", f"{row.unique_key}: {same}")

    def judge_beginning(self, process: SimulatedProcess, claim: ClaimKey, crashes: int) -> None:
        evidence = f"{claim} in {process}; {self.rows.get(claim[0])}"
        judge_beginning(process, self.rows.get(claim[0]))
        forbid(claim in self._history.began, "a claim is run once", evidence)
        forbid(claim in self._history.released_as_unknown, "a released claim is not run", evidence)
        if self._history.claimed.get(claim) != process.process_id:
            raise InvariantViolation("a handler runs under its own process's claim", evidence)
        crashed = crashes or any(ctx.task.crashes for ctx in process.running.values())
        if process.running and crashed:
            raise InvariantViolation(
                "a task that crashed a process runs alone", f"{evidence} beside {list(process.running)}"
            )
        if len(process.running) >= self._world.plan.executor_slots:
            raise InvariantViolation("a process runs no more tasks than it has executor slots", evidence)

    def judge_accepted(self, task_id: int) -> None:
        deleted = self._history.deleted_by_hand | self._history.deleted_by_clients
        if task_id not in self.rows and task_id not in deleted:
            raise InvariantViolation("nothing is lost", f"task {task_id} was accepted, and is not there")

    def judge_uncaught(self, process: SimulatedProcess, reason: str) -> None:
        raise InvariantViolation("no exception goes uncaught", f"{process}: {reason}")

    def judge_the_end(self) -> None:
        attempts = self._observer.attempts()
        recorded = {(one.task_id, one.lease) for one in attempts}
        for claim in sorted(self._history.began):
            row = self.rows.get(claim[0])
            if row is None:
                continue  # deleted by rule, with its attempts
            if not (claim in recorded or self._is_done_by(claim, row) or claim in self._history.taken_by_sql):
                raise InvariantViolation("each run is explained by its attempt", f"{claim}: {row}")
        for one in attempts:
            claim = (one.task_id, one.lease)
            if claim not in self._history.claimed:
                raise InvariantViolation("each attempt has a claim", str(one))
        for row in self.rows.values():
            self._judge_attempts_of(row, [one for one in attempts if one.task_id == row.id])

    def _is_done_by(self, claim: ClaimKey, row: ObservedTask) -> bool:
        """Whether this run is the one that succeeded, or that had succeeded before a retry by hand."""
        if row.id in self._history.retried_by_hand:
            ended = self._history.ended.get(claim)
            return ended is not None and ended.how == "done"
        return row.status == "done" and row.lease == claim[1]

    def _judge_attempts_of(self, row: ObservedTask, attempts: list[Any]) -> None:
        if row.id in self._history.retried_by_hand:
            return
        counted = [one for one in attempts if one.number > 0]
        if row.attempts != len(counted):
            raise InvariantViolation("the attempts are counted", f"{row} has {counted}")
        if [one.number for one in counted] != list(range(1, len(counted) + 1)):
            raise InvariantViolation("the attempts are numbered", f"{row} has {counted}")
        if row.max_attempts is not None and row.attempts > row.max_attempts:
            raise InvariantViolation("no more attempts than allowed", f"{row}")

    def _was_away(self, process: SimulatedProcess) -> bool:
        """Whether a fault kept it from touching within the last max_update seconds."""
        return self._world.now - process.hindered_at <= MAX_UPDATE


def _is_due(row: ObservedTask, now: str) -> bool:
    if row.status != "pending" or row.node_id is not None:
        return False
    return (row.start_at or row.created_at) <= now and (row.finish_at is None or now < row.finish_at)


def _describe(row: ObservedTask | None) -> str:
    if row is None:
        return "-"
    return f"task {row.id} {row.name} {row.status} lease {row.lease} attempts {row.attempts} of {row.process_id}"
