"""Hand-made histories for the checker, told as scripts: a good run of a task, in which one thing is wrong.

A script is steps with `|` between them: a method of `HistoryBuilder` and its arguments. A step is on the latest task,
or on the one before it if it begins with `~`: `task | start | task long | start | kill 1 | ~ write crash`.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Final, Self

import msgspec

from tests.faults.case import CheckerSettings
from tests.faults.checker import CheckReport, judge
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
TEXTS: Final = ("key", "error")
"""Arguments that are texts, whatever they look like."""
TUPLES: Final = ("pids", "nodes")
MARKED: Final = "marked"
"""The time of the latest `mark`."""


class HistoryBuilder:
    """What the processes of two nodes do, second by second; the tables and the history follow."""

    def __init__(self) -> None:
        self.now = self.marked = 1_000_000.0
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
        return self._event_of_claim("began", task, {"crashes": self.crashed[task], **other})

    def end(self, task: int, outcome: str = "done", **other: Any) -> HistoryEvent:
        return self._event_of_claim("ended", task, {"outcome": outcome, **other})

    def _event_of_claim(self, event: str, task: int, other: dict[str, Any]) -> HistoryEvent:
        row = self.rows[task]
        of_claim = {"lease": row.lease, "process_id": row.process_id, "pid": 100 + (row.process_id or 0)}
        return self.add_event(event, **{"task": task, **of_claim, "handler": row.name, **other})

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

    def kill(self, *processes: int) -> None:
        """Kill processes with SIGKILL."""
        for process in processes:
            self.add_event("fault", kind="kill worker", target="one/work-1", effect="dead", pids=(100 + process,))

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def at_once(self) -> None:
        """Let the next step take half a millisecond instead of ten."""
        self.now -= 0.0095

    def mark(self) -> None:
        """Remember the time as `marked`."""
        self.marked = self.now

    def hand(self, task: int, action: str) -> None:
        """A person does something to a task."""
        self.add_event("hand", task=task, action=action)

    def dying(self, task: int) -> None:
        """The handler kills a process of its own."""
        self._event_of_claim("dying", task, {"pids": (999,)})

    def count_crash(self, task: int) -> None:
        self.crashed[task] += 1

    def set_event(self, number: int, **values: Any) -> None:
        self.events[number] = msgspec.structs.replace(self.events[number], **values)

    def set_row(self, task: int, **values: Any) -> None:
        """Make the row as no operation leaves it."""
        self.rows[task] = msgspec.structs.replace(self.rows[task], **values)

    def set_change(self, number: int = -1, **values: Any) -> None:
        """Make what was recorded of a change as it never was."""
        self.changes[number] = msgspec.structs.replace(self.changes[number], **values)

    def set_attempt(self, **values: Any) -> None:
        """Make the latest attempt as it never was."""
        self.attempts[-1] = msgspec.structs.replace(self.attempts[-1], **values)

    def add_attempt(self, task: int, lease: int, outcome: str) -> None:
        """A row in attempts that nothing else tells of."""
        self.attempts.append(FinalAttempt(task_id=task, lease=lease, outcome=outcome, number=1, process_id=1))

    def set_process(self, number: int, **values: Any) -> None:
        self.processes[number - 1] = msgspec.structs.replace(self.processes[number - 1], **values)

    def forget(self, what: str, number: int) -> None:
        """A row or a change that was there is not found."""
        del getattr(self, what)[number]

    def add_to_ledger(self, task: int, key: str) -> None:
        """The handler of a task has written business data."""
        self.ledger.append((task, key))

    def freeze_and_rescue(self) -> None:
        """A new task whose holder, process 1 at lease 1, was frozen; process 2 has it now at lease 2."""
        self.play(
            "task long | start | mark | add_event fault kind=freeze target=w effect=frozen pids=101 | wait 8"
            ' | write rescued error="its process died" checked_at=marked | stage_due | start process=2'
            " | add_event healed kind=freeze target=w"
        )

    # ------------------------------------------------------------ jobs of queue clients

    def clients(self) -> None:
        """Two queue clients connect: `client-1` to process 1, and `client-2` to process 2."""
        for number in (1, 2):
            self.add_event("opened", connection=f"client-{number}", server=100 + number)

    def put(self, ttr: int = 600, *, answered: int = 1) -> None:
        """A job is put, and the first client has its id, unless it got no answer."""
        job = len(self.crashed) + 1
        key = f"job-{job}"
        self.add_event("unsure", key=key)
        self.task("", key=f"{key}/")  # with a slash, so that it is not `enqueued`
        self.set_change(details=json.dumps({"key": key, "ttr": ttr}))
        if answered:
            self.add_event("inserted", task=job, key=key, connection="client-1")

    def reserve(self, job: int, client: int = 1) -> None:
        """A client reserves a job, and is told of it."""
        self.claim(job, client)
        self.add_event("reserved", task=job, connection=f"client-{client}")

    def ask(self, job: int, action: str, client: int = 1) -> None:
        self.add_event("finishing", task=job, connection=f"client-{client}", action=action)

    def answer(self, job: int, action: str, outcome: str = "", client: int = 1) -> None:
        self.add_event("finished", task=job, connection=f"client-{client}", action=action, outcome=outcome)

    def delete_by(self, job: int, client: int = 1) -> None:
        """A client deletes a job, and is told that it has."""
        self.ask(job, "delete", client)
        self.delete(job)
        self.answer(job, "delete", "deleted", client)

    # ------------------------------------------------------------ scripts

    def play(self, script: str) -> Self:
        """Do the steps of a script."""
        for step in script.split("|"):
            words = shlex.split(step)
            task = len(self.crashed)
            if words[0] == "~":
                task, words = task - 1, words[1:]
            method, *arguments = words
            given = [self._value("", word) for word in arguments if "=" not in word]
            named = dict(word.split("=", 1) for word in arguments if "=" in word)
            subject = [task] if method in OF_A_TASK else []
            getattr(self, method)(*subject, *given, **{name: self._value(name, word) for name, word in named.items()})
        return self

    def _value(self, name: str, word: str) -> Any:
        """What a word of a script stands for; `+5` is in five seconds."""
        if name in TEXTS:
            return word
        if name in TUPLES:
            return tuple(self._value("", one) for one in word.split(","))
        if word == MARKED:
            return self.marked
        try:
            number = float(word)
        except ValueError:
            return word
        if word[0] in "+-" and name != "number":
            return self.now + number
        return number if "." in word else int(word)

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


OF_A_TASK: Final = {
    *("change", "claim", "begin", "end", "complete", "write", "stage_due", "start", "fail", "succeed", "delete"),
    *("set_row", "add_attempt", "add_to_ledger", "reserve", "ask", "answer", "delete_by"),
    *("hand", "dying", "count_crash"),
}
"""Steps whose first argument is a task."""
