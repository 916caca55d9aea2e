"""Rules about tasks: none is lost, each change is one of the lifecycle's, leases fence, business data keep together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from peerd.domain.lifecycle import FINISHED, TRANSITIONS, Status
from tests.faults.case import RuleViolation, RunRecord
from tests.faults.final_tables import AuditEntry, key_of

ENDED: Final = {str(status) for status in FINISHED}
LEGAL: Final = {(str(source), str(target)) for (source, _), target in TRANSITIONS.items() if isinstance(target, Status)}
LATE: Final = 5.0
"""Seconds that a statement may wait for a lock between its reading of the clock and the write of its row."""
CHILD: Final = re.compile(r".+/\d+/\d+")
"""The key of a task that `jobs.parent` enqueued."""


def every_accepted_task_ends(case: RunRecord) -> Iterator[RuleViolation]:
    """What was acknowledged is in the table, and everything in the table ends, in the way its rules allow."""
    acknowledged = {event.task: event for event in case.events if event.event == "enqueued"}
    for task in sorted(acknowledged.keys() - case.changes.keys()):
        yield case.problem("lost", task, "its enqueuing was acknowledged, and it was never in the table")
    for task, changes in case.changes.items():
        last = changes[-1]
        if last.what == "delete":
            problem = _why_deleted_wrongly(case, changes)
        elif last.new_status not in ENDED:
            problem = f"it has not ended: it is {last.new_status}"
        else:
            problem = _why_ended_wrongly(case, task, str(last.new_status))
        if problem:
            yield case.problem("lost", task, problem)


def _why_deleted_wrongly(case: RunRecord, changes: Sequence[AuditEntry]) -> str:
    settings, last = case.settings, changes[-1]
    age = last.at - changes[-2].at if len(changes) > 1 else 0.0
    match last.old_status:
        case "pending" if last.finish_at is not None and last.finish_at <= last.at + settings.clock_slack:
            return ""
        case "done" | "canceled" if age >= settings.max_completed - settings.clock_slack:
            return ""
        case "dead" if age >= settings.max_failed - settings.clock_slack:
            return ""
        case status:
            return f"it was deleted while it was {status}, and no rule says so"


def _why_ended_wrongly(case: RunRecord, task: int, status: str) -> str:
    row = case.rows.get(task)
    if row is None:
        return f"its row is gone, and it was not deleted by hand; it was {status}"
    expected_end = case.settings.expected_ends.get(row.name, "done")
    has_a_limit = case.finish_at(task) is not None
    match status:
        case _ if status == expected_end:
            return ""
        case "dead" if has_a_limit or row.attempts >= (row.max_attempts or 1):
            return ""
        case "canceled" if has_a_limit or task in case.hands:
            return ""
        case _:
            return f"a task of {row.name or 'whole rows'} ends as {expected_end}, and this one is {status}"


def every_key_is_written_once(case: RunRecord) -> Iterator[RuleViolation]:
    """One enqueuing makes one task, however often its reply was lost; and no other tasks exist."""
    known = {event.key for event in case.events if event.event in ("enqueued", "unsure")}
    by_key: dict[str, list[int]] = defaultdict(list)
    for task, changes in case.changes.items():
        by_key[key_of(changes[0].details)].append(task)
    for key, tasks in by_key.items():
        if len(tasks) > 1:
            yield case.problem("keys", tasks[1], f"its key {key} was written {len(tasks)} times: {tasks[:5]}")
        if key.partition("/")[0] not in known:
            yield case.problem("keys", tasks[0], f"no enqueue has its key {key!r}")
    for event in case.events:
        if event.event == "enqueued" and event.task in case.changes and event.task not in by_key[event.key]:
            yield case.problem("keys", event.task, f"it was acknowledged for the key {event.key}, which it has not")


def every_change_is_of_the_lifecycle(case: RunRecord) -> Iterator[RuleViolation]:
    """Each change leads on from the one before it, by an arrow of the lifecycle; the row is as the last one left it."""
    for task, changes in case.changes.items():
        if changes[0].what != "insert" or changes[0].new_status not in ("pending", "scheduled"):
            yield case.problem("lifecycle", task, "it does not begin as pending or scheduled")
        for before, change in pairwise(changes):
            if problem := _why_illegal(before, change):
                yield case.problem("lifecycle", task, problem)
        row, last = case.rows.get(task), changes[-1]
        if row is not None and (row.status, row.lease, row.attempts) != (
            last.new_status,
            last.new_lease,
            last.new_attempts,
        ):
            yield case.problem("lifecycle", task, "its row is not as its last change left it")


def _why_illegal(before: AuditEntry, change: AuditEntry) -> str:
    was = (before.new_status, before.new_lease, before.new_attempts)
    if (change.old_status, change.old_lease, change.old_attempts) != was:
        return f"change #{change.seq} does not lead on from #{before.seq}"
    if change.what == "delete" or change.old_status == change.new_status:
        return ""
    if (change.old_status, change.new_status) not in LEGAL:
        return f"the lifecycle knows no way from {change.old_status} to {change.new_status}"
    return ""


def leases_fence(case: RunRecord) -> Iterator[RuleViolation]:
    """A claim raises the lease by one, of a task that may be claimed; otherwise only a person raises it, and by one."""
    for task, changes in case.changes.items():
        for before, change in pairwise(changes):
            if change.what != "update":
                continue
            problem = _why_badly_claimed(case, change) if change.new_status == "working" else ""
            if problem := problem or _why_badly_leased(case, before, change):
                yield case.problem("lease", task, problem)


def _why_badly_leased(case: RunRecord, before: AuditEntry, change: AuditEntry) -> str:
    raised = (change.new_lease or 0) - (change.old_lease or 0)
    claimed = (change.old_status, change.new_status) == ("pending", "working")
    if claimed:
        return "" if raised == 1 else f"a claim raised the lease by {raised}"
    if change.old_status == change.new_status:
        if raised or change.process_id != before.process_id:
            return f"its lease or its holder changed while it stayed {change.new_status}"
        moved = change.node_id != before.node_id
        return "" if moved else f"its result or its counts were written although it stayed {change.new_status}"
    if raised == 0 or (raised == 1 and change.task_id in case.hands):
        return ""
    return f"no permitted operation raised its lease by {raised}"


def _why_badly_claimed(case: RunRecord, change: AuditEntry) -> str:
    slack = case.settings.clock_slack
    if change.old_status == "working":
        return ""
    if change.node_id is not None and change.node_id != change.worker_node_id:
        return f"it may run on node {change.node_id} only, and node {change.worker_node_id} claimed it"
    if change.start_at is not None and change.start_at > change.at + slack:
        return f"it was claimed {change.start_at - change.at:.3f} s before its start_at"
    if change.finish_at is not None and change.finish_at < change.at - LATE:
        return f"it was claimed {change.at - change.finish_at:.3f} s after its finish_at"
    return ""


def children_commit_with_their_transaction(case: RunRecord) -> Iterator[RuleViolation]:
    """The ledger of the handlers and the children that were enqueued with its rows are both there, or neither is."""
    children = {
        key: task for task, changes in case.changes.items() if CHILD.fullmatch(key := key_of(changes[0].details))
    }
    entered = {key: task for task, key in case.tables.ledger}
    for key in sorted(entered.keys() - children.keys()):
        yield case.problem("transaction", entered[key], f"its ledger has {key}, and no task has that key")
    for key in sorted(children.keys() - entered.keys()):
        yield case.problem("transaction", children[key], f"it is the child {key}, and the ledger does not know of it")


RULES: Final = (
    every_accepted_task_ends,
    every_key_is_written_once,
    every_change_is_of_the_lifecycle,
    leases_fence,
    children_commit_with_their_transaction,
)
