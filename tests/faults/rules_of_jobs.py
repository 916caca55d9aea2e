"""Rules about the jobs of queue clients: none is lost, each has one holder, and the end of a holder is not counted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from math import inf
from typing import Final, NamedTuple

from tests.faults.case import DELETED, ClaimRecord, Key, RuleViolation, RunRecord
from tests.faults.final_tables import AuditEntry, key_of
from tests.faults.history import HistoryEvent

ENDS_OF_RESERVATIONS: Final = ("delete", "release", "bury")
ANSWER_SLACK: Final = 0.002
"""Seconds by which an answer may seem to come before its write: SQLite's clock has milliseconds."""
DEADLINE_SLACK: Final = 0.5
"""Seconds by which a deadline may come early in the eyes of the client, whose answer was on its way."""
SETTLES_WITHIN: Final = 1.0
"""Seconds from the end of a process to the disruption that explains it, at the most."""


class SeenReservation(NamedTuple):
    """A reservation that a client was told of, and until when it held the job by what it knew."""

    claim: ClaimRecord
    event: HistoryEvent
    held_until: float


def every_inserted_job_is_deleted_by_its_holder(case: RunRecord) -> Iterator[RuleViolation]:
    """An answered put is in the table; a row is deleted by a client that holds it, and all are in the end."""
    inserted = {event.task: event for event in case.events if event.event == "inserted"}
    for job in sorted(inserted.keys() - case.jobs.keys()):
        yield case.problem("jobs lost", job, "its put was answered, and it was never in the table")
    known = {event.key for event in case.events if event.event in ("inserted", "unsure")}
    by_key: dict[str, list[int]] = defaultdict(list)
    for job, changes in case.jobs.items():
        by_key[key_of(changes[0].details)].append(job)
        if changes[-1].what != "delete":
            yield case.problem("jobs lost", job, f"nobody has deleted it: it is {changes[-1].new_status}")
        elif problem := _why_deleted_wrongly(case, job, changes[-1]):
            yield case.problem("jobs lost", job, problem)
    for key, jobs in by_key.items():
        if len(jobs) > 1 or key not in known:
            yield case.problem("jobs lost", jobs[0], f"its key {key} was written {len(jobs)} times, or by nobody")


def _why_deleted_wrongly(case: RunRecord, job: int, gone: AuditEntry) -> str:
    asked = {
        event.connection
        for event in case.events_of[job]
        if event.event == "finishing" and event.action == "delete" and event.time <= gone.at + ANSWER_SLACK
    }
    if gone.old_status != "working":  # any client may delete it, such as one whose deadline has just come
        return "" if asked else f"it was deleted while it was {gone.old_status}, and no client has asked for that"
    holders = {seen.event.connection for seen in seen_reservations(case).get((job, gone.old_lease or 0), ())}
    return (
        ""
        if asked & holders
        else f"it was deleted at lease {gone.old_lease}, and no client that held it has asked for that"
    )


def every_answer_is_written(case: RunRecord) -> Iterator[RuleViolation]:
    """What a client was told that it has deleted is deleted, at the latest when it was told."""
    for event in case.events:
        if event.event != "finished" or event.outcome != "deleted":
            continue
        changes = case.jobs.get(event.task, ())
        if not changes or changes[-1].what != "delete" or changes[-1].at > event.time + case.settings.clock_slack:
            yield case.problem(
                "jobs lost", event.task, f"{event.connection} was told that it is deleted, and it was not"
            )


def each_reservation_has_one_holder(case: RunRecord) -> Iterator[RuleViolation]:
    """A reservation is given to one client, and stays its own until it ends it, leaves, or its deadline comes.

    It is taken from a client before that only when its process was in trouble.
    """
    for (job, lease), reservations in seen_reservations(case).items():
        if len(reservations) > 1:
            names = [seen.event.connection for seen in reservations]
            yield case.problem("jobs held", job, f"its reservation {lease} was given to {names}")
        for seen in reservations:
            claim = seen.claim
            too_early = seen.held_until - claim.ended_at
            troubles = case.disruptions.of(claim.process_id, claim.change.at, claim.ended_at + SETTLES_WITHIN)
            if claim.label != DELETED and too_early > DEADLINE_SLACK and not troubles:
                text = f"its reservation {lease} was taken from {seen.event.connection} {too_early:.3f} s too early"
                yield case.problem("jobs held", job, f"{text}, and nothing has hurt process {claim.process_id}")


def nothing_is_counted(case: RunRecord) -> Iterator[RuleViolation]:
    """A reservation is no attempt, and the death of its process is no crash of its job."""
    for job, changes in case.jobs.items():
        for change in changes:
            if change.new_attempts or change.crashes:
                text = f"change #{change.seq} has {change.new_attempts} attempts and {change.crashes} crashes"
                yield case.problem("jobs counted", job, text)
                break
    for attempt in case.attempts_of_jobs:
        yield case.problem("jobs counted", attempt.task_id, f"an attempt is recorded: {attempt.outcome}")


def is_taken_back(case: RunRecord, claim: ClaimRecord) -> bool:
    """Whether a reservation ended because its process was dead or silent, and not by its client."""
    ended = claim.ended
    return (
        ended is not None
        and ended.what != "delete"
        and bool(case.disruptions.of(claim.process_id, claim.change.at, ended.at))
    )


def seen_reservations(case: RunRecord) -> dict[Key, list[SeenReservation]]:
    """The reservations that clients were told of, by job and lease."""
    return _seen(case)


@cache
def _seen(case: RunRecord) -> dict[Key, list[SeenReservation]]:
    server = {event.connection: event.server for event in case.events if event.event == "opened"}
    closed = {event.connection: event.time for event in case.events if event.event == "closed"}
    pids = {row.id: row.pid for row in case.tables.processes}
    found: dict[Key, list[SeenReservation]] = defaultdict(list)
    for event in reversed(case.events):
        if event.event != "reserved":
            continue
        earlier = [
            claim
            for key, claim in _of_job(case).get(event.task, ())
            if claim.change.at <= event.time + (0.0 if key in found else ANSWER_SLACK)
            and pids.get(claim.process_id or 0) == server.get(event.connection)
        ]
        if earlier:
            claim = max(earlier, key=lambda one: one.lease)
            held_until = min(
                closed.get(event.connection, inf), _ends_at(case, event), claim.change.at + _ttr(case, event)
            )
            found[claim.task, claim.lease].append(SeenReservation(claim, event, held_until))
    return found


@cache
def _of_job(case: RunRecord) -> dict[int, list[tuple[Key, ClaimRecord]]]:
    found: dict[int, list[tuple[Key, ClaimRecord]]] = defaultdict(list)
    for key, claim in case.reservations.items():
        found[key[0]].append((key, claim))
    return found


def _ends_at(case: RunRecord, reserved: HistoryEvent) -> float:
    """When the client began to end the reservation by itself."""
    return min(
        (
            event.time
            for event in case.events_of[reserved.task]
            if event.event == "finishing" and event.connection == reserved.connection and event.at >= reserved.at
        ),
        default=inf,
    )


def _ttr(case: RunRecord, reserved: HistoryEvent) -> float:
    return float(json.loads(case.jobs[reserved.task][0].details or "{}")["ttr"])


RULES: Final = (
    every_inserted_job_is_deleted_by_its_holder,
    every_answer_is_written,
    each_reservation_has_one_holder,
    nothing_is_counted,
)
