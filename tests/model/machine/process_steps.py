"""What processes do: claim, touch, tell how far, complete, fail; also with claims that they lost, and twice."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Canceled, Deferred, Failed, Outcome, Released, Snoozed
from peerd.domain.task import Task
from peerd.store import outcomes, rescue
from peerd.store.outcomes import ClaimId, TaskProgress
from peerd.store.statements import new_token
from peerd.store.take import claiming
from tests.model.database_clock import DELAYS
from tests.model.machine.base import (
    CLAIM_INDEXES,
    LIMITS,
    QUEUES,
    MadeClaim,
    ModelMachine,
    claimer_of,
    has_claimed,
    has_task_in,
    keys,
    only_if,
)
from tests.model.reference import chore_rules, process_rules
from tests.model.reference.state import ModelProcess
from tests.support.outcomes import record_outcome

OUTCOMES: Final[list[Outcome]] = [
    *(Failed(error="boom", retry_in=delay) for delay in DELAYS),
    Failed(error="slow", traceback="line 1", retry_in=DELAYS[1], label="timeout"),
    Failed(error="bang", traceback="line 2"),
    *(Snoozed(delay, "not now") for delay in DELAYS),
    Deferred(DELAYS[1], "no such handler"),
    Canceled("unwanted"),
    Released("the process ends"),
]
some_outcome = st.sampled_from(OUTCOMES)
ATTEMPTS_OF: Final = {("a", "n"): 2, ("b", "m"): 1, ("b", "n"): 1}
claim_indexes = st.lists(CLAIM_INDEXES, min_size=1, max_size=4)
served = st.sampled_from([QUEUES, QUEUES, QUEUES[:1], QUEUES[1:]])


class ProcessSteps(ModelMachine):
    @rule(index=st.integers(0, 9), limit=LIMITS, reply_is_lost=st.booleans())
    @only_if(lambda machine: machine.eligible_claimers())
    def claim(self, index: int, limit: int, reply_is_lost: bool) -> None:  # noqa: FBT001
        eligible_claimers = self.eligible_claimers()
        process, quarantined = eligible_claimers[index % len(eligible_claimers)]
        self._claim(process, QUEUES, limit, quarantined=quarantined, reply_is_lost=reply_is_lost)

    @rule(
        process=ModelMachine.processes, queues=served, limit=LIMITS, quarantined=st.sampled_from([False, False, True])
    )
    @only_if(has_task_in(Status.PENDING))
    def claim_by_any_process(
        self, process: ModelProcess, queues: tuple[str, ...], limit: int, *, quarantined: bool
    ) -> None:
        self._claim(process, queues, limit, quarantined=quarantined, reply_is_lost=False)

    def eligible_claimers(self) -> list[tuple[ModelProcess, bool]]:
        processes = self.state.processes.values()
        who = [(process, quarantined) for process in processes for quarantined in (False, True)]
        return [one for one in who if process_rules.eligible(self.state, one[0], QUEUES, quarantined=one[1])]

    def _claim(
        self, process: ModelProcess, queues: tuple[str, ...], limit: int, *, quarantined: bool, reply_is_lost: bool
    ) -> None:
        claimer = claimer_of(process, queues, attempts_of=ATTEMPTS_OF)
        token = new_token()
        answer = self.run(claiming.claim, claimer, token=token, limit=limit, quarantined=quarantined)
        taken = self.run(claiming.claimed_by_token, claimer, token) if reply_is_lost else answer.tasks
        how: dict[str, Any] = {"token": token, "limit": limit, "quarantined": quarantined}
        attempts: dict[str, Any] = {"default_attempts": claimer.default_attempts, "attempts_of": ATTEMPTS_OF}
        wanted = process_rules.claim(self.state, process, queues, **how, **attempts)
        self.same(keys_of(taken), wanted)
        assert not answer.lost_candidates
        self.made += [MadeClaim(ClaimId(task.id, task.lease), process, token) for task in taken]

    @rule(index=CLAIM_INDEXES)
    @only_if(has_claimed)
    def read_back(self, index: int) -> None:
        claim = self.pick(index)
        got = self.database.read(claiming.claimed_by_token, claimer_of(claim.process, QUEUES), claim.token)
        self.same(keys_of(got), process_rules.claimed_by_token(self.state, claim.process, claim.token))

    @rule(indexes=claim_indexes, words=st.sampled_from([None, "half way"]), with_progress=st.booleans())
    @only_if(has_claimed)
    def touch(self, indexes: list[int], words: str | None, with_progress: bool) -> None:  # noqa: FBT001
        claims = self._pick_some(indexes)
        if with_progress:
            reports = {claim.held: TaskProgress(index / 2 - 0.5, words) for index, claim in enumerate(claims)}
            lost = self.run(outcomes.report_progress, reports).refused
            told = {(held.id, held.lease): (progress.fraction, progress.note) for held, progress in reports.items()}
            self.same(keys(lost), process_rules.report_progress(self.state, told))
        else:
            lost = self.run(outcomes.touch, {claim.held for claim in claims})
            self.same(keys(lost), process_rules.touch(self.state, [claim.key for claim in claims]))

    @rule(indexes=claim_indexes, result=st.sampled_from([None, '{"a": 1}']), times=st.integers(1, 2))
    @only_if(has_claimed)
    def complete(self, indexes: list[int], result: str | None, times: int) -> None:
        claims = self._pick_some(indexes)
        process = claims[0].process
        mine = [claim for claim in claims if claim.process == process]
        for _ in range(times):
            results = {one.held: None if index % 2 else result for index, one in enumerate(mine)}
            refused = self.run(outcomes.complete, process.id, results)
            wanted = {(held.id, held.lease): text for held, text in results.items()}
            self.same(keys(refused), process_rules.complete(self.state, process.id, wanted))

    @rule(index=CLAIM_INDEXES, outcome=some_outcome, again=st.sampled_from([None, None, *OUTCOMES]))
    @only_if(has_claimed)
    def record_outcome(self, index: int, outcome: Outcome, again: Outcome | None) -> None:
        claim = self.pick(index)
        self._conclude(claim, claim.process, outcome)
        if again is not None:
            self._conclude(claim, claim.process, again)

    def _conclude(self, claim: MadeClaim, process: ModelProcess, outcome: Outcome) -> None:
        accepted = self.run(record_outcome, process.id, claim.held, outcome)
        self.same(accepted, process_rules.record_outcome(self.state, process.id, claim.key, outcome))

    @rule(index=CLAIM_INDEXES, process=ModelMachine.processes, outcome=some_outcome)
    @only_if(has_claimed)
    def other_process_writes_lost_claim(self, index: int, process: ModelProcess, outcome: Outcome) -> None:
        """Whoever repeats the write of another process is refused, although there is one like it."""
        claim = self.pick(index)
        if self.state.held(*claim.key) is not None or process == claim.process:
            return
        self._conclude(claim, process, outcome)
        refused = self.run(outcomes.complete, process.id, {claim.held: None})
        self.same(keys(refused), process_rules.complete(self.state, process.id, {claim.key: None}))

    @rule(indexes=claim_indexes, other=ModelMachine.processes, own=st.booleans())
    @only_if(has_claimed)
    def release_unknown_claims(self, indexes: list[int], other: ModelProcess, own: bool) -> None:  # noqa: FBT001
        claims = self._pick_some(indexes)
        process = claims[0].process if own else other
        got = self.run(rescue.release_unknown_claims, process.id, [claim.held for claim in claims], "stray")
        mine = [claim.key for claim in claims]
        wanted = chore_rules.release_unknown_claims(self.state, process.id, mine, "stray")
        self.same({one.task_id: (one.event, one.label) for one in got}, wanted)

    def _pick_some(self, indexes: list[int]) -> list[MadeClaim]:
        return list(dict.fromkeys(map(self.pick, indexes)))


def keys_of(taken: list[Task]) -> list[tuple[int, int]]:
    return [(task.id, task.lease) for task in taken]
