"""The slots and the outcomes of a runner, for the metrics of its process."""

from __future__ import annotations

from collections.abc import Iterable

from peerd.runtime.metrics.samples import Sample
from peerd.work.task_runner import Runner


def runner_samples(kind: str, runner: Runner) -> Iterable[Sample]:
    """The samples of one runner, of a process of this kind."""
    busy = len(runner.executor_slots.running())
    yield Sample("peerd_slots", (kind, "busy"), busy)
    yield Sample("peerd_slots", (kind, "free"), max(runner.slot_count - busy, 0))
    yield Sample("peerd_unwritten_outcomes", (kind,), runner.unwritten_count)
