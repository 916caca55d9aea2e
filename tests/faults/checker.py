"""The checker of a fault run: judges the history of the handlers against the database's own record of all writes.

PYTHONPATH=. python -m tests.faults.checker HISTORY_FOLDER URL MAX_UPDATE
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.faults import (
    final_tables,
    history,
    rules_of_claims,
    rules_of_handlers,
    rules_of_jobs,
    rules_of_processes,
    rules_of_tasks,
    rules_of_versions,
)
from tests.faults.case import CheckerSettings, RuleViolation, RunRecord
from tests.faults.final_tables import FinalTables
from tests.faults.history import HistoryEvent

RULES: Final = (
    *rules_of_tasks.RULES,
    *rules_of_claims.RULES,
    *rules_of_processes.RULES,
    *rules_of_handlers.RULES,
    *rules_of_versions.RULES,
    *rules_of_jobs.RULES,
)
RULE_NAMES: Final = (
    "lost",
    "keys",
    "lifecycle",
    "lease",
    "transaction",
    "stale write",
    "overlap",
    "attempts",
    "not written",
    "rescue",
    "crash",
    "poison",
    "death",
    "recycle",
    "versions",
    "jobs lost",
    "jobs held",
    "jobs counted",
)
"""What a problem's `rule` may be."""
SHOWN_LABELS: Final = ("failure", "timeout", "snoozed", "released", "unknown", "crash", "rescued")
"""Ends of claims that a report counts."""


class CheckReport(msgspec.Struct):
    """What the checker found: problems, and how often what happened."""

    problems: list[RuleViolation]
    counts: dict[str, int]

    def broken(self, rule: str) -> int:
        """How often a rule was broken; see `RULE_NAMES`."""
        return sum(problem.rule == rule for problem in self.problems)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items() if count)
        shown = [str(problem) for problem in self.problems[:20]]
        more = [f"… and {len(self.problems) - 20} more"] if len(self.problems) > 20 else []
        return "\n".join([counts, f"{len(self.problems)} problems", *shown, *more])


def check(history_folder: Path, url: str, settings: CheckerSettings) -> CheckReport:
    """Judge a run that has come to rest.

    Args:
        history_folder: where $PEERD_HISTORY pointed.
        url: of the database, in which `audit.install` was called before the first task.
        settings: the settings of the nodes.
    """
    return judge(history.read(history_folder), final_tables.read(url), settings)


def judge(events: Sequence[HistoryEvent], found: FinalTables, settings: CheckerSettings) -> CheckReport:
    """Judge a history, in the order of its time, and the tables that it left: a pure function."""
    case = RunRecord(events, found, settings)
    problems = [problem for rule in RULES for problem in rule(case)]
    return CheckReport(problems, _count(case))


def _count(case: RunRecord) -> dict[str, int]:
    statuses = Counter(str(changes[-1].new_status or "deleted") for changes in case.changes.values())
    labels = Counter(claim.label for claim in case.claims.values())
    events = Counter(event.event for event in case.events)
    faults = Counter(f"fault: {event.kind}" for event in case.events if event.event == "fault")
    refused = [run for run in case.runs if run.ended and run.ended.time > _claim_end(case, run.key)]
    return {
        "tasks": len(case.changes),
        "acknowledged": events["enqueued"],
        "unsure": events["unsure"],
        **{status: statuses[status] for status in ("done", "dead", "canceled", "deleted")},
        "claims": len(case.claims),
        "runs": len(case.runs),
        "extra runs": len(case.runs) - len({run.began.task for run in case.runs}),
        **{label: labels[label] for label in SHOWN_LABELS},
        "killed handlers": events["dying"],
        "jobs": len(case.jobs),
        "reservations": len(case.reservations),
        "jobs taken back": sum(rules_of_jobs.is_taken_back(case, claim) for claim in case.reservations.values()),
        "recycled": sum(map(rules_of_handlers.is_recycled, case.tables.processes)),
        "by hand": sum(claim.ended_by_hand for claim in case.claims.values()),
        "ended too late, and refused": len(refused),
        **dict(sorted(faults.items())),
    }


def _claim_end(case: RunRecord, key: tuple[int, int]) -> float:
    claim = case.claims.get(key)
    return 0.0 if claim is None else claim.ended_at


def main() -> int:
    """Check from the command line; 1 if there was a problem."""
    folder, url, max_update = sys.argv[1:]
    report = check(Path(folder), url, CheckerSettings(max_update=float(max_update)))
    print(report)  # noqa: T201
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
