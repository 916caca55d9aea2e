"""All that is known of a run, put together by task and by claim: what the rules look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from tests.faults import jobs
from tests.faults.disruptions import Troubles, find_troubles
from tests.faults.final_tables import AttemptRow, Change, Row, Tables
from tests.faults.history import Event

Key = tuple[int, int]
"""What names a claim: task and lease."""
HAND_LABELS: Final = ("withdrawn", "retried", "moved")
"""Attempts that ended because a person took the task away."""
BY_SQL: Final = "by SQL"
HELD: Final = "held"
DELETED: Final = "deleted"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes were told, and how exact the checker is; all in seconds."""

    max_update: float
    max_completed: float = 3_600.0
    max_failed: float = 259_200.0
    clock_slack: float = 0.05
    """What the clocks of the history and of the database may differ by: SQLite cuts a time to milliseconds."""
    longest_peace: float | None = None
    """A process without trouble for so long should have touched its tasks; half of max_update if not given."""
    write_within: float = 15.0
    """A process without trouble for so long should have written how a handler ended. SQLite lets writers starve."""
    fates: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(jobs.FATES))
    timeouts: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(jobs.TIMEOUTS))

    @property
    def peace(self) -> float:
        return self.max_update / 2 if self.longest_peace is None else self.longest_peace


class Problem(msgspec.Struct, frozen=True):
    """A rule that was broken: by which task, in a sentence, and the lines that prove it."""

    rule: str
    task: int
    text: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"task {self.task}: " if self.task else ""
        return "\n    ".join([f"{self.rule}: {where}{self.text}", *self.lines])


class Claim(msgspec.Struct):
    """A claim: by whom, from when to when, and how it ended."""

    task: int
    lease: int
    process_id: int | None
    change: Change
    ended: Change | None = None
    label: str = HELD
    """done, what the row in attempts says, `by SQL`, or `held`."""
    attempt: AttemptRow | None = None

    @property
    def ended_at(self) -> float:
        return inf if self.ended is None else self.ended.at

    @property
    def ended_by_hand(self) -> bool:
        return self.label in (*HAND_LABELS, BY_SQL)


class Run(msgspec.Struct):
    """A handler that ran: its begin, and its end if it told one."""

    began: Event
    ended: Event | None = None

    @property
    def key(self) -> Key:
        return self.began.task, self.began.lease


class Case:
    """A run's history and tables, put together."""

    def __init__(self, events: Sequence[Event], tables: Tables, settings: Settings) -> None:
        self.events = events
        self.events_of: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            self.events_of[event.task].append(event)
        self.tables = tables
        self.settings = settings
        self.rows: dict[int, Row] = {row.id: row for row in tables.rows}
        self.changes = _by_task(tables.changes)
        self.attempts: dict[Key, AttemptRow] = {(one.task_id, one.lease): one for one in tables.attempts}
        self.claims = _claims(self.changes, self.attempts)
        self.runs = list(_runs(events))
        self.runs_of: dict[Key, list[Run]] = defaultdict(list)
        for run in self.runs:
            self.runs_of[run.key].append(run)
        self.hands = {event.task for event in events if event.event == "hand"}
        self.troubles: Troubles = find_troubles(events, tables.processes, tables.nodes)

    def problem(self, rule: str, task: int, text: str) -> Problem:
        """A broken rule, with all that is known of the task."""
        return Problem(rule, task, text, tuple(self.lines(task)))

    def finish_at(self, task: int) -> float | None:
        return self.changes[task][0].finish_at if task in self.changes else None

    def name(self, task: int) -> str:
        return self.rows[task].name if task in self.rows else ""

    def lines(self, task: int, most: int = 40) -> list[str]:
        """What is known of a task, in the order of time."""
        lines = [(change.at, f"{change.at:.3f} table   {_words(change)}") for change in self.changes.get(task, ())]
        lines += [(event.time, f"{event.time:.3f} history {_said(event)}") for event in self.events_of[task]]
        told = [line for _, line in sorted(lines)]
        told += [f"              attempt {_said(row)}" for (owner, _), row in self.attempts.items() if owner == task]
        return told if len(told) <= most else [*told[: most // 2], "…", *told[-most // 2 :]]


def _by_task(changes: Iterable[Change]) -> dict[int, list[Change]]:
    found: dict[int, list[Change]] = defaultdict(list)
    for change in changes:
        found[change.task_id].append(change)
    return found


def _claims(changes: Mapping[int, Sequence[Change]], attempts: Mapping[Key, AttemptRow]) -> dict[Key, Claim]:
    claims: dict[Key, Claim] = {}
    for task, in_order in changes.items():
        held: Claim | None = None
        for change in in_order:
            if held is not None and change.old_status == "working":
                held.ended = change
                held.attempt = attempts.get((task, held.lease))
                held.label = _label(held)
                held = None
            if change.new_status == "working":
                held = Claim(task, change.new_lease or 0, change.process_id, change)
                claims[task, held.lease] = held
    return claims


def _label(claim: Claim) -> str:
    assert claim.ended is not None
    if claim.ended.what == "delete":
        return DELETED
    if claim.attempt is not None:
        return claim.attempt.outcome
    if claim.ended.new_status == "done":
        return "done"
    return BY_SQL if claim.ended.new_lease != claim.lease else str(claim.ended.new_status)


def _runs(events: Iterable[Event]) -> Iterator[Run]:
    """Each begin with the end that follows it, in the same process."""
    open_runs: dict[tuple[int, int, int], Run] = {}
    for event in events:
        who = (event.task, event.lease, event.pid)
        if event.event == "began":
            open_runs[who] = run = Run(event)
            yield run
        elif event.event == "ended" and who in open_runs:
            open_runs.pop(who).ended = event


def _words(change: Change) -> str:
    status = f"{change.old_status} → {change.new_status}, lease {change.old_lease} → {change.new_lease}"
    return f"{change.what} #{change.seq}: {status}, process {change.process_id}, touched {change.checked_at}"


def _said(value: Event | AttemptRow) -> str:
    given = {
        name: field for name, field in msgspec.structs.asdict(value).items() if field and name not in ("at", "wall")
    }
    return ", ".join(f"{name} {str(field)[:80]}" for name, field in given.items())
