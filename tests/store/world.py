"""Helpers of the store's tests: nodes and processes, tasks in every state, rows as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple

import sqlalchemy as sa

from peerd.domain.bulk import BulkCancel
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.domain.task import Attempt, NewTask, Task
from peerd.store import chore_batches, enqueue, nodes, outcomes
from peerd.store import processes as process_records
from peerd.store.connection.database import Database
from peerd.store.outcomes import ClaimId
from peerd.store.schema.tables import attempts, metadata, processes, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.statements import new_token
from peerd.store.take import claiming
from peerd.store.take.claimer import Claimer, ClaimMutex
from peerd.store.tasks import pages
from peerd.store.tasks.actions import act_on_task
from tests.support.outcomes import record_outcome

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
_urgent = count(2**40)


@dataclass
class World:
    """A database with the nodes and processes that a test creates."""

    store: Database
    _nodes: dict[str, tuple[int, str]] = field(default_factory=dict)
    _pids: Iterator[int] = field(default_factory=lambda: count(1))

    def run(self, operation: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.store.run(operation, *args, **kwargs)

    def read(self, operation: Callable[Concatenate[sa.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.store.read(operation, *args, **kwargs)

    def run_group(self, operation: Callable[[sa.Connection, *Ts], T], /, *args: *Ts, durable: bool = True) -> T:
        return self.store.run_group(operation, *args, durable=durable)

    def execute(self, statement: sa.Executable, rows: Sequence[Any] | None = None) -> int:
        """A statement in a transaction of its own; how many rows it wrote."""
        return self.store.run(lambda connection: connection.execute(statement, rows).rowcount)

    def sql(self, text: str) -> None:
        """What a user's own SQL does; the driver gets it as it stands."""
        self.store.run(lambda connection: connection.exec_driver_sql(text).close())

    def rows(self, statement: sa.Executable) -> Sequence[Any]:
        return self.store.read(lambda connection: connection.execute(statement).all())

    def scalars(self, statement: sa.Executable) -> list[Any]:
        return self.store.read(lambda connection: list(connection.execute(statement).scalars()))

    def empty(self) -> None:
        self.store.run(empty)
        self._nodes.clear()

    def node(self, name: str = "a") -> int:
        """The id of an active node."""
        if name not in self._nodes:
            incarnation = nodes.new_incarnation()
            node_id = self.store.run(nodes.register_incarnation, name, incarnation, replaces=None)
            assert node_id is not None
            self._nodes[name] = node_id, incarnation
        return self._nodes[name][0]

    def incarnation(self, name: str = "a") -> str:
        self.node(name)
        return self._nodes[name][1]

    def claimer(self, *queues: str, node: str = "a", kind: str = "w", pid: int | None = None, **more: Any) -> Claimer:
        """A new process of a node; one of this number on its machine."""
        node_id, incarnation = self.node(node), self.incarnation(node)
        process_id = self.store.run(
            process_records.register_process,
            node_id=node_id,
            incarnation=incarnation,
            kind=kind,
            slot=f"{kind}-1",
            role="worker",
            pid=next(self._pids) if pid is None else pid,
        )
        return Claimer(node_id=node_id, incarnation=incarnation, process_id=process_id, queues=queues or ("q",), **more)

    def add(self, queue: str = "q", **fields: Any) -> int:
        return self.store.run(enqueue.enqueue, NewTask(queue=queue, **fields)).id

    def insert(self, **values: Any) -> int:
        """A row that a user's own SQL inserts."""

        row = sa.insert(tasks).values({"queue": "q", **values})
        return self.store.run(lambda connection: int(connection.execute(row).inserted_primary_key[0]))  # type: ignore[index]

    def set(self, task_id: int, **values: Any) -> int:
        """An UPDATE by a user's own SQL."""
        return self.execute(sa.update(tasks).where(tasks.c.id == task_id).values(**values))

    @contextmanager
    def locking(self, table: sa.Table, *row_ids: int) -> Iterator[None]:
        """Another session's transaction, which has locked rows and stays open."""
        how: dict[str, Any] = {"poolclass": sa.NullPool, "isolation_level": "READ COMMITTED"}  # these rows, and no gaps
        engine = sa.create_engine(self.store.url, **how)
        with engine.connect() as connection:
            for row_id in row_ids:  # one by one: of several, MariaDB reads and locks the whole of a small table
                connection.execute(sa.select(table.c.id).where(table.c.id == row_id).with_for_update()).all()
            yield
            connection.rollback()
        engine.dispose()

    def take(
        self, claimer: Claimer, limit: int = 10, *, quarantined: bool = False, mutex: ClaimMutex | None = None
    ) -> list[Task]:
        how: dict[str, Any] = {"token": new_token(), "limit": limit, "quarantined": quarantined, "mutex": mutex}
        return self.store.run_short(claiming.claim, claimer, **how).tasks

    def take_one(self, claimer: Claimer | None = None) -> Task:
        [task] = self.take(claimer or self.claimer(), 1)
        return task

    def get(self, task_id: int) -> Task:
        return self.store.read(pages.get_task, task_id)

    def find(self, task_id: int) -> Task | None:
        return self.store.read(pages.find_task, task_id)

    def column(self, task_id: int, name: str) -> Any:
        return self.scalars(sa.select(tasks.c[name]).where(tasks.c.id == task_id))[0]

    def status(self, task_id: int) -> Status:
        return self.get(task_id).status

    def attempts(self, task_id: int) -> list[Attempt]:
        return self.store.read(pages.list_attempts, task_id)

    def count(self, table: sa.Table = tasks) -> int:
        return int(self.scalars(sa.select(sa.func.count()).select_from(table))[0])

    def task_in(self, status: Status, **fields: Any) -> int:
        """A task that came to this status by the store's own operations, or by hand where none leads there yet."""
        match status:
            case Status.SCHEDULED:
                return self.add(start_in=3600.0, **fields)
            case Status.PENDING:
                return self.add(**fields)
            case Status.WAITING | Status.BURIED:
                task_id = self.add(**fields)
                self.set(task_id, status=str(status))
                return task_id
        task_id = self.add(priority=next(_urgent), **fields)  # so that it is the next to be claimed
        if status is Status.CANCELED:
            self.store.run(act_on_task, task_id, BulkCancel())
            return task_id
        task = self.take_one()
        assert task.id == task_id
        match status:
            case Status.DONE:
                assert self.complete(task, "1")
            case Status.FAILURE:
                assert self.fail(task, retry_in=3600.0)
            case Status.DEAD:
                assert self.fail(task, retry_in=None)
            case _:
                assert status is Status.WORKING
        return task_id

    def fail(self, task: Task, error: str = "boom", retry_in: float | None = 0.0, **more: Any) -> bool:
        assert task.process_id is not None
        failed = Failed(error=error, retry_in=retry_in, **more)
        return self.store.run(record_outcome, task.process_id, held(task), failed)

    def complete(self, task: Task, result: str | None = None) -> bool:
        """Whether it was accepted."""
        assert task.process_id is not None
        return not self.store.run(outcomes.complete, task.process_id, {held(task): result})

    def silence(self, task_id: int, seconds: float) -> None:
        """Backdate the last touch of a task and the last heartbeat of its process."""
        self.set(task_id, checked_at=seconds_from_now(-seconds))
        holder = sa.select(tasks.c.process_id).where(tasks.c.id == task_id).scalar_subquery()
        backdate = sa.update(processes).where(processes.c.id == holder).values(checked_at=seconds_from_now(-seconds))
        self.execute(backdate)

    def stage_due(self) -> None:
        for status in (Status.SCHEDULED, Status.FAILURE):
            self.store.run(chore_batches.stage_due, status)

    def outcomes(self, task_id: int) -> list[str]:
        return [attempt.outcome for attempt in self.attempts(task_id)]

    def attempt_rows(self) -> int:
        return self.count(attempts)


def empty(connection: sa.Connection) -> None:
    for table in metadata.tables.values():
        connection.execute(sa.delete(table))


def held(task: Task) -> ClaimId:
    return ClaimId(task.id, task.lease)


def at_once(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Run each in a thread of its own, all released at the same moment; their answers, or the first error."""
    gate = threading.Barrier(len(functions))

    def run(function: Callable[[], T]) -> T:
        gate.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(run, functions))
