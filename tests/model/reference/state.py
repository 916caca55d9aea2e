"""What the model knows: the rows as the rules say that they must be. Plain values; no SQL, no clock of its own.

Times are the database's, as it wrote them. A rule writes the moment that it expects (``now``, or so many seconds from
it); after each step the comparison replaces it with the one that the database wrote, if that is near enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from peerd.domain.lifecycle import FINISHED, Status, TaskEvent, after

END_DEADLINES = frozenset(
    {TaskEvent.CLAIM, TaskEvent.CANCEL, TaskEvent.RETRY, TaskEvent.MOVE, TaskEvent.RESCHEDULE, TaskEvent.BURY}
)
"""Events that end a deadline even if a move by hand, which forgot that column, has ended the reservation."""


@dataclass(kw_only=True)
class ModelTask:
    id: int
    queue: str
    name: str = ""
    body: str | None = None
    body_bytes: bytes | None = None
    status: Status = Status.PENDING
    priority: int = 10
    attempts: int = 0
    max_attempts: int | None = None
    failures: int = 0
    crashes: int = 0
    node_id: int | None = None
    start_at: datetime | None = None
    finish_at: datetime | None = None
    timeout: float | None = None
    unique_key: str | None = None
    lease: int = 0
    worker_node_id: int | None = None
    process_id: int | None = None
    worker_started_at: datetime | None = None
    checked_at: datetime | None = None
    progress: float | None = None
    progress_note: str | None = None
    result: str | None = None
    error: str | None = None
    finished_at: datetime | None = None
    trace_context: str | None = None
    created_at: datetime
    updated_at: datetime
    claim_token: int | None = None
    """Of a working task: the one that its claimer chose. Of any other, and of a reservation: nothing is promised."""
    ttr: int | None = None
    delay: int | None = None
    deadline_at: datetime | None = None
    reserves: int | None = None
    timeouts: int | None = None
    releases: int | None = None
    buries: int | None = None
    kicks: int | None = None
    buried_order: int | None = None

    @property
    def due_at(self) -> datetime:
        return self.start_at or self.created_at

    @property
    def finished(self) -> bool:
        return self.status in FINISHED

    def is_past_end(self, now: datetime) -> bool:
        return self.finish_at is not None and self.finish_at <= now

    def finish_at_ahead(self, now: datetime) -> datetime | None:
        return None if self.is_past_end(now) else self.finish_at


@dataclass(kw_only=True)
class ModelAttempt:
    task_id: int
    lease: int
    number: int
    node_id: int | None
    process_id: int | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None = None
    traceback: str | None = None
    cause: str | None = None


@dataclass(kw_only=True)
class ModelKey:
    queue: str
    unique_key: str
    task_id: int
    scope: str
    expires_at: datetime | None
    created_at: datetime


@dataclass(kw_only=True)
class ModelNode:
    id: int
    name: str
    incarnation: str | None
    active: bool = True
    draining: bool = False
    started_at: datetime
    checked_at: datetime
    created_at: datetime


@dataclass(kw_only=True)
class ModelQueue:
    name: str
    paused: bool
    paused_until: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class ModelProcess:
    """A process that may claim: its identity, and the life of the node to which it belongs."""

    id: int
    node: str
    node_id: int
    incarnation: str


@dataclass
class ModelState:
    """All rows, and the clock of the database."""

    clock: Callable[[], datetime]
    hand_writes_renew: bool = False
    tasks: dict[int, ModelTask] = field(default_factory=dict)
    attempts: dict[tuple[int, int], ModelAttempt] = field(default_factory=dict)
    keys: dict[tuple[str, str], ModelKey] = field(default_factory=dict)
    nodes: dict[str, ModelNode] = field(default_factory=dict)
    queues: dict[str, ModelQueue] = field(default_factory=dict)
    processes: dict[int, ModelProcess] = field(default_factory=dict)
    beats: dict[int, datetime] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        return self.clock()

    def later(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def working(self) -> Iterator[ModelTask]:
        return (task for task in self.tasks.values() if task.status is Status.WORKING)

    def pending(self) -> Iterator[ModelTask]:
        return (task for task in self.tasks.values() if task.status is Status.PENDING)

    def held(self, task_id: int, lease: int) -> ModelTask | None:
        task = self.tasks.get(task_id)
        return task if task is not None and task.status is Status.WORKING and task.lease == lease else None

    def write(self, task: ModelTask, **changes: object) -> None:
        """Change a row, as each write of ours does: ``updated_at`` with it."""
        for column, value in changes.items():
            assert column in ModelTask.__dataclass_fields__
            setattr(task, column, value)
        task.updated_at = self.now

    def follow(self, task: ModelTask, event: TaskEvent, **changes: object) -> None:
        status = after(task.status, event)
        assert isinstance(status, Status)
        ends: dict[str, object] = {"finished_at": self.now} if status in FINISHED else {}
        if task.status is Status.WORKING or event in END_DEADLINES:
            ends["deadline_at"] = None
        if event in (TaskEvent.CANCEL, TaskEvent.RETRY):
            ends["buried_order"] = None
        self.write(task, status=status, **ends | changes)

    def hold(self, task: ModelTask, event: TaskEvent, process: ModelProcess, **changes: object) -> None:
        """Claim or reserve a task."""
        lease, afresh = task.lease + 1, dict.fromkeys(("progress", "progress_note"))
        holder = {"worker_node_id": process.node_id, "process_id": process.id, "worker_started_at": self.now}
        self.follow(task, event, lease=lease, checked_at=self.now, **afresh, **holder, **changes)

    def kick(self, task: ModelTask) -> None:
        kicks, finish_at = (task.kicks or 0) + 1, task.finish_at_ahead(self.now)
        self.follow(task, TaskEvent.KICK, start_at=None, finish_at=finish_at, buried_order=None, kicks=kicks)

    def record(self, task: ModelTask, outcome: str, *, counted: bool, **why: str | None) -> None:
        """Explain a claim that did not succeed. A claim has one attempt: one that is on record stays."""
        explained = ModelAttempt(
            task_id=task.id,
            lease=task.lease,
            number=task.attempts + 1 if counted else 0,
            node_id=task.worker_node_id,
            process_id=task.process_id,
            started_at=task.worker_started_at,
            ended_at=self.now,
            outcome=outcome,
            **why,
        )
        self.attempts.setdefault((task.id, task.lease), explained)

    def remove(self, task: ModelTask) -> None:
        """Delete a task, its attempts, and the key that ends with it; keys of other scopes outlive it."""
        del self.tasks[task.id]
        self.attempts = {claim: row for claim, row in self.attempts.items() if row.task_id != task.id}
        key = self.keys.get((task.queue, task.unique_key or ""))
        if key is not None and key.task_id == task.id and key.scope == "unfinished":
            del self.keys[key.queue, key.unique_key]
