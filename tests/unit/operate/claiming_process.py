"""A simulated process that claims and ends tasks, one step at a time, with the writes of a worker process."""

from __future__ import annotations

from peerd.domain.outcome import Done, Outcome
from peerd.domain.task import Task
from peerd.store.connection.database import Database
from peerd.store.known_handlers import encode_handlers
from peerd.store.nodes import find_node, new_incarnation, register_incarnation
from peerd.store.outcomes import ClaimId, TaskProgress, complete, report_progress
from peerd.store.processes import ProcessCapabilities, register_process
from peerd.store.statements import new_token
from peerd.store.take.claimer import Claimer
from peerd.store.take.claiming import claim
from tests.support.outcomes import record_outcome


class ClaimingProcess:
    """A registered node with one process."""

    def __init__(self, database: Database, node: str = "video-1") -> None:
        self.database = database
        self.incarnation = new_incarnation()
        before = database.read(find_node, node)
        node_id = database.run(
            register_incarnation, node, self.incarnation, replaces=None if before is None else before.incarnation
        )
        assert node_id is not None
        self.node_id = node_id
        self.process_id = database.run(
            register_process, node_id=node_id, incarnation=self.incarnation, kind="video", slot="video-1",
            role="worker", pid=4242, capabilities=ProcessCapabilities(("video",), encode_handlers({"video": None}), 4),
        )  # fmt: skip

    def claim(self, queue: str = "video", max_attempts: int = 3) -> Task:
        claimer = Claimer(
            node_id=self.node_id, incarnation=self.incarnation, process_id=self.process_id, queues=(queue,),
            default_attempts=max_attempts,
        )  # fmt: skip
        [task] = self.database.run(claim, claimer, token=new_token(), limit=1).tasks
        return task

    def report(self, task: Task, fraction: float, note: str) -> None:
        assert not self.database.run(
            report_progress, {ClaimId(task.id, task.lease): TaskProgress(fraction, note)}
        ).refused

    def end(self, task: Task, outcome: Outcome) -> None:
        held = ClaimId(task.id, task.lease)
        if isinstance(outcome, Done):
            assert not self.database.run(complete, self.process_id, {held: outcome.result})
        else:
            assert self.database.run(record_outcome, self.process_id, held, outcome)

    def run(self, outcome: Outcome, queue: str = "video", max_attempts: int = 3) -> Task:
        task = self.claim(queue, max_attempts)
        self.end(task, outcome)
        return task
