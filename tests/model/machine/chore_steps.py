"""What the manager and the agents do: take tasks back, and keep the table healthy, in batches of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from peerd.domain.lifecycle import FINISHED, Status
from peerd.store import chore_batches, rescue
from peerd.store.rescue import RescuedTask
from tests.model.compare import read_all
from tests.model.database_clock import SILENCE, STEP, advance_model, advance_rows
from tests.model.machine.base import LIMITS, ModelMachine, has_task_in, only_if
from tests.model.reference import chore_rules
from tests.model.reference.state import ModelProcess, ModelState, ModelTask

CHORES: Final = ("arrive", "arrive", "postpone", "expire", "purge", "purge_keys", "free_pinned", "fail_pinned")
silences = st.sampled_from(SILENCE)
Effect = Callable[[ModelState, ModelTask], None]


class ChoreSteps(ModelMachine):
    @rule(steps=st.sampled_from([1, 1, 2, 7]))
    def time_passes(self, steps: int) -> None:
        self.run(advance_rows, steps * STEP)
        advance_model(self.state, steps * STEP)

    @rule(max_update=silences, limit=LIMITS, beat_ago=st.sampled_from([None, 0, STEP]))
    @only_if(has_task_in(Status.WORKING))
    def rescue_untouched(self, max_update: float, limit: int, beat_ago: int | None) -> None:
        as_of = None if beat_ago is None else self.state.now - timedelta(seconds=beat_ago)
        got = self.run(rescue.rescue_untouched, max_update, limit, as_of=as_of)
        possible = chore_rules.untouched_tasks(self.state, max_update, as_of)
        for task in self._taken_back(got, possible, limit):
            wanted = chore_rules.crash(self.state, task, "rescued", "the task was not touched")
            self._same_verdict(got, task, wanted)

    @rule(process=ModelMachine.processes, crashed=st.booleans(), limit=LIMITS)
    @only_if(has_task_in(Status.WORKING))
    def process_dies(self, process: ModelProcess, crashed: bool, limit: int) -> None:  # noqa: FBT001
        got = self.run(rescue.release_tasks_of_process, process.id, "signal 9", crashed=crashed, limit=limit)
        for task in self._taken_back(got, chore_rules.claimed_by(self.state, process.id), limit):
            wanted = (
                chore_rules.crash(self.state, task, "crash", "signal 9", crashes=1)
                if crashed
                else chore_rules.release_with_label(self.state, task, "signal 9")
            )
            self._same_verdict(got, task, wanted)

    def _taken_back(self, got: list[RescuedTask], possible: list[ModelTask], limit: int) -> list[ModelTask]:
        ids = {one.task_id for one in got}
        self.same((len(ids), ids - {task.id for task in possible}), (min(limit, len(possible)), set()))
        return [task for task in possible if task.id in ids]

    def _same_verdict(self, got: list[RescuedTask], task: ModelTask, wanted: tuple[object, str]) -> None:
        [one] = [one for one in got if one.task_id == task.id]
        self.same((one.event, one.label), wanted)

    @rule(chores=st.lists(st.sampled_from(CHORES), min_size=1, max_size=3), after=silences, limit=LIMITS)
    @only_if(lambda machine: machine.state.tasks or machine.state.keys)
    def sweep(self, chores: list[str], after: float, limit: int) -> None:
        for chore in chores:
            if chore == "purge_keys":
                self._purge_keys(limit)
            for operation, possible, effect in self._batches(chore, after):
                count = self.run(operation, limit=limit)
                done = self.done_among(possible, limit, self.database.read(read_all)["tasks"])
                self.same(count, len(done))
                for task in done:
                    effect(self.state, task)

    def _batches(self, chore: str, after: float) -> Iterator[tuple[Any, list[ModelTask], Effect]]:
        match chore:
            case "arrive":
                for status in (Status.SCHEDULED, Status.FAILURE):
                    due = chore_rules.due_tasks(self.state, status)
                    yield partial(chore_batches.stage_due, status=status), due, chore_rules.stage
            case "postpone":
                early = chore_rules.pending_before_start(self.state)
                yield chore_batches.postpone, early, chore_rules.postpone
            case "expire":
                yield chore_batches.expire, chore_rules.past_finish_at(self.state), chore_rules.remove
            case "purge":
                for status in FINISHED:
                    old = chore_rules.purgeable(self.state, status, after)
                    yield partial(chore_batches.purge, status=status, age=after), old, chore_rules.remove
            case "free_pinned" | "fail_pinned":
                pinned = chore_rules.pinned_to_silent_node(self.state, after)
                self.same(self.database.read(chore_batches.count_pinned, after), len(pinned))
                effect = chore_rules.unpin if chore == "free_pinned" else chore_rules.fail_pinned
                yield partial(getattr(chore_batches, chore), after=after), pinned, effect

    def _purge_keys(self, limit: int) -> None:
        over = chore_rules.expired_keys(self.state)
        count = self.run(chore_batches.purge_keys, limit)
        self.same(count, min(limit, len(over)))
        left = self.database.read(read_all)["unique_keys"]
        for key in over:
            if (key.queue, key.unique_key) not in left:
                del self.state.keys[key.queue, key.unique_key]
                count -= 1
        self.same(count, 0)
