"""Rules about two versions of the users' code: what one does not know is released, and run by the other alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from peerd.domain.outcome import RELEASED_LABEL, UNKNOWN_LABEL
from tests.faults import versions
from tests.faults.case import BY_SQL, DELETED, HAND_LABELS, HELD, RuleViolation, RunRecord

WITHOUT_A_RUN: Final = (UNKNOWN_LABEL, RELEASED_LABEL, "crash", "rescued", *HAND_LABELS, BY_SQL, DELETED, HELD)
"""How a claim may end of a process that does not know the task."""


def nothing_is_run_by_code_that_does_not_know_it(case: RunRecord) -> Iterator[RuleViolation]:
    """A handler that is of one version of the code alone runs tasks whose handler and arguments it knows."""
    for run in case.runs:
        task, lease = run.key
        if run.began.code and run.began.code not in _known_to(case, task):
            text = f"its handler at lease {lease} was of the {run.began.code} code, which does not know the task"
            yield case.problem("versions", task, text)


def what_other_code_knows_is_released(case: RunRecord) -> Iterator[RuleViolation]:
    """A claim of a process that does not know the task is released; one of a process that knows it is not."""
    codes = {row.id: versions.code_of(case.tables.nodes.get(row.node_id, "")) for row in case.tables.processes}
    for (task, lease), claim in case.claims.items():
        code = codes.get(claim.process_id or 0)
        if code is None:
            continue
        is_known = code in _known_to(case, task)
        if is_known and claim.label == UNKNOWN_LABEL:
            text = f"its claim {lease} was released for other code, although the {code} code knows it"
            yield case.problem("versions", task, text)
        if not is_known and claim.label not in WITHOUT_A_RUN:
            text = f"its claim {lease} ended as {claim.label} in a process with the {code} code, which does not know it"
            yield case.problem("versions", task, text)


def _known_to(case: RunRecord, task: int) -> frozenset[str]:
    changes = case.changes.get(task)
    return versions.known_to(case.name(task), json.loads(changes[0].details or "{}")) if changes else versions.BOTH


RULES: Final = (nothing_is_run_by_code_that_does_not_know_it, what_other_code_knows_is_released)
