"""What people and applications do: enqueue, insert with SQL, cancel, retry, move, delete."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import sqlalchemy as sa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from peerd.domain.bulk import BulkBury, BulkCancel, BulkDelete, BulkKick, BulkMove, BulkRetry, BulkSnooze, TaskAction
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.enqueue import Enqueued
from peerd.store.schema.tables import tasks as task_table
from peerd.store.tasks import actions
from peerd.store.tasks.actions import act_on_task
from tests.model.compare import read_all
from tests.model.database_clock import AHEAD
from tests.model.machine.base import CLAIM_INDEXES, NEVER, NODES, QUEUES, ModelMachine, has_task_in, only_if
from tests.model.reference import user_rules
from tests.model.reference.state import ModelTask

_bodies = count(1)

queues = st.sampled_from(QUEUES)
delays = st.sampled_from([None, *AHEAD])
# Choices stand side by side: of choices within choices, the inner ones would hardly ever be taken.
STARTS: Final = [None, None, None, ("in", 0.0), ("in", 300.0), ("at", 320.0), ("in", 900.0), ("at", -320.0)]
"""At a moment of ours: some seconds apart from those that the database reckons. Which of two is earlier must not be a
matter of milliseconds, because an example must replay exactly."""
ENDS: Final = [None, None, None, ("in", 300.0), ("at", 920.0), ("in", 900.0), ("in", 3900.0), ("at", -320.0)]
PLAIN: Final[dict[str, Any]] = {"queue": QUEUES[0], "start": None, "end": None}

new_task_fields = st.fixed_dictionaries({
    "queue": queues,
    "name": st.sampled_from(["", "n", "m"]),
    "body_bytes": st.sampled_from([None, b"\x00\xff"]),
    "priority": st.sampled_from([10, 10, 9, 2**40]),
    "max_attempts": st.sampled_from([None, None, 1, 2]),
    "node": st.sampled_from([None, None, None, *NODES]),
    "timeout": st.sampled_from([None, 5.0]),
    "unique_key": st.sampled_from([None, "k", "l"]),
    "unique_for": st.sampled_from([*["unfinished"] * 5, "forever", *AHEAD]),
    "start": st.sampled_from(STARTS),
    "end": st.sampled_from(ENDS),
})  # fmt: skip


def has_room(machine: ModelMachine) -> bool:
    return len(machine.state.tasks) < 6


class UserSteps(ModelMachine):
    @initialize(several=st.lists(queues, max_size=4))
    def initial_tasks(self, several: list[str]) -> None:
        for queue in several:
            self._enqueue([PLAIN | {"queue": queue}])

    @rule(several=st.lists(new_task_fields, min_size=1, max_size=4))
    @only_if(has_room)
    def enqueue(self, several: list[dict[str, Any]]) -> None:
        self._enqueue(several)

    def _enqueue(self, several: list[dict[str, Any]]) -> None:
        new = [self._new_task(wanted_fields) for wanted_fields in several]
        got = self.run(enqueue.enqueue_many, new) if len(new) > 1 else [self.run(enqueue.enqueue, new[0])]
        self._are_new([one.id for one in got if one.created])
        wanted = user_rules.enqueue(self.state, new, [one.id for one in got])
        self.same(got, [Enqueued(task_id, created) for task_id, created in wanted])

    def _new_task(self, wanted_fields: dict[str, Any]) -> NewTask:
        start, end = wanted_fields["start"], wanted_fields["end"]
        fields = {name: value for name, value in wanted_fields.items() if name not in ("start", "end")}
        for field, given in (("start", start), ("finish", None if start and end and end[1] <= start[1] else end)):
            match given:
                case ("in", seconds) if seconds >= 0:
                    fields[f"{field}_in"] = seconds
                case (_, seconds):
                    fields[f"{field}_at"] = self.state.later(seconds)
        return NewTask(**fields, body=f'{{"number": {next(_bodies)}}}', trace_context="00-a-b-01")

    def _are_new(self, ids: list[int]) -> None:
        assert len(set(ids)) == len(ids), f"one id for two tasks: {ids}"
        assert all(task_id > self.newest_id for task_id in ids), f"an id was used again: {ids}"
        self.newest_id = max([self.newest_id, *ids])

    @rule(several=st.lists(new_task_fields, min_size=1, max_size=3), rolls_back=st.booleans())
    @only_if(has_room)
    def enqueue_and_fail(self, several: list[dict[str, Any]], rolls_back: bool) -> None:  # noqa: FBT001
        """An application rolls its transaction back, or one task is for a node that never was: none is accepted."""
        new = [self._new_task(wanted_fields) for wanted_fields in several]
        if rolls_back:
            with self.database.engine.connect() as connection:
                enqueue.enqueue_many(connection, new)
                connection.rollback()
            return
        new.append(NewTask(queue=QUEUES[0], node=NEVER))
        self.both(
            lambda: self.run(enqueue.enqueue_many, new),
            lambda: user_rules.enqueue(self.state, new, []),
        )

    @rule(
        status=st.sampled_from([None, *[Status.PENDING] * 4, *Status]),
        start=delays,
        node=st.sampled_from([None, *NODES]),
        attempts=st.sampled_from([0, 1, 2]),
    )
    @only_if(has_room)
    def insert_with_sql(self, status: Status | None, start: float | None, node: str | None, attempts: int) -> None:
        values: dict[str, Any] = {"queue": QUEUES[0], "name": "n", "body": "{}"}
        if status is not None:
            values |= {"status": status, "attempts": attempts, "failures": attempts, "priority": 10 + attempts}
            values["start_at"] = None if start is None else self.state.later(start + 20.0)
            values["worker_node_id"] = None if node is None else self.state.nodes[node].id
        statement = sa.insert(task_table).values(values | ({} if status is None else {"status": str(status)}))
        self.run(lambda connection: connection.execute(statement).rowcount)
        task_id = max(self.database.read(read_all)["tasks"])
        self._are_new([task_id])
        self.state.tasks[task_id] = ModelTask(
            id=task_id, created_at=self.state.now, updated_at=self.state.now, **values
        )

    @rule(
        what=st.sampled_from(["cancel", "retry", "move", "snooze", "bury", "kick", "delete"]),
        index=CLAIM_INDEXES,
        node=st.sampled_from([None, *NODES, NEVER]),
    )
    @only_if(lambda machine: machine.state.tasks)
    def intervene(self, what: str, index: int, node: str | None) -> None:
        task_id = self._pick_task(index)
        values: dict[str, Any] = {"cancel": "too dear", "move": node, "bury": 1, "snooze": 300.0}
        given = (values[what],) if what in values else ()
        named: dict[str, TaskAction] = {
            "cancel": BulkCancel("too dear"),
            "retry": BulkRetry(),
            "move": BulkMove(node),
            "snooze": BulkSnooze(300.0),
            "bury": BulkBury(),
            "kick": BulkKick(),
            "delete": BulkDelete(),
        }
        with patch.object(actions, "time", SimpleNamespace(time_ns=lambda: 1000)):
            self.both(
                lambda: self.run(act_on_task, task_id, named[what]),
                lambda: getattr(user_rules, what)(self.state, task_id, *given),
            )

    def _pick_task(self, index: int) -> int:
        running = [task.id for task in self.state.working()]
        ids = [*running, *(task_id for task_id in self.state.tasks if task_id not in running), 10**9]
        note(f"# task {ids[index % len(ids)]}")
        return ids[index % len(ids)]

    @rule(
        index=CLAIM_INDEXES, node=st.sampled_from([None, *NODES]), leaves_deadline=st.sampled_from([False, False, True])
    )
    @only_if(has_task_in(Status.WORKING))
    def move_by_hand(self, index: int, node: str | None, *, leaves_deadline: bool) -> None:
        working = list(self.state.working())
        task = working[index % len(working)]
        node_id = None if node is None else self.state.nodes[node].id
        values = f"node_id = {node_id or 'NULL'}, status = 'pending', lease = lease + 1"
        values += "" if leaves_deadline else ", deadline_at = NULL"
        statement = f"UPDATE tasks SET {values} WHERE id = {task.id}"
        self.run(lambda connection: connection.exec_driver_sql(statement).rowcount)
        user_rules.move_by_hand(self.state, task.id, node_id, leaves_deadline=leaves_deadline)
