"""Rules about processes: a living process keeps its tasks, a recorded death is real, a poison task runs alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from typing import Final

from tests.faults.case import HandlerRun, RuleViolation, RunRecord
from tests.faults.disruptions import ENDED, FROZEN


def no_rescue_from_living_process(case: RunRecord) -> Iterator[RuleViolation]:
    """A task is rescued only from a process that was dead, frozen or cut off, and only after max_update of silence."""
    settings = case.settings
    for (task, lease), claim in case.claims.items():
        if claim.label != "rescued" or claim.ended is None:
            continue
        touched = claim.ended.checked_at or claim.change.at
        silence = claim.ended.at - touched
        if silence < settings.max_update - settings.clock_slack:
            yield case.problem("rescue", task, f"its claim {lease} was rescued {silence:.3f} s after its last touch")
        undisturbed_limit = case.disruptions.longest_undisturbed(
            claim.process_id, claim.ended.at - settings.max_update, claim.ended.at
        )
        if undisturbed_limit > settings.undisturbed_limit:
            text = (
                f"its claim {lease} was rescued, although its process {claim.process_id} had {undisturbed_limit:.1f} s"
            )
            yield case.problem("rescue", task, f"{text} without trouble in the last {settings.max_update:g} s")


def crashed_processes_are_dead(case: RunRecord) -> Iterator[RuleViolation]:
    """A task is taken back as crashed only when its process has died of something, and records nothing afterwards."""
    last_heard = _last_event_at(case)
    for (task, lease), claim in case.claims.items():
        if claim.label != "crash" or claim.process_id is None:
            continue
        disruptions = case.disruptions.of(claim.process_id, end=claim.ended_at + case.settings.clock_slack)
        if not any(disruption.effect != ENDED for disruption in disruptions):
            yield case.problem("crash", task, f"its claim {lease} crashed, and nothing has hurt its process")
        went_on = last_heard.get(claim.process_id, 0.0) - claim.ended_at
        if went_on > case.settings.clock_slack and not any(disruption.effect == FROZEN for disruption in disruptions):
            text = f"its claim {lease} was taken back as crashed, and its process {claim.process_id} went on"
            yield case.problem("crash", task, f"{text} for {went_on:.3f} s")


def _last_event_at(case: RunRecord) -> dict[int, float]:
    """When a process's handlers last recorded something."""
    heard: dict[int, float] = {}
    for event in case.events:
        if event.event in ("began", "ended"):
            heard[event.process_id] = max(heard.get(event.process_id, 0.0), event.time)
    return heard


def crashed_tasks_run_alone(case: RunRecord) -> Iterator[RuleViolation]:
    """A task that has crashed a process runs in an otherwise empty one."""
    by_process: dict[int, list[HandlerRun]] = defaultdict(list)
    for run in case.runs:
        by_process[run.began.process_id].append(run)
    for process_id, runs in by_process.items():
        if any(run.began.crashes for run in runs):
            yield from _beside(case, process_id, sorted(runs, key=lambda run: run.began.at))


def _beside(case: RunRecord, process_id: int, runs: Sequence[HandlerRun]) -> Iterator[RuleViolation]:
    still: list[HandlerRun] = []
    for run in runs:
        still = [other for other in still if _end(case, other) > run.began.time]
        quarantined = [one for one in (run, *still) if one.began.crashes]
        if still and quarantined:
            beside = ", ".join(str(one.began.task) for one in (run, *still) if one is not quarantined[0])
            text = f"it had crashed a process, and ran in process {process_id} beside {beside}"
            yield case.problem("poison", quarantined[0].began.task, text)
        still.append(run)


def _end(case: RunRecord, run: HandlerRun) -> float:
    """When a handler has ended for certain; one that was killed recorded nothing, and ended before its claim did."""
    if run.ended is not None:
        return run.ended.time
    claim = case.claims.get(run.key)
    return inf if claim is None else claim.ended_at


RULES: Final = (no_rescue_from_living_process, crashed_processes_are_dead, crashed_tasks_run_alone)
