"""What a campaign showed, in words and in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.faults.campaign import CampaignResult

Column = Callable[[CampaignResult], object]
SHOWN: Final = 20
"""Problems that are shown in full."""


def words(result: CampaignResult) -> str:
    """The whole report as text."""
    plan = result.plan
    lines = [
        f"=== {plan.kind}: {plan.seconds:g} s of faults, {plan.tasks} tasks, seed {plan.seed}",
        f"{result.seconds:.0f} s in all; at rest {result.seconds_to_settle:.1f} s after the last healing",
        *([result.words] if result.words else []),
        str(result.report),
        *result.problems[:SHOWN],
        "GOOD" if result.is_good else "BAD",
    ]
    return "\n".join(lines)


def table(results: Sequence[CampaignResult]) -> str:
    """One line for each figure, one column for each database, as Markdown."""
    head = ["", *(result.plan.kind for result in results)]
    rows = [[name, *(str(column(result)) for result in results)] for name, column in ROWS.items()]
    return "\n".join(_line(cells) for cells in [head, ["---", *["---:" for _ in results]], *rows])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _count(*names: str) -> Column:
    return lambda result: sum(result.report.counts.get(name, 0) for name in names)


def _faults(*beginnings: str) -> Column:
    def count(result: CampaignResult) -> int:
        wanted = tuple(f"fault: {beginning}" for beginning in beginnings)
        return sum(number for name, number in result.report.counts.items() if name.startswith(wanted))

    return count


def _broken(*rules: str) -> Column:
    return lambda result: sum(result.report.broken(rule) for rule in rules)


ROWS: Final[Mapping[str, Column]] = {
    "tasks": _count("tasks"),
    "processes killed": _faults("kill worker", "kill gateway", "kill agent", "kill manager", "kill master"),
    "nodes killed": _faults("kill node"),
    "frozen beyond max_update": _faults("freeze worker", "freeze agent", "freeze manager", "freeze node"),
    "database killed or frozen": _faults("kill server", "freeze server"),
    "database out of reach, for all": _faults("outage", "cut connections", "locked database", "full disk"),
    "one node cut off": _faults("cut off"),
    "row locked beyond max_update": _faults("locked row"),
    "enqueued with the answer lost": _count("unsure"),
    "extra runs, each explained": _count("extra runs"),
    "released after a crash": _count("crash"),
    "released for other code": _count("unknown"),
    "rescued": _count("rescued"),
    "jobs of queue clients": _count("jobs"),
    "their reservations": _count("reservations"),
    "gateway processes killed": _faults("kill gateway"),
    "outcomes refused": _count("ended too late, and refused"),
    "**lost**": _broken("lost", "keys", "transaction"),
    "**stale writes accepted**": _broken("stale write", "lease", "lifecycle"),
    "**overlapping holders**": _broken("overlap"),
    "**rescued from the living**": _broken("rescue", "crash"),
    "**unexplained runs**": _broken("attempts", "not written", "poison"),
    "**jobs lost, held twice or counted**": _broken("jobs lost", "jobs held", "jobs counted"),
    "**wrong for the code's version**": _broken("versions"),
}
