"""What must hold for the jobs that queue clients have reserved, whatever dies, freezes or loses an answer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from tests.simulation.faults import BATCH
from tests.simulation.history import ClaimKey, forbid
from tests.simulation.observer import ObservedTask
from tests.simulation.plan import TUBE
from tests.simulation.services import CLIENT_POLL_EVERY

if TYPE_CHECKING:
    from tests.simulation.queue_clients import ClientConnection, SentCommand
    from tests.simulation.world import World

RELEASED_WITHIN: Final = 20.0
GRANTED_WITHIN: Final = 3 * CLIENT_POLL_EVERY
CLOCK_SLACK: Final = 0.01
NO_CLAIM: Final = (0, 0)


class ObservedReservation(msgspec.Struct):
    """A reservation that a client has been told of, and what the client has sent about the job since."""

    connection: ClientConnection
    deadline: float
    """By the monotonic clock of the process's machine."""
    verbs: set[str]

    @property
    def is_over(self) -> bool:
        return self.connection.process.monotonic() >= self.deadline - CLOCK_SLACK


class ReservationRules:
    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[ClaimKey, ObservedReservation] = {}
        self._asked: defaultdict[tuple[str, int], list[ClientConnection]] = defaultdict(list)
        """Who has sent a verb about a job."""
        self._ready_since: dict[int, float] = {}

    def note_sent(self, connection: ClientConnection, verb: str, job: int) -> None:
        known = self._known.get(connection.client.held.get(job, NO_CLAIM))
        if known is not None:
            known.verbs.add(verb)
        self._asked[verb, job].append(connection)

    def note_touched(self, claim: ClaimKey | None, sent_at: float, connection: ClientConnection) -> None:
        """A touch was answered: the deadline counts from when it was sent, at the least."""
        known = None if claim is None else self._known.get(claim)
        if known is not None and claim is not None:
            since = connection.process.monotonic() - (self._world.now - sent_at)
            known.deadline = max(known.deadline, since + self._ttr(claim))

    def judge_granted(self, connection: ClientConnection, claim: ClaimKey) -> None:
        known = self._known.get(claim)
        forbid(known is not None, "a reservation has one client", claim, known, connection.client)
        deadline = connection.process.monotonic() + self._ttr(claim)
        self._known[claim] = ObservedReservation(connection, deadline, set())
        self._world.history.count("reservations")

    def judge_timed_out(self, sent: SentCommand) -> None:
        is_early = self._world.now - sent.at < sent.timeout - CLOCK_SLACK
        forbid(is_early, "a reserve does not time out too early", sent, self._world.now)

    def judge_answered(self, sent: SentCommand, word: str, claim: ClaimKey | None) -> None:
        """A client was told that it has ended a reservation, or deleted a job: it is written."""
        row = self._world.rules.rows.get(sent.job)
        holds = row is not None and row.status == "working" and row.claim == claim
        forbid(holds or (word == "DELETED" and row is not None), "what is answered is written", word, sent, row)

    def judge_not_found(self, connection: ClientConnection, sent: SentCommand, claim: ClaimKey) -> None:
        """A client was told that it does not hold a job."""
        row, known = self._world.rules.rows.get(sent.job), self._known.get(claim)
        is_held = known is not None and row is not None and row.status == "working" and row.claim == claim
        holds = is_held and known is not None and connection.process.monotonic() < known.deadline
        forbid(holds, "a holder is not refused", sent, row)

    def judge_change(self, before: ObservedTask | None, after: ObservedTask | None, evidence: str) -> None:
        if after is not None and after.status == "working":
            holder = self._world.holder_of(after)
            by_gateway = holder is not None and holder.link.role == "gateway"
            is_wrong = by_gateway is not (after.deadline_at is not None)
            forbid(is_wrong, "a reservation has a deadline, a claim has none", evidence)
        if before is None or after is None or not is_reservation(before):
            return
        if (after.status, after.lease) == ("working", before.lease):
            return
        keeps = after.status != "working" and after.deadline_at is not None
        forbid(keeps, "a deadline ends with its reservation", evidence)
        if self._world.caller is None:
            return
        counts = (after.attempts, after.crashes) != (before.attempts, before.crashes)
        forbid(counts, "the end of a reservation is no attempt and no crash", evidence)
        if self._world.call_name != BATCH:
            forbid(_ends_counted(after) - _ends_counted(before), "what dies with its holder is not counted", evidence)
            waits = after.status != "pending" or (after.start_at or "") > self._world.database_text()
            forbid(waits, "a dead holder's job is ready at once", evidence)

    def judge_end(self, before: ObservedTask, after: ObservedTask | None, evidence: str) -> None:
        """A batch of a gateway process has ended a reservation: its holder, for a reason."""
        forbid(self._world.holder_of(before) is not self._world.caller, "only its holder ends a reservation", evidence)
        known = self._known.get(before.claim)
        self._world.history.count("reservations ended")
        is_for_good = after is None or after.status == "buried"
        if known is None:
            forbid(is_for_good, "a client ends only a reservation that it knows", evidence)
            return
        if is_for_good:
            verb = "delete" if after is None else "bury"
            # One batch may bury a job for its holder, and delete or kick it: the table shows only what comes of both.
            may_have_ended = known.is_over or known.verbs & {"release", "bury"} or not known.connection.is_open
            was_ready = after is None and may_have_ended and self.may_delete(before)
            is_wrong = verb not in known.verbs and not was_ready
            forbid(is_wrong, "a job is deleted and buried by its holder only", verb, evidence)
        elif not known.is_over and after is not None:
            timed_out = (after.timeouts or 0) > (before.timeouts or 0)
            forbid(timed_out, "a reservation lasts until its deadline", known.deadline, evidence)
            may_be_kicked = "bury" in known.verbs and self._has_kicked()
            is_wrong = known.connection.is_open and "release" not in known.verbs and not may_be_kicked
            forbid(is_wrong, "a reservation is not taken from a client that holds it", evidence)

    def _has_asked(self, *questions: tuple[str, int]) -> bool:
        asked = (connection for question in questions for connection in self._asked[question])
        return any(connection.process is self._world.caller for connection in asked)

    def _has_kicked(self) -> bool:
        return self._has_asked(*(one for one in [*self._asked] if one[0] in ("kick", "kick-job")))

    def may_delete(self, before: ObservedTask) -> bool:
        """Whether a batch may delete a row that nobody holds."""
        return self._has_asked(("delete", before.id))

    def may_take(self, row: ObservedTask) -> bool:
        """Whether clients of a process have asked for this very job, or have kicked jobs: one batch does both."""
        return self._has_asked(("reserve-job", row.id)) or self._has_kicked()

    def judge_step(self) -> None:
        """What a closed connection held, and what is over its deadline, is released soon."""
        for claim, known in list(self._known.items()):
            row = self._world.rules.rows.get(claim[0])
            if row is None or row.claim != claim or not is_reservation(row):
                del self._known[claim]
                continue
            process, now = known.connection.process, self._world.now
            if not process.alive or process.asked_to_stop or now - process.hindered_at < RELEASED_WITHIN:
                continue
            closed_at = known.connection.closed_at
            is_left = closed_at is not None and now - closed_at > RELEASED_WITHIN
            forbid(is_left, "a job is released when its connection is closed", row, process)
            is_late = process.monotonic() - known.deadline > RELEASED_WITHIN
            forbid(is_late, "a job is released when its deadline comes", row, process)

    def judge_waiting(self) -> None:
        """Without faults, no ready job of a tube waits while a client waits for it."""
        now, rows = self._world.database_text(), self._world.rules.rows
        waits = any(client.waits for client in self._world.clients)
        ready = sorted(row.id for row in rows.values() if waits and _is_ready(row, now))
        self._ready_since = {one: self._ready_since.get(one, self._world.now) for one in ready}
        for job, since in self._ready_since.items():
            forbid(self._world.now - since > GRANTED_WITHIN, "a client that waits gets a ready job", rows[job])

    def _ttr(self, claim: ClaimKey) -> float:
        row = self._world.rules.rows.get(claim[0])
        return 0.0 if row is None or row.claim != claim else float(row.ttr or 60)


def is_reservation(row: ObservedTask) -> bool:
    return row.status == "working" and row.deadline_at is not None


def _ends_counted(row: ObservedTask) -> int:
    return (row.timeouts or 0) + (row.releases or 0)


def _is_ready(row: ObservedTask, now: str) -> bool:
    """Whether any gateway process may reserve it."""
    is_free = row.queue == TUBE and row.status == "pending" and row.node_id is None and not row.crashes
    return is_free and (row.start_at or row.created_at) <= now
