"""Claims beside a chore of the manager's that has a million rows to treat: arrivals that fall due together, a purge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from bench.databases import BenchDatabase
from bench.filling import RowTemplate
from bench.node import running_node
from bench.samples import ClaimsDuringChore
from bench.shapes import DAY, MILLION, WARM, ShapedTable
from bench.sizes import Sizes

LONGEST: Final = 600.0
"""Seconds until the chore must be done."""
BEFORE: Final = 3.0
"""Seconds of claims before there is anything to do for the manager."""
FILLED: Final = 15_000
"""Rows that are filled in a second, at the least: the scheduled fall due when all are there and the node is up."""
UP_IN: Final = 6.0
"""Seconds."""
BETWEEN: Final = 0.02
"""Seconds between two claims: they are there to see, not to fill the machine."""


class MeasuredChore(msgspec.Struct, frozen=True, kw_only=True):
    """What it treats, and how one sees that it is done."""

    rows: RowTemplate
    left: str


CHORES: Final = {
    "arrive": MeasuredChore(
        rows=RowTemplate(number=MILLION, values={"status": "'scheduled'", "priority": "5"}),
        left="SELECT id FROM tasks WHERE status = 'scheduled' LIMIT 1",
    ),
    "purge": MeasuredChore(
        rows=RowTemplate(
            number=2 * MILLION,
            values={"status": "'done'", "progress": "1.0"},
            moments={"created_at": -40 * DAY, "finished_at": -40 * DAY, "updated_at": -40 * DAY},
        ),
        left="SELECT id FROM tasks WHERE status = 'done' AND finished_at < {long_ago} LIMIT 1",
    ),
}
"""What arrives is less urgent than what is claimed, in the same queue."""
LONG_AGO: Final = {
    "mariadb": "now(6) - INTERVAL 30 DAY",
    "postgresql": "clock_timestamp() - INTERVAL '30 days'",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', '-30 days')",
}


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[ClaimsDuringChore]:
    """A node with its manager, and no worker, runs beside claims of ours."""
    for name, chore in CHORES.items():
        yield _beside(target, name, chore, max(int(chore.rows.number * sizes.shapes), 10))


def _beside(target: BenchDatabase, name: str, chore: MeasuredChore, number: int) -> ClaimsDuringChore:
    target.empty()
    table = ShapedTable(target, target.url)
    left = chore.left.format(long_ago=LONG_AGO[target.kind])
    try:
        for _ in range(WARM):
            table.offer_and_claim()
        before = [taken for _, taken in _claims(table, until=time.time() + BEFORE)]
        due = time.time() + (UP_IN + number / FILLED if name == "arrive" else 0.0)
        values = {"start_at": _moment(target.kind, due)} if name == "arrive" else {}
        table.fill(RowTemplate(number=number, values={**chore.rows.values, **values}, moments=chore.rows.moments))
        with running_node(target, f"chores-{name}"):
            due = max(due, time.time())
            beside = []
            while target.ask(left):
                if time.time() > due + LONGEST:
                    raise TimeoutError(f"{name}: rows are left after {LONGEST:g} s")
                beside += _claims(table, until=time.time() + 0.5)
            seconds = time.time() - due
    finally:
        table.close()
    return ClaimsDuringChore(
        database=target.name,
        chore=name,
        rows=number,
        seconds=seconds,
        before_milliseconds=tuple(before),
        milliseconds=tuple(taken for moment, taken in beside if moment >= due),
    )


def _claims(table: ShapedTable, until: float) -> list[tuple[float, float]]:
    """Claims, one after the other: when, and the milliseconds that it took."""
    taken = []
    while (moment := time.time()) < until:
        taken.append((moment, table.offer_and_claim()))
        time.sleep(BETWEEN)
    return taken


def _moment(kind: str, moment: float) -> str:
    written = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return {"mariadb": f"'{written}'", "postgresql": f"'{written}+00'", "sqlite": f"'{written[:-3]}'"}[kind]
