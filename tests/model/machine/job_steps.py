"""What queue clients do: put, reserve, end their reservations and those that they lost, kick and delete."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import rule

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.jobs import free, holding, reserving
from peerd.store.jobs.holding import Bury, Release
from peerd.store.outcomes import ClaimId
from tests.model.machine.base import CLAIM_INDEXES, LIMITS, QUEUES, ModelMachine, claimer_of, has_task_in, keys, only_if
from tests.model.machine.user_steps import has_room
from tests.model.reference import job_rules, user_rules
from tests.model.reference.state import ModelProcess

DEFAULT_TTR: Final = 500
releases = st.sampled_from([
    (None, None, None), (None, None, "timeouts"), (11, 0, "releases"), (9, 300, "releases"), (None, 900, None),
])  # fmt: skip
served = st.sampled_from([QUEUES, QUEUES, QUEUES[:1], QUEUES[1:]])


class JobSteps(ModelMachine):
    def __init__(self) -> None:
        super().__init__()
        self.reserved: list[tuple[ClaimId, ModelProcess]] = []
        self.burials = count(1)

    def group(self, operation: Any, /, *args: Any) -> Any:
        return self.database.run_group(operation, *args)

    @rule(
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from([10, 10, 9]),
        delay=st.sampled_from([0, 0, 300]),
        key=st.sampled_from([None, None, "k"]),
    )
    @only_if(has_room)
    def put(self, queue: str, priority: int, delay: int, key: str | None) -> None:
        new = NewTask(queue=queue, priority=priority, ttr=100, delay=delay, unique_key=key)
        [got] = self.group(enqueue.put, [new])
        self.same([(got.id, got.created)], user_rules.enqueue(self.state, [new], [got.id]))

    @rule(process=ModelMachine.processes, queues=served, limit=LIMITS)
    @only_if(has_task_in(Status.PENDING))
    def reserve(self, process: ModelProcess, queues: tuple[str, ...], limit: int) -> None:
        got = self.group(reserving.reserve, claimer_of(process, queues), limit, DEFAULT_TTR)
        wanted = job_rules.reserve(self.state, process, queues, limit, DEFAULT_TTR)
        self.same([(job.id, job.lease) for job in got], wanted)
        for job in got:
            task = self.state.tasks[job.id]
            shown = (job.queue, job.priority, job.ttr, job.unique_key, job.timeouts, job.releases)
            counts = (task.timeouts or 0, task.releases or 0)
            self.same(shown, (task.queue, task.priority, task.ttr, task.unique_key, *counts))
            has_attempts = any(task_id == job.id for task_id, _ in self.state.attempts)
            assert job.has_attempts or not has_attempts, "its attempts would outlive it"
        self.reserved += [(job.claim, process) for job in got]

    @rule(process=ModelMachine.processes, index=CLAIM_INDEXES)
    @only_if(lambda machine: machine.state.tasks)
    def take(self, process: ModelProcess, index: int) -> None:
        job_id = self._pick_job(index)
        got = self.group(reserving.reserve_by_id, claimer_of(process, QUEUES), job_id, DEFAULT_TTR)
        wanted = job_rules.take(self.state, process, job_id, DEFAULT_TTR)
        self.same(None if got is None else (got.id, got.lease), wanted)
        if got is not None:
            self.reserved.append((got.claim, process))

    @rule(indexes=st.lists(CLAIM_INDEXES, min_size=1, max_size=3), other=ModelMachine.processes, own=st.booleans())
    @only_if(lambda machine: machine.reserved)
    def delete_held(self, indexes: list[int], other: ModelProcess, own: bool) -> None:  # noqa: FBT001
        claims, process = self._pick_reserved(indexes)
        process = process if own else other
        got = self.group(holding.delete_held, process.id, claims)
        self.same(keys(got), job_rules.delete(self.state, process.id, sorted(keys(set(claims)))))

    @rule(indexes=st.lists(CLAIM_INDEXES, min_size=1, max_size=3), how=st.lists(releases, min_size=3, max_size=3))
    @only_if(lambda machine: machine.reserved)
    def release(self, indexes: list[int], how: list[Any]) -> None:
        claims, process = self._pick_reserved(indexes)
        wanted = [Release(claim, *one) for claim, one in zip(claims, how, strict=False)]
        got = self.group(holding.release, process.id, wanted)
        self.same(keys(got), job_rules.release(self.state, process.id, wanted))

    @rule(index=CLAIM_INDEXES, priority=st.sampled_from([None, 11]), counts=st.sampled_from([None, "timeouts"]))
    @only_if(lambda machine: machine.reserved)
    def bury(self, index: int, priority: int | None, counts: Any) -> None:
        [claim], process = self._pick_reserved([index])
        one = Bury(claim, priority, next(self.burials), counts)
        got = self.group(holding.bury, process.id, [one])
        self.same(keys(got), job_rules.bury(self.state, process.id, one))

    @rule(indexes=st.lists(CLAIM_INDEXES, min_size=1, max_size=3))
    @only_if(lambda machine: machine.reserved)
    def touch_reservations(self, indexes: list[int]) -> None:
        claims, process = self._pick_reserved(indexes)
        got = self.group(holding.touch_reservations, process.id, claims)
        self.same(keys(got), job_rules.touch(self.state, process.id, sorted(keys(set(claims)))))

    @rule(queue=st.sampled_from(QUEUES), bound=LIMITS)
    @only_if(has_task_in(Status.BURIED, Status.SCHEDULED, Status.FAILURE))
    def kick(self, queue: str, bound: int) -> None:
        self.same(self.group(free.kick, queue, bound), job_rules.kick(self.state, queue, bound))

    @rule(index=CLAIM_INDEXES, is_kicked=st.booleans())
    @only_if(lambda machine: machine.state.tasks)
    def act_on_any_job(self, index: int, is_kicked: bool) -> None:  # noqa: FBT001
        job_id = self._pick_job(index)
        if is_kicked:
            self.same(self.group(free.kick_job, job_id), job_rules.kick_job(self.state, job_id))
        else:
            self.same(set(self.group(free.delete_free, [job_id])), job_rules.delete_free(self.state, job_id))

    def _pick_job(self, index: int) -> int:
        """A job: those that are set aside first, then the others; last one that is not there."""
        aside = [task.id for task in self.state.tasks.values() if task.status not in (Status.PENDING, Status.WORKING)]
        ids = [*aside, *(task_id for task_id in self.state.tasks if task_id not in aside), 10**9]
        note(f"# job {ids[index % len(ids)]}")
        return ids[index % len(ids)]

    def _pick_reserved(self, indexes: list[int]) -> tuple[list[ClaimId], ModelProcess]:
        """Reservations of one process, which may be lost: first those that are held, the youngest first."""
        youngest = self.reserved[::-1]
        held = [one for one in youngest if self.state.held(one[0].id, one[0].lease)]
        ordered = [*held, *(one for one in youngest if one not in held)]
        picked = [ordered[index % len(ordered)] for index in indexes]
        process = picked[0][1]
        note(f"# reservations of process {process.id}: {[claim for claim, _ in picked]}")
        return list(dict.fromkeys(claim for claim, holder in picked if holder == process)), process
