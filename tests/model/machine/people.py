"""What people and applications do: enqueue, insert with SQL, cancel, retry, move, delete."""

from __future__ import annotations

from itertools import count
from typing import Any

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, precondition, rule
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import enqueue, intervene
from peerd.store.enqueue import Enqueued
from peerd.store.tables import tasks as task_table
from tests.model.clock import AHEAD
from tests.model.compare import read_all
from tests.model.machine.base import NEVER, NODES, QUEUES, Base, there_is
from tests.model.reference import enqueuing, intervening
from tests.model.reference.state import TaskRow, later

_bodies = count(1)

queues = st.sampled_from(QUEUES)
ahead = st.sampled_from(AHEAD)
starts = st.none() | st.tuples(st.sampled_from(["in", "at"]), st.just(0.0) | ahead | st.just(-300.0))
ends = st.none() | st.tuples(st.sampled_from(["in", "at"]), ahead | st.just(-300.0))
scopes = st.sampled_from(["unfinished", "forever"]) | ahead


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a new task; times are (in or at, seconds from now)."""
    start, end = draw(st.none() | starts), draw(st.none() | ends)
    if start is not None and end is not None and end[1] <= start[1]:
        end = None
    return {
        "queue": draw(queues),
        "name": draw(st.sampled_from(["", "n", "m"])),
        "body_bytes": draw(st.none() | st.just(b"\x00\xff")),
        "priority": draw(st.sampled_from([10, 10, 9, 2**40])),
        "max_attempts": draw(st.none() | st.sampled_from([1, 2])),
        "node": draw(st.sampled_from([None, None, None, *NODES])),
        "timeout": draw(st.none() | st.just(5.0)),
        "unique_key": draw(st.sampled_from([None, None, "k", "l"])),
        "unique_for": draw(scopes),
        "start": start,
        "end": end,
    }


def has_room(machine: Base) -> bool:
    """A few tasks are enough: with more of them, less would happen to each."""
    return len(machine.state.tasks) < 6


class People(Base):
    """Rules of enqueuing and intervening."""

    def new_task(self, wish: dict[str, Any]) -> NewTask:
        moments: dict[str, Any] = {}
        for field, given in (("start", wish["start"]), ("finish", wish["end"])):
            match given:
                case ("in", seconds) if seconds >= 0:
                    moments[f"{field}_in"] = seconds
                case (_, seconds):
                    moments[f"{field}_at"] = later(self.clock.now(), seconds)
        fields = {name: value for name, value in wish.items() if name not in ("start", "end")}
        return NewTask(**fields, **moments, body=f'{{"number": {next(_bodies)}}}', trace_context="00-a-b-01")

    @initialize(target=Base.tasks, several=st.lists(queues, max_size=4))
    def some_are_there(self, several: list[str]) -> Any:
        return multiple(*(self._enqueue(NewTask(queue=queue)) for queue in several))

    @precondition(has_room)
    @rule(target=Base.tasks, wish=wishes())
    def enqueue(self, wish: dict[str, Any]) -> int:
        return self._enqueue(self.new_task(wish))

    @precondition(has_room)
    @rule(target=Base.tasks, queue=queues, priority=st.sampled_from([10, 20]))
    def enqueue_a_plain_one(self, queue: str, priority: int) -> int:
        return self._enqueue(NewTask(queue=queue, priority=priority))

    def _enqueue(self, new: NewTask) -> int:
        got = self.run(enqueue.enqueue, new)
        self._accept([new], [got])
        return got.id

    @precondition(has_room)
    @rule(target=Base.tasks, several=st.lists(wishes(), min_size=2, max_size=5))
    def enqueue_many(self, several: list[dict[str, Any]]) -> Any:
        new = [self.new_task(wish) for wish in several]
        got = self.run(enqueue.enqueue_many, new)
        self._accept(new, got)
        return multiple(*sorted({one.id for one in got}))

    def _accept(self, new: list[NewTask], got: list[Enqueued]) -> None:
        created = [one.id for one in got if one.created]
        assert len(set(created)) == len(created), f"one id for two tasks: {got}"
        assert all(task_id > max(self.leases, default=0) for task_id in created), f"an id was used again: {got}"
        wanted = enqueuing.enqueue(self.state, new, [one.id for one in got], self.clock.now())
        self.same([(one.id, one.created) for one in got], wanted)

    @precondition(has_room)
    @rule(several=st.lists(wishes(), min_size=1, max_size=3), rolls_back=st.booleans())
    def enqueue_in_vain(self, several: list[dict[str, Any]], rolls_back: bool) -> None:  # noqa: FBT001
        """An application rolls its transaction back, or one task is for a node that never was: none is accepted."""
        new = [self.new_task(wish) for wish in several]
        if rolls_back:
            with self.database.engine.connect() as connection:
                enqueue.enqueue_many(connection, new)
                connection.rollback()
            return
        new.append(NewTask(queue=QUEUES[0], node=NEVER))
        self.both(
            lambda: self.run(enqueue.enqueue_many, new),
            lambda: enqueuing.enqueue(self.state, new, [], self.clock.now()),
        )

    @precondition(has_room)
    @rule(
        target=Base.tasks,
        status=st.none() | st.sampled_from(list(Status)),
        start=st.none() | ahead,
        node=st.booleans(),
    )
    def insert_with_sql(self, status: Status | None, start: float | None, node: bool) -> int:  # noqa: FBT001
        """The complete enqueue of docs/schema.md; or a row of any status, from somebody who knows the columns."""
        if status is None:
            text = "INSERT INTO tasks (queue, name, body) VALUES ('a', 'n', '{}')"
            return self._insert(text, {"queue": "a", "name": "n", "body": "{}"})
        values: dict[str, Any] = {
            "queue": QUEUES[0],
            "status": str(status),
            "start_at": None if start is None else later(self.clock.now(), start),
            "worker_node_id": self.state.nodes[NODES[0]].id if node else None,
        }
        return self._insert(sa.insert(task_table).values(values), values | {"status": status})

    def _insert(self, statement: str | sa.Insert, values: dict[str, Any]) -> int:
        def write(connection: Connection) -> None:
            if isinstance(statement, str):
                connection.exec_driver_sql(statement)
            else:
                connection.execute(statement)

        now = self.clock.now()
        self.run(write)
        task_id = max(self.database.read(read_all)["tasks"])
        assert task_id > max(self.leases, default=0)
        self.state.tasks[task_id] = TaskRow(id=task_id, created_at=now, updated_at=now, **values)
        return int(task_id)

    @precondition(lambda machine: machine.state.tasks)
    @rule(task_id=Base.tasks, reason=st.sampled_from(["canceled by hand", "too dear"]))
    def cancel(self, task_id: int, reason: str) -> None:
        now = self.clock.now()
        self.both(
            lambda: self.run(intervene.cancel, task_id, reason),
            lambda: intervening.cancel(self.state, task_id, reason, now),
        )

    @precondition(lambda machine: machine.state.tasks)
    @rule(task_id=Base.tasks)
    def retry(self, task_id: int) -> None:
        now = self.clock.now()
        self.both(lambda: self.run(intervene.retry, task_id), lambda: intervening.retry(self.state, task_id, now))

    @precondition(lambda machine: machine.state.tasks)
    @rule(task_id=Base.tasks, node=st.sampled_from([None, *NODES, NEVER]))
    def move(self, task_id: int, node: str | None) -> None:
        now = self.clock.now()
        self.both(
            lambda: self.run(intervene.move, task_id, node), lambda: intervening.move(self.state, task_id, node, now)
        )

    @precondition(lambda machine: len(machine.state.tasks) > 3)
    @rule(task_id=Base.tasks)
    def delete(self, task_id: int) -> None:
        self.both(lambda: self.run(intervene.delete, task_id), lambda: intervening.delete(self.state, task_id))

    @precondition(there_is(Status.WORKING))
    @rule(claim=Base.claims, node=st.sampled_from([None, *NODES]))
    def move_by_hand(self, claim: Any, node: str | None) -> None:
        """The UPDATE that the documentation gives for a running task."""
        task = self.state.tasks.get(claim.held.id)
        if task is None or task.status is not Status.WORKING:
            return
        node_id = None if node is None else self.state.nodes[node].id
        text = f"UPDATE tasks SET node_id = {node_id or 'NULL'}, status = 'pending', lease = lease + 1 WHERE id = "
        self.run(lambda connection: connection.exec_driver_sql(f"{text}{task.id}").rowcount)
        self.moved_by_hand.add((task.id, task.lease))
        intervening.move_by_hand(self.state, task.id, node_id, self.clock.now())
