"""Claims by turns beside plain ones: ``python -m bench.limited_claims [DATABASE …]``; a million rows of each kind.

In each case ten tasks are claimed, of ten keys that are neither full nor alone in the table. The claims of a case and
plain claims from an empty table take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

from bench.databases import VARIANTS, BenchDatabase, open_bench_database
from bench.filling import RowTemplate, insert_rows
from bench.shapes import BATCH, MILLION, WARM, ShapedTable
from peerd.store.outcomes import ClaimId, complete
from peerd.store.statements import new_token
from peerd.store.take.claiming import claim_limited

CLAIMS: Final = 100
FEW: Final = "'few-' || ({number} % 10)"
NUMBER: Final = {"mariadb": "seq", "postgresql": "generate_series", "sqlite": "n"}
CASES: Final[Mapping[str, tuple[str | None, tuple[tuple[str, int], ...]]]] = {
    "nothing else": (None, ()),
    "each key may run 100": (None, (("*", 100),)),
    "a million of one key": ("'big'", (("*", 100),)),
    "a million of one key, which is full": ("'big'", (("*", 100), ("big", 0))),
    "a million of 1,000 keys, which are full": (
        "'big-' || ({number} % 1000)",
        (("*", 0), *((f"few-{n}", 100) for n in range(10))),
    ),
    "a million of 100,000 keys": ("'big-' || ({number} % 100000)", (("*", 100),)),
}
"""The keys of what else waits, and how many of which may run."""


class LimitedTable(ShapedTable):
    """A table from which is claimed by turns."""

    def prepare(self, keys: str | None, limits: tuple[tuple[str, int], ...], rows: int) -> None:
        """Begin a case."""
        self.clear()
        for table in ("limits", "turns", "limit_starts"):
            self._ask(f"DELETE FROM {table}")
        for key, running in limits:
            self._ask(f"INSERT INTO limits (queue, limit_key, running) VALUES ('bench', '{key}', {running})")
        if keys is not None:
            self.fill(RowTemplate(number=rows, values={"limit_key": self._of(keys)}))

    def offer_keyed(self, number: int) -> None:
        """Tasks of ten keys, beside what else waits."""
        insert_rows(self._connection, self._kind, RowTemplate(number=number, values={"limit_key": self._of(FEW)}))

    def claim_limited(self) -> tuple[float, int]:
        """Claim ten by turns, and complete them; the milliseconds that the claim took, and how many it won."""
        began = time.perf_counter()
        turn = self.database.run(claim_limited, self._claimer, "bench", token=new_token(), limit=BATCH)
        took = time.perf_counter() - began
        held: dict[ClaimId, Any] = {ClaimId(task.id, task.lease): None for task in turn.tasks}
        self.database.run(complete, self._claimer.process_id, held)
        return took * 1000, len(held)

    def _of(self, keys: str) -> str:
        text = keys.format(number=NUMBER[self._kind])
        return f"concat({text.replace(' || ', ', ')})" if self._kind == "mariadb" else text


def main() -> None:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.limited_claims")
    parser.add_argument("databases", nargs="*", default=["mariadb", "postgresql", "sqlite"], choices=list(VARIANTS))
    parser.add_argument("--rows", type=int, default=MILLION)
    arguments = parser.parse_args()
    print("| | claim of ten, p50 ms | won | a plain claim, p50 ms |\n|---|---:|---:|---:|")
    for name in arguments.databases:
        with open_bench_database(name) as opened:
            for case, (keys, limits) in CASES.items():
                _measure(opened, case, keys, limits, arguments.rows)


def _measure(
    opened: BenchDatabase, case: str, keys: str | None, limits: tuple[tuple[str, int], ...], rows: int
) -> None:
    table, plain = (
        LimitedTable(opened, opened.extra_database("turns")),
        ShapedTable(opened, opened.extra_database("plain")),
    )
    try:
        table.prepare(keys, limits, rows)
        table.offer_keyed((CLAIMS + WARM) * BATCH)
        plain.clear()
        plain.offer((CLAIMS + WARM) * BATCH)
        taken: list[tuple[float, int]] = []
        beside: list[float] = []
        for _ in range(CLAIMS + WARM):
            taken.append(table.claim_limited())
            beside.append(plain.claim())
        won = sum(number for _, number in taken) / len(taken)
        spent = median(milliseconds for milliseconds, _ in taken[WARM:])
        print(f"| {opened.name}: {case} | {spent:.1f} | {won:.1f} | {median(beside[WARM:]):.1f} |", flush=True)
    finally:
        table.close()
        plain.close()


if __name__ == "__main__":
    main()
