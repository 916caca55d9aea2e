"""What it costs to keep the log lines of tasks: drains with and without, and the purge of tasks, in turns.

``python -m bench.log_lines DATABASE [ROUNDS] [TASKS]``, such as ``mariadb 5``; it prints ratios of the same round, of
rates and of the processor time of the worker process, which a busy machine disturbs less.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from bench.databases import BenchDatabase, open_bench_database
from bench.draining import BEYOND, WARM, drain, fill
from bench.filling import RowTemplate, insert_rows
from peerd.domain.lifecycle import Status
from peerd.store import chore_batches
from peerd.store.tasks import actions
from peerd.store.tasks.log_lines import LoggedLine, write_lines

COUNT: Final = 100
"""Tasks at once."""
LINES_EACH: Final = 5


def main(arguments: list[str]) -> None:
    """Measure and print."""
    kind, rounds, tasks = arguments[0], int((arguments[1:] or ["5"])[0]), int((arguments[2:] or ["20000"])[0])
    with open_bench_database(kind) as target:
        for handler in ("noop", "says"):
            report(f"{kind}: drain of {handler}, lines kept ÷ not kept", list(drains(target, handler, rounds, tasks)))
        report(f"{kind}: purge of tasks without lines, now ÷ before", list(purges(target, rounds, tasks)))
        report_lines(target, tasks)


def drains(target: BenchDatabase, handler: str, rounds: int, tasks: int) -> Iterator[tuple[float, float]]:
    """Tasks a second, with and without lines, of each round; which is first changes."""
    cpu: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        rates = {}
        for keeps_lines in (True, False) if number % 2 else (False, True):
            target.empty()
            target.ask("DELETE FROM task_logs")
            fill(target, tasks + (WARM + BEYOND) * COUNT, handler)
            drained = drain(target, COUNT, WARM * COUNT, tasks, keeps_lines=keeps_lines)
            rates[keeps_lines] = tasks / drained.seconds
            cpu[keeps_lines].append(drained.cpu)
        yield rates[True], rates[False]
    with_lines, without = statistics.median(cpu[True]), statistics.median(cpu[False])
    print(f"{handler}: processor time {with_lines / without:.3f} times as much, {1e6 * without / tasks:.0f} µs without")


def purges(target: BenchDatabase, rounds: int, tasks: int) -> Iterator[tuple[float, float]]:
    """Tasks a second that are purged, with and without a look for lines."""
    for number in range(rounds):
        rates = {}
        for looks in (True, False) if number % 2 else (False, True):
            target.empty()
            fill_done(target, tasks)
            with looking_for_lines(looks=looks):
                rates[looks] = tasks / purge_all(target)
        yield rates[True], rates[False]


def report_lines(target: BenchDatabase, tasks: int) -> None:
    """The purge of tasks that have lines, and the longest batch."""
    target.empty()
    fill_done(target, tasks)
    ids = [found[0] for found in target.ask("SELECT id FROM tasks")]
    now = datetime.now(UTC)
    for start in range(0, len(ids), 100):
        lines = [
            LoggedLine(task_id, 1, number, 1, now, "info", "app", "a line of some length " * 4, None)
            for task_id in ids[start : start + 100]
            for number in range(LINES_EACH)
        ]
        target.database.run(write_lines, lines)
    longest: list[float] = []
    seconds = purge_all(target, longest)
    rate = tasks / seconds
    print(
        f"purge of tasks with {LINES_EACH} lines each: {rate:,.0f} tasks/s, longest batch {1000 * max(longest):.0f} ms"
    )


def fill_done(target: BenchDatabase, tasks: int) -> None:
    template = RowTemplate(number=tasks, values={"status": "'done'"}, moments={"finished_at": -1800})
    insert_rows(target._connection, target.kind, template)  # noqa: SLF001 - the bare driver's connection
    target.analyze()


def purge_all(target: BenchDatabase, batches: list[float] | None = None) -> float:
    """Purge until nothing is left; the seconds of it."""
    began = last = time.perf_counter()
    while target.database.run(chore_batches.purge, Status.DONE, 60.0):
        now = time.perf_counter()
        if batches is not None:
            batches.append(now - last)
        last = now
    return time.perf_counter() - began


@contextmanager
def looking_for_lines(*, looks: bool) -> Iterator[None]:
    """Without: as it was before there were lines."""
    changed: list[tuple[Any, str, Any]] = []
    if not looks:
        changed = [
            (actions, "delete_lines", lambda *_: 0),
            (chore_batches, "deletable_with_lines", lambda _, ids: (list(ids), 0)),
        ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    for module, name, function in changed:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def report(title: str, rounds: list[tuple[float, float]]) -> None:
    """The median ratio, and the least and the most."""
    ratios = sorted(one / other for one, other in rounds)
    rate = statistics.median(other for _, other in rounds)
    median = statistics.median(ratios)
    print(f"{title}: {median:.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f}), of {rate:,.0f}/s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
