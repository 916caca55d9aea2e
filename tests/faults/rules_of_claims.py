"""Rules about claims: one holder, only its own writes, what it wrote is what happened, extra runs are explained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from tests.faults.case import BY_SQL, DELETED, HAND_LABELS, HELD, ClaimRecord, HandlerRun, RuleViolation, RunRecord
from tests.faults.disruptions import FROZEN

AT_LEASE: Final = re.compile(r"at lease (\d+)")
"""What every planned error and reason of the handlers says."""
COUNTED: Final = ("failure", "dead", "timeout", "crash", "rescued", "canceled")
OF_THE_HOLDER: Final = ("done", "failure", "dead", "timeout", "snoozed", "canceled")
"""Ends of a claim that its holder writes when its handler has ended."""
TAKEN_BY_PEERD: Final = ("crash", "rescued", "released")
CAUSED_BY: Final = {
    "done": ("done",),
    "failure": ("failure",),
    "dead": ("dead", "failure"),
    "snoozed": ("snoozed",),
    "canceled": ("canceled",),
}
"""What a handler must have done for an outcome to be written."""
BECOMES: Final = {
    "done": ("done",),
    "failure": ("failure", "dead", "released"),
    "snoozed": ("snoozed",),
    "canceled": ("canceled",),
    "dead": ("dead",),
    "cancelled": ("released",),
    "crashing": (),
}
"""How the claim of a handler that ended so may end, unless it is taken away."""


def no_stale_write_is_accepted(case: RunRecord) -> Iterator[RuleViolation]:
    """What a holder wrote was written by the present claim, and says what its handler did."""
    for (task, lease), claim in case.claims.items():
        if claim.label not in OF_THE_HOLDER:
            continue
        if problem := _why_another_wrote(claim) or _why_it_did_not_happen(case, claim):
            yield case.problem("stale write", task, f"its claim {lease} ended as {claim.label}, {problem}")
    for row in case.tables.rows:
        if row.status == "done" and (wrote := _lease_in(row.result)) != row.lease:
            yield case.problem("stale write", row.id, f"its lease is {row.lease}, and its result is of {wrote}")


def _lease_in(result: str | None) -> int | None:
    decoded = json.loads(result or "null")
    return decoded.get("lease") if isinstance(decoded, dict) else None


def _why_another_wrote(claim: ClaimRecord) -> str:
    assert claim.ended is not None
    if claim.ended.new_lease != claim.lease:
        return f"with the lease {claim.ended.new_lease}"
    if claim.label == "done":
        wrote = _lease_in(claim.ended.details)
        return "" if wrote == claim.lease else f"with the result of claim {wrote}"
    attempt = claim.attempt
    if attempt is None:
        return ""  # which another rule reports
    if attempt.process_id != claim.process_id:
        return f"by process {attempt.process_id}, and process {claim.process_id} had claimed it"
    named = AT_LEASE.search(attempt.error or "")
    return f"by claim {named[1]}" if named and int(named[1]) != claim.lease else ""


def _why_it_did_not_happen(case: RunRecord, claim: ClaimRecord) -> str:
    """A handler in a process of its own that was killed records nothing; so does one whose finish_at passed before."""
    ended = [run.ended for run in case.runs_of[claim.task, claim.lease] if run.ended is not None]
    limited = case.finish_at(claim.task) is not None and claim.label in ("canceled", "dead")
    if claim.label == "timeout":
        return _why_not_timed_out(case, claim)
    if not ended:
        error = (claim.attempt and claim.attempt.error) or ""
        killed = claim.label in ("failure", "dead") and "the handler's process" in error
        return "" if killed or limited else "and its handler never ended"
    if ended[0].time > claim.ended_at + case.settings.clock_slack:
        return f"{ended[0].time - claim.ended_at:.3f} s before its handler ended"
    if ended[0].outcome not in CAUSED_BY[claim.label] and not limited:
        return f"and its handler ended as {ended[0].outcome}"
    return ""


def _why_not_timed_out(case: RunRecord, claim: ClaimRecord) -> str:
    limit = case.settings.timeouts.get(case.name(claim.task))
    if limit is None:
        return "and it has no timeout"
    ran = claim.ended_at - claim.change.at
    return f"after {ran:.3f} s, before its timeout" if ran < limit - case.settings.clock_slack else ""


def claims_never_overlap(case: RunRecord) -> Iterator[RuleViolation]:
    """A handler runs once for a claim of its own process, and no longer than the claim unless that was taken away."""
    for (task, lease), runs in case.runs_of.items():
        claim = case.claims.get((task, lease))
        if claim is None:
            yield case.problem("overlap", task, f"its handler ran at lease {lease}, which was never claimed")
            continue
        if len(runs) > 1:
            yield case.problem("overlap", task, f"its handler ran {len(runs)} times for the claim {lease}")
        for run in runs:
            if problem := _why_not_its_own(case, claim, run) or _why_ran_past_claim(case, claim, run):
                yield case.problem("overlap", task, f"its handler at lease {lease} {problem}")


def _why_not_its_own(case: RunRecord, claim: ClaimRecord, run: HandlerRun) -> str:
    began = run.began
    if began.process_id != claim.process_id:
        return f"ran in process {began.process_id}, and process {claim.process_id} had claimed it"
    if began.time < claim.change.at - case.settings.clock_slack:
        return f"began {claim.change.at - began.time:.3f} s before its claim"
    return ""


def _why_ran_past_claim(case: RunRecord, claim: ClaimRecord, run: HandlerRun) -> str:
    """It may continue until it notices the loss; whether it was rightly rescued is another rule's question."""
    if claim.ended_by_hand or claim.label == "rescued":
        return ""
    disruptions = case.disruptions.of(claim.process_id, claim.change.at, claim.ended_at)
    if claim.label == "crash" and any(disruption.effect == FROZEN for disruption in disruptions):
        return ""
    late = run.began.time - claim.ended_at
    if late > case.settings.clock_slack:
        return f"began {late:.3f} s after its claim had ended as {claim.label}"
    longer = run.ended.time - claim.ended_at if run.ended is not None else 0.0
    if longer > case.settings.clock_slack:
        return f"went on for {longer:.3f} s after its claim had ended as {claim.label}"
    return ""


def every_extra_run_is_explained(case: RunRecord) -> Iterator[RuleViolation]:
    """A claim that did not succeed has its row in attempts, and each such row its claim; both count the same."""
    for (task, lease), claim in case.claims.items():
        if claim.label == HELD:
            continue
        if claim.label == "done" and claim.attempt is not None:
            yield case.problem("attempts", task, f"its claim {lease} succeeded, and has a row in attempts")
        if claim.attempt is None and claim.label not in ("done", BY_SQL, DELETED):
            yield case.problem("attempts", task, f"its claim {lease} ended as {claim.label} without a row in attempts")
        if claim.label == BY_SQL and task not in case.hands:
            yield case.problem("attempts", task, f"its claim {lease} was not taken away by hand")
        if problem := _why_miscounted(claim):
            yield case.problem("attempts", task, f"its claim {lease} ended as {claim.label}, and {problem}")
    for key, attempt in case.attempts.items():
        claim_of_it = case.claims.get(key)
        if claim_of_it is None or claim_of_it.process_id != attempt.process_id:
            yield case.problem("attempts", key[0], f"its attempt at lease {key[1]} belongs to no claim of its process")


def _why_miscounted(claim: ClaimRecord) -> str:
    if claim.ended is None or claim.label == DELETED:
        return ""
    before, after = claim.ended.old_attempts or 0, claim.ended.new_attempts or 0
    wanted = before + 1 if claim.label in COUNTED else 0 if claim.label == "retried" else before
    if after != wanted and not (claim.label == BY_SQL and after == 0):
        return f"its attempts went from {before} to {after}"
    if claim.attempt is not None and claim.attempt.number != (after if claim.label in COUNTED else 0):
        return f"its row in attempts has the number {claim.attempt.number}"
    return ""


def what_ended_is_written(case: RunRecord) -> Iterator[RuleViolation]:
    """How a handler ended that had its claim, in a process that could write, is what the table says."""
    for run in case.runs:
        claim = case.claims.get(run.key)
        if claim is None or run.ended is None or run.ended.time > claim.ended_at + case.settings.clock_slack:
            continue
        task, lease = run.key
        if claim.label in TAKEN_BY_PEERD:
            waited = case.disruptions.longest_undisturbed(claim.process_id, run.ended.time, claim.ended_at)
            if waited > case.settings.write_within:
                text = f"its handler at lease {lease} ended as {run.ended.outcome}, and {waited:.1f} s without trouble"
                yield case.problem("not written", task, f"{text} later its claim ended as {claim.label}")
        if not _may_become(case, claim, run.ended.outcome, saw_cancel=run.ended.saw_cancel):
            text = f"its handler at lease {lease} ended as {run.ended.outcome}, and its claim as {claim.label}"
            yield case.problem("not written", task, text)


def _may_become(case: RunRecord, claim: ClaimRecord, outcome: str, *, saw_cancel: bool) -> bool:
    name = case.name(claim.task)
    if claim.label in (HELD, *HAND_LABELS, BY_SQL, "crash", "rescued"):
        return True  # other rules judge these
    if claim.label == "canceled" and case.finish_at(claim.task) is not None:
        return True
    if claim.label == "timeout":
        return name in case.settings.timeouts
    if claim.label == "released" and outcome == "done":
        return saw_cancel or name == ""  # a coroutine of whole rows may be cancelled after its last line
    return claim.label in BECOMES[outcome]


RULES: Final = (no_stale_write_is_accepted, claims_never_overlap, every_extra_run_is_explained, what_ended_is_written)
