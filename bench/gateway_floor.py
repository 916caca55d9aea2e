"""What a database allows a queue server with one client: the same rows written by the bare driver, no server between.

A put is one INSERT. A reserve is a claim, and a delete a DELETE, each committed by itself; on SQLite the commit of the
claim does not wait for the disk, as that of a reserve does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.databases import BenchDatabase


def floor_rates(target: BenchDatabase, jobs: int) -> Iterator[tuple[str, float]]:
    """Jobs in a second: put, and then reserved and deleted, one after the other on peerd's own table."""
    floor = target.floors["same"]
    begun = time.perf_counter()
    for _ in range(jobs):
        floor.insert(1)
    yield "put", jobs / (time.perf_counter() - begun)
    begun = time.perf_counter()
    for _ in range(jobs):
        _set_durable(target, durable=False)
        [job] = floor.claim(1)
        _set_durable(target, durable=True)
        target.ask(f"DELETE FROM tasks WHERE id = {job}")
    yield "reserve + delete", jobs / (time.perf_counter() - begun)


def _set_durable(target: BenchDatabase, *, durable: bool) -> None:
    if target.kind == "sqlite":
        target.ask(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
