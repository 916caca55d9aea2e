"""All that is known of a run, put together by task and by claim: the input of the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from tests.faults import jobs
from tests.faults.disruptions import Disruptions, find_disruptions
from tests.faults.final_tables import AuditEntry, FinalAttempt, FinalTables, FinalTask, key_of
from tests.faults.history import HistoryEvent

Key = tuple[int, int]
"""What names a claim: task and lease."""
HAND_LABELS: Final = ("withdrawn", "retried", "moved")
"""Attempts that ended because a person took the task away."""
BY_SQL: Final = "by SQL"
HELD: Final = "held"
JOB_KEY: Final = "job-"
"""How the keys of jobs begin that queue clients put."""
DELETED: Final = "deleted"


class CheckerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the nodes, and the tolerances of the checker; all in seconds."""

    max_update: float
    max_completed: float = 3_600.0
    max_failed: float = 259_200.0
    clock_slack: float = 0.05
    """What the clocks of the history and of the database may differ by: SQLite cuts a time to milliseconds."""
    longest_undisturbed: float | None = None
    """A process without trouble for so long should have touched its tasks; half of max_update if not given."""
    write_within: float = 15.0
    """A process without trouble for so long should have written how a handler ended. SQLite lets writers starve."""
    expected_ends: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(jobs.EXPECTED_ENDS))
    timeouts: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(jobs.TIMEOUTS))

    @property
    def undisturbed_limit(self) -> float:
        return self.max_update / 2 if self.longest_undisturbed is None else self.longest_undisturbed


class RuleViolation(msgspec.Struct, frozen=True):
    """A rule that was broken: by which task, in a sentence, and the lines that prove it."""

    rule: str
    task: int
    text: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"task {self.task}: " if self.task else ""
        return "\n    ".join([f"{self.rule}: {where}{self.text}", *self.lines])


class ClaimRecord(msgspec.Struct):
    """A claim: by whom, from when to when, and how it ended."""

    task: int
    lease: int
    process_id: int | None
    change: AuditEntry
    ended: AuditEntry | None = None
    label: str = HELD
    """done, what the row in attempts says, `by SQL`, or `held`."""
    attempt: FinalAttempt | None = None

    @property
    def ended_at(self) -> float:
        return inf if self.ended is None else self.ended.at

    @property
    def ended_by_hand(self) -> bool:
        return self.label in (*HAND_LABELS, BY_SQL)


class HandlerRun(msgspec.Struct):
    """A handler that ran: its begin, and its end if it recorded one."""

    began: HistoryEvent
    ended: HistoryEvent | None = None

    @property
    def key(self) -> Key:
        return self.began.task, self.began.lease


class RunRecord:
    """A run's history and tables, put together."""

    def __init__(self, events: Sequence[HistoryEvent], tables: FinalTables, settings: CheckerSettings) -> None:
        self.events = events
        self.events_of: dict[int, list[HistoryEvent]] = defaultdict(list)
        for event in events:
            self.events_of[event.task].append(event)
        self.tables = tables
        self.settings = settings
        self.rows: dict[int, FinalTask] = {row.id: row for row in tables.rows}
        changes = _by_task(tables.changes)
        self.jobs = {task: found for task, found in changes.items() if is_job(found[0])}
        """The changes of the jobs that queue clients have put; other rules judge these than those of tasks."""
        self.changes = {task: found for task, found in changes.items() if task not in self.jobs}
        attempts: dict[Key, FinalAttempt] = {(one.task_id, one.lease): one for one in tables.attempts}
        self.attempts = {key: one for key, one in attempts.items() if key[0] not in self.jobs}
        self.attempts_of_jobs = [one for one in tables.attempts if one.task_id in self.jobs]
        self.reservations = _claims(self.jobs, {})
        self.claims = _claims(self.changes, self.attempts)
        self.runs = list(_runs(events))
        self.runs_of: dict[Key, list[HandlerRun]] = defaultdict(list)
        for run in self.runs:
            self.runs_of[run.key].append(run)
        self.hands = {event.task for event in events if event.event == "hand"}
        self.disruptions: Disruptions = find_disruptions(events, tables.processes, tables.nodes)

    def problem(self, rule: str, task: int, text: str) -> RuleViolation:
        """A broken rule, with all that is known of the task."""
        return RuleViolation(rule, task, text, tuple(self.lines(task)))

    def finish_at(self, task: int) -> float | None:
        return self.changes[task][0].finish_at if task in self.changes else None

    def name(self, task: int) -> str:
        return self.rows[task].name if task in self.rows else ""

    def lines(self, task: int, most: int = 40) -> list[str]:
        """What is known of a task, in the order of time."""
        changes = (*self.changes.get(task, ()), *self.jobs.get(task, ()))
        lines = [(change.at, f"{change.at:.3f} table   {_format_change(change)}") for change in changes]
        lines += [(event.time, f"{event.time:.3f} history {_format_fields(event)}") for event in self.events_of[task]]
        shown = [line for _, line in sorted(lines)]
        shown += [
            f"              attempt {_format_fields(row)}" for (owner, _), row in self.attempts.items() if owner == task
        ]
        return shown if len(shown) <= most else [*shown[: most // 2], "…", *shown[-most // 2 :]]


def is_job(inserted: AuditEntry) -> bool:
    """Whether a queue client has put this row, by its key."""
    return key_of(inserted.details).startswith(JOB_KEY)


def _by_task(changes: Iterable[AuditEntry]) -> dict[int, list[AuditEntry]]:
    found: dict[int, list[AuditEntry]] = defaultdict(list)
    for change in changes:
        found[change.task_id].append(change)
    return found


def _claims(
    changes: Mapping[int, Sequence[AuditEntry]], attempts: Mapping[Key, FinalAttempt]
) -> dict[Key, ClaimRecord]:
    claims: dict[Key, ClaimRecord] = {}
    for task, in_order in changes.items():
        held: ClaimRecord | None = None
        for change in in_order:
            if held is not None and change.old_status == "working":
                held.ended = change
                held.attempt = attempts.get((task, held.lease))
                held.label = _label(held)
                held = None
            if change.new_status == "working":
                held = ClaimRecord(task, change.new_lease or 0, change.process_id, change)
                claims[task, held.lease] = held
    return claims


def _label(claim: ClaimRecord) -> str:
    assert claim.ended is not None
    if claim.ended.what == "delete":
        return DELETED
    if claim.attempt is not None:
        return claim.attempt.outcome
    if claim.ended.new_status == "done":
        return "done"
    return BY_SQL if claim.ended.new_lease != claim.lease else str(claim.ended.new_status)


def _runs(events: Iterable[HistoryEvent]) -> Iterator[HandlerRun]:
    """Each begin with the end that follows it, in the same process."""
    open_runs: dict[tuple[int, int, int], HandlerRun] = {}
    for event in events:
        handler_key = (event.task, event.lease, event.pid)
        if event.event == "began":
            open_runs[handler_key] = run = HandlerRun(event)
            yield run
        elif event.event == "ended" and handler_key in open_runs:
            open_runs.pop(handler_key).ended = event


def _format_change(change: AuditEntry) -> str:
    status = f"{change.old_status} → {change.new_status}, lease {change.old_lease} → {change.new_lease}"
    return f"{change.what} #{change.seq}: {status}, process {change.process_id}, touched {change.checked_at}"


def _format_fields(value: HistoryEvent | FinalAttempt) -> str:
    given = {
        name: field for name, field in msgspec.structs.asdict(value).items() if field and name not in ("at", "wall")
    }
    return ", ".join(f"{name} {str(field)[:80]}" for name, field in given.items())
