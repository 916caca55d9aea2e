"""Rules about the ends of handlers that are not their own: the kill of a handler is noticed, recycling ends none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.faults.case import RuleViolation, RunRecord
from tests.faults.final_tables import FinalProcess

RECYCLED: Final = "recycled (exit status 75): it has run "
"""How the cause begins of a process that has left by itself, when all that it had was finished."""


def killed_handlers_are_recorded(case: RunRecord) -> Iterator[RuleViolation]:
    """When a handler's own process is killed, its attempt ends soon, whatever its children hold open."""
    last = max((event.time for event in case.events), default=0.0)
    for event in case.events:
        claim = case.claims.get((event.task, event.lease)) if event.event == "dying" else None
        if claim is None:
            continue
        waited = case.disruptions.longest_undisturbed(event.process_id, event.time, min(claim.ended_at, last))
        if waited > case.settings.write_within:
            text = f"its handler at lease {event.lease} was killed, and {waited:.1f} s without trouble later its claim"
            yield case.problem("death", event.task, f"{text} had not ended (it has ended as {claim.label})")


def recycling_ends_no_attempt(case: RunRecord) -> Iterator[RuleViolation]:
    """What a process runs when it is recycled ends in it: nothing is released for it, and nothing is a crash."""
    recycled = {row.id: row for row in case.tables.processes if is_recycled(row)}
    for key, claim in case.claims.items():
        if claim.process_id in recycled and claim.label in ("released", "crash") and case.runs_of.get(key):
            cause = recycled[claim.process_id].cause
            text = f"its claim {claim.lease} ended as {claim.label} while it ran, and its process was {cause}"
            yield case.problem("recycle", claim.task, text)


def is_recycled(row: FinalProcess) -> bool:
    """Whether a process was recycled, and has left by itself."""
    return (row.cause or "").startswith(RECYCLED)


RULES: Final = (killed_handlers_are_recorded, recycling_ends_no_attempt)
