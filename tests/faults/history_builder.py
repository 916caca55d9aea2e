"""Hand-made histories for the checker: a good run built by methods, in which a test then breaks one thing."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tests.faults.case import CheckerSettings
from tests.faults.checker import RULE_NAMES, CheckReport, judge
from tests.faults.final_tables import AuditEntry, FinalAttempt, FinalProcess, FinalTables, FinalTask
from tests.faults.history import HistoryEvent

COUNTED = ("failure", "dead", "timeout", "crash", "rescued", "canceled")
BECOMES = {
    "failure": "failure",
    "timeout": "failure",
    "crash": "failure",
    "rescued": "failure",
    "dead": "dead",
    "canceled": "canceled",
    "withdrawn": "canceled",
    "snoozed": "scheduled",
    "unknown": "scheduled",
    "released": "pending",
    "retried": "pending",
    "moved": "pending",
}
BY_HAND = ("withdrawn", "retried", "moved")


class HistoryBuilder:
    """What the processes of two nodes do, second by second; the tables and the history follow."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.events: list[HistoryEvent] = []
        self.changes: list[AuditEntry] = []
        self.attempts: list[FinalAttempt] = []
        self.rows: dict[int, FinalTask] = {}
        self.crashed: dict[int, int] = {}
        self.finish_at: dict[int, float | None] = {}
        self.ledger: list[tuple[int, str]] = []
        self.processes = [FinalProcess(id=number, node_id=1 + number % 2, pid=100 + number) for number in range(1, 5)]
        self.nodes = {1: "one", 2: "two"}

    # ------------------------------------------------------------ what happens

    def add_event(self, event: str, **fields: Any) -> HistoryEvent:
        self.now += 0.01
        event_record = HistoryEvent(at=int(self.now * 1e9), wall=int(self.now * 1e9), event=event, **fields)
        self.events.append(event_record)
        return event_record

    def change(self, task: int, **new: Any) -> AuditEntry:
        """A change of a row; what is not given stays as it is."""
        self.now += 0.01
        row = self.rows[task]
        written = AuditEntry(
            seq=len(self.changes) + 1,
            at=self.now,
            what="update",
            task_id=task,
            old_status=row.status,
            old_lease=row.lease,
            old_attempts=row.attempts,
            checked_at=new.pop("checked_at", self.now - 0.02),
            worker_node_id=new.pop("worker_node_id", None),
            node_id=new.pop("node_id", None),
            start_at=new.pop("start_at", None),
            finish_at=self.finish_at[task],
            crashes=self.crashed[task],
        )
        self.rows[task] = row = msgspec.structs.replace(row, **new)
        written.new_status, written.new_lease, written.new_attempts = row.status, row.lease, row.attempts
        written.process_id, written.details = row.process_id, row.result
        self.changes.append(written)
        return written

    def task(self, name: str = "short", *, key: str = "", finish_at: float | None = None) -> int:
        """A task is enqueued, and acknowledged."""
        task = len(self.crashed) + 1
        key = key or str(task)
        self.rows[task] = FinalTask(id=task, name=name, status="pending", body=json.dumps({"key": key}), max_attempts=3)
        self.crashed[task], self.finish_at[task] = 0, finish_at
        self.now += 0.01
        self.changes.append(
            AuditEntry(
                seq=len(self.changes) + 1,
                at=self.now,
                what="insert",
                task_id=task,
                new_status="pending",
                new_lease=0,
                new_attempts=0,
                finish_at=finish_at,
                details=self.rows[task].body,
            )
        )
        if "/" not in key:
            self.add_event("enqueued", task=task, queue="work", name=name, key=key)
        return task

    def claim(self, task: int, process: int = 1, **more: Any) -> int:
        """A process claims it; the lease."""
        self.change(task, status="working", lease=self.rows[task].lease + 1, process_id=process, **more)
        return self.rows[task].lease

    def begin(self, task: int, **other: Any) -> HistoryEvent:
        row = self.rows[task]
        fields_of_claim = {
            "task": task,
            "lease": row.lease,
            "process_id": row.process_id,
            "pid": 100 + (row.process_id or 0),
        }
        return self.add_event(
            "began", **{**fields_of_claim, "handler": row.name, "crashes": self.crashed[task], **other}
        )

    def end(self, task: int, outcome: str = "done", **other: Any) -> HistoryEvent:
        row = self.rows[task]
        fields_of_claim = {
            "task": task,
            "lease": row.lease,
            "process_id": row.process_id,
            "pid": 100 + (row.process_id or 0),
        }
        return self.add_event("ended", **{**fields_of_claim, "handler": row.name, "outcome": outcome, **other})

    def complete(self, task: int) -> AuditEntry:
        result = json.dumps({"lease": self.rows[task].lease, "pid": 1})
        return self.change(task, status="done", result=result)

    def write(self, task: int, label: str, *, error: str = "", checked_at: float | None = None) -> FinalAttempt:
        """Any other end of a claim, with its row in attempts."""
        row = self.rows[task]
        counted = row.attempts + 1 if label in COUNTED else 0
        attempt = FinalAttempt(
            task_id=task,
            lease=row.lease,
            outcome=label,
            number=counted,
            process_id=row.process_id,
            error=error or f"as ordered, at lease {row.lease}",
        )
        self.attempts.append(attempt)
        lease = row.lease + (label in BY_HAND)
        attempts = counted or (0 if label == "retried" else row.attempts)
        touched = {} if checked_at is None else {"checked_at": checked_at}
        self.change(task, status=BECOMES[label], lease=lease, attempts=attempts, **touched)
        self.crashed[task] += label == "crash"
        return attempt

    def stage_due(self, task: int) -> None:
        self.change(task, status="pending")

    def start(self, task: int, process: int = 1) -> int:
        """A process claims it, and its handler begins; the lease."""
        lease = self.claim(task, process)
        self.begin(task)
        return lease

    def fail(self, task: int) -> None:
        """From the claim to a failure that is written down."""
        self.start(task)
        self.end(task, "failure")
        self.write(task, "failure")

    def succeed(self, task: int, process: int = 1) -> None:
        """From the claim to the end."""
        self.start(task, process)
        self.end(task)
        self.complete(task)

    def delete(self, task: int) -> None:
        gone = self.change(task)
        gone.what, gone.new_status = "delete", None
        del self.rows[task]

    def kill(self, process: int) -> None:
        self.add_event("fault", kind="kill worker", target="one/work-1", effect="dead", pids=(100 + process,))

    # ------------------------------------------------------------ what is found

    def judge(self, **settings: Any) -> CheckReport:
        found = FinalTables(
            rows=list(self.rows.values()),
            attempts=self.attempts,
            changes=self.changes,
            processes=self.processes,
            nodes=self.nodes,
            ledger=self.ledger,
        )
        return judge(
            sorted(self.events, key=lambda event: event.at), found, CheckerSettings(max_update=6.0, **settings)
        )


def rescued_while_frozen(history_builder: HistoryBuilder) -> int:
    """A task whose holder, process 1 at lease 1, was frozen; process 2 has it now at lease 2."""
    task = history_builder.task("long")
    history_builder.start(task)
    touched = history_builder.now
    history_builder.add_event("fault", kind="freeze", target="w", effect="frozen", pids=(101,))
    history_builder.now += 8
    history_builder.write(task, "rescued", error="its process died", checked_at=touched)
    history_builder.stage_due(task)
    history_builder.start(task, process=2)
    history_builder.add_event("healed", kind="freeze", target="w")
    return task


def assert_violation(history_builder: HistoryBuilder, rule: str, words: str) -> None:
    """The rule, and no other, is broken."""
    problems = history_builder.judge().problems
    assert {problem.rule for problem in problems} == {rule}, "\n".join(str(problem) for problem in problems)
    assert any(words in problem.text for problem in problems), [problem.text for problem in problems]
    assert rule in RULE_NAMES
