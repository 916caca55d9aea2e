"""What must hold for the jobs that queue clients have reserved, whatever dies, freezes or loses an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tests.simulation.faults import BATCH
from tests.simulation.history import ClaimKey, InvariantViolation, forbid
from tests.simulation.observer import ObservedTask
from tests.simulation.plan import TUBE
from tests.simulation.services import CLIENT_POLL_EVERY

if TYPE_CHECKING:
    from tests.simulation.queue_clients import ClientConnection, SentCommand
    from tests.simulation.world import World

RELEASED_WITHIN: Final = 20.0
"""Seconds from the end of a connection, or from a deadline, until the release is written, by calls that are slow."""
GRANTED_WITHIN: Final = 3 * CLIENT_POLL_EVERY
CLOCK_SLACK: Final = 0.01
NO_CLAIM: Final = (0, 0)


class ObservedReservation(msgspec.Struct):
    connection: ClientConnection
    deadline: float
    verbs: set[str]
    """What the client has sent about the job since."""


class ReservationRules:
    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[ClaimKey, ObservedReservation] = {}
        self._deletes: dict[int, list[ClientConnection]] = {}
        self._takes: dict[int, list[ClientConnection]] = {}
        self._kicks: list[ClientConnection] = []
        self._ready_since: dict[int, float] = {}

    def note_sent(self, connection: ClientConnection, verb: str, job: int) -> None:
        known = self._known.get(connection.client.held.get(job, NO_CLAIM))
        if known is not None:
            known.verbs.add(verb)
        if verb == "delete":
            self._deletes.setdefault(job, []).append(connection)
        if verb in ("kick", "kick-job"):
            self._kicks.append(connection)
        if verb == "reserve-job":
            self._takes.setdefault(job, []).append(connection)

    def note_touched(self, claim: ClaimKey | None, sent_at: float, connection: ClientConnection) -> None:
        """A touch was answered: the deadline counts from when it was sent, at the least."""
        known = None if claim is None else self._known.get(claim)
        if known is not None and claim is not None:
            process = connection.process
            elapsed = process.world.now - sent_at
            known.deadline = max(known.deadline, process.monotonic() - elapsed + self._ttr(claim))

    def judge_granted(self, connection: ClientConnection, claim: ClaimKey) -> None:
        known = self._known.get(claim)
        if known is not None:
            raise InvariantViolation(
                "a reservation has one client", f"{claim} of {known.connection.client} and {connection.client}"
            )
        deadline = connection.process.monotonic() + self._ttr(claim)
        self._known[claim] = ObservedReservation(connection, deadline, set())
        self._world.history.count("reservations")

    def judge_timed_out(self, sent: SentCommand) -> None:
        if self._world.now - sent.at < sent.timeout - CLOCK_SLACK:
            raise InvariantViolation("a reserve does not time out too early", f"{sent} at {self._world.now}")

    def judge_answered(self, sent: SentCommand, word: str, claim: ClaimKey | None) -> None:
        """A client was told that it has ended a reservation, or deleted a job: it is written."""
        row = self._world.rules.rows.get(sent.job)
        holds = row is not None and row.status == "working" and row.claim == claim
        if holds or (word == "DELETED" and row is not None):
            raise InvariantViolation("what is answered is written", f"{word} for {sent}: {row}")

    def judge_not_found(self, connection: ClientConnection, sent: SentCommand, claim: ClaimKey) -> None:
        row = self._world.rules.rows.get(sent.job)
        known = self._known.get(claim)
        is_held = known is not None and row is not None and row.status == "working" and row.claim == claim
        if is_held and known is not None and connection.process.monotonic() < known.deadline:
            raise InvariantViolation("a holder is not refused", f"NOT_FOUND for {sent}: {row}")

    def judge_change(self, before: ObservedTask | None, after: ObservedTask | None) -> None:
        evidence = f"{before} -> {after} by {self._world.by()}"
        if after is not None and after.status == "working":
            holder = self._world.holder_of(after)
            by_gateway = holder is not None and holder.info.role == "gateway"
            if by_gateway is not (after.deadline_at is not None):
                raise InvariantViolation("a reservation has a deadline, a claim has none", evidence)
        if before is None or not is_reservation(before):
            return
        ends = after is None or after.status != "working" or after.lease != before.lease
        if not ends or after is None or self._world.call_name == "move by hand":
            return
        if after.status != "working" and after.deadline_at is not None:
            raise InvariantViolation("a deadline ends with its reservation", evidence)
        if self._world.caller is not None:
            self._judge_counters(before, after, evidence)

    def _judge_counters(self, before: ObservedTask, after: ObservedTask, evidence: str) -> None:
        if (after.attempts, after.crashes) != (before.attempts, before.crashes):
            raise InvariantViolation("the end of a reservation is no attempt and no crash", evidence)
        counted = ((after.timeouts or 0) + (after.releases or 0)) - ((before.timeouts or 0) + (before.releases or 0))
        if self._world.call_name != BATCH:
            forbid(counted, "what dies with its holder is not counted", evidence)
            if after.status != "pending" or (after.start_at or "") > self._world.database_text():
                raise InvariantViolation("a dead holder's job is ready at once", evidence)

    def judge_end(self, before: ObservedTask, after: ObservedTask | None) -> None:
        evidence = f"{before} -> {after} by {self._world.by()}"
        forbid(self._world.holder_of(before) is not self._world.caller, "only its holder ends a reservation", evidence)
        known = self._known.get(before.claim)
        self._world.history.count("reservations ended")
        if known is None:
            if after is None or after.status == "buried":
                raise InvariantViolation("a client ends only a reservation that it knows", evidence)
            return
        if after is None or after.status == "buried":
            verb = "delete" if after is None else "bury"
            was_ready = after is None and self._may_have_ended(known) and self.may_delete(before)
            if verb not in known.verbs and not was_ready:
                raise InvariantViolation("a job is deleted and buried by its holder only", f"no {verb}: {evidence}")
        elif known.connection.process.monotonic() >= known.deadline - CLOCK_SLACK:
            return
        elif (after.timeouts or 0) > (before.timeouts or 0):
            raise InvariantViolation("a reservation lasts until its deadline", f"{known.deadline}: {evidence}")
        elif known.connection.is_open and "release" not in known.verbs and not self._may_be_kicked(known):
            raise InvariantViolation("a reservation is not taken from a client that holds it", evidence)

    def _may_have_ended(self, known: ObservedReservation) -> bool:
        """Whether a batch may end a reservation before it does more with the job."""
        is_over = known.connection.process.monotonic() >= known.deadline - CLOCK_SLACK
        return is_over or "release" in known.verbs or not known.connection.is_open

    def _may_be_kicked(self, known: ObservedReservation) -> bool:
        """Whether one batch may bury a job for its holder and kick it: the table shows only what comes of both."""
        return "bury" in known.verbs and any(one.process is self._world.caller for one in self._kicks)

    def may_delete(self, before: ObservedTask) -> bool:
        return any(connection.process is self._world.caller for connection in self._deletes.get(before.id, ()))

    def may_take(self, row: ObservedTask) -> bool:
        """Whether clients of a process have asked for this very job, or have kicked jobs: one batch does both."""
        asked = (*self._takes.get(row.id, ()), *self._kicks)
        return any(connection.process is self._world.caller for connection in asked)

    def judge_step(self) -> None:
        rows, now = self._world.rules.rows, self._world.now
        for claim, known in list(self._known.items()):
            row = rows.get(claim[0])
            if row is None or row.claim != claim or not is_reservation(row):
                del self._known[claim]
                continue
            process = known.connection.process
            if not process.alive or process.asked_to_stop or now - process.hindered_at < RELEASED_WITHIN:
                continue
            closed_at = known.connection.closed_at
            if closed_at is not None and now - closed_at > RELEASED_WITHIN:
                raise InvariantViolation("a job is released when its connection is closed", f"{row} of {process}")
            if process.monotonic() - known.deadline > RELEASED_WITHIN:
                raise InvariantViolation("a job is released when its deadline comes", f"{row} of {process}")

    def judge_waiting(self) -> None:
        now = self._world.database_text()
        ready: set[int] = set()
        if any(client.waits for client in self._world.clients):
            ready = {row.id for row in self._world.rules.rows.values() if is_ready(row, now)}
        self._ready_since = {one: self._ready_since.get(one, self._world.now) for one in sorted(ready)}
        for job, since in self._ready_since.items():
            if self._world.now - since > GRANTED_WITHIN:
                raise InvariantViolation("a client that waits gets a ready job", f"{self._world.rules.rows[job]}")

    def _ttr(self, claim: ClaimKey) -> float:
        row = self._world.rules.rows.get(claim[0])
        return 0.0 if row is None or row.claim != claim else float(row.ttr or 60)


def is_reservation(row: ObservedTask) -> bool:
    return row.status == "working" and row.deadline_at is not None


def is_ready(row: ObservedTask, now: str) -> bool:
    if row.queue != TUBE or row.status != "pending" or row.node_id is not None or row.crashes:
        return False
    return (row.start_at or row.created_at) <= now
