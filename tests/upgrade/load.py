"""A load that needs no version of peerd: rows inserted with SQL; and what must be true of their runs."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster

EVERY = 0.04
"""Seconds between two inserts."""
HANDLERS = ("work", "threaded", "work", "work")
SECONDS = (0.0, 0.02, 0.1, 0.0, 0.5)
INSERT = sa.text("INSERT INTO tasks (queue, name, body) VALUES ('jobs', :name, :body)")


@dataclass
class SqlLoad:
    """Inserts tasks while it is open, one by one."""

    engine: Engine
    cluster: Cluster
    inserted: int = 0
    deaths: dict[str, float] = field(default_factory=dict)
    """When a node, or a process's id, was killed."""
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.wait(EVERY):
            body = json.dumps({"seconds": SECONDS[self.inserted % len(SECONDS)]})
            with self.engine.begin() as connection:
                connection.execute(INSERT, {"name": HANDLERS[self.inserted % len(HANDLERS)], "body": body})
            self.inserted += 1

    def end(self) -> None:
        self._over.set()

    def note_death(self, of: str | int) -> None:
        self.deaths[str(of)] = time.monotonic()

    def wait_for_runs(self, node: str, count: int = 12) -> None:
        """Wait until a node has begun and ended so many more tasks."""
        before = len(self._ended(node))
        eventually(lambda: len(self._ended(node)) >= before + count, timeout=WITHIN, message=self.describe)

    def wait_for_the_end(self) -> None:
        eventually(lambda: self.statuses().keys() == {"done"}, timeout=WITHIN, message=self.describe)

    def statuses(self) -> dict[str, int]:
        with self.engine.connect() as connection:
            counts = connection.execute(sa.text("SELECT status, count(*) FROM tasks GROUP BY status")).all()
        return {str(status): int(count) for status, count in counts}

    def check(self) -> None:
        """No task was lost, and each run beside a task's one is explained by an attempt; none ran in two places."""
        assert self.statuses() == {"done": self.inserted}
        with self.engine.connect() as connection:
            attempts = connection.execute(sa.text("SELECT task_id, lease FROM attempts")).all()
        explained = {(row.task_id, row.lease) for row in attempts}
        runs: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for began in self.cluster.notes(event="began"):
            runs[began["task"]].append(began)
        ended = {(one["task"], one["lease"]): one["at"] for one in self.cluster.notes(event="ended")}
        assert len(runs) == self.inserted
        for task, own in runs.items():
            own.sort(key=lambda run: int(run["lease"]))
            leases = [run["lease"] for run in own]
            assert len(set(leases)) == len(leases), (task, own)
            for earlier, later in pairwise(own):
                assert (task, earlier["lease"]) in explained, (task, own)
                assert self._end_of(earlier, ended) <= later["at"], (task, own)

    def _end_of(self, run: dict[str, Any], ended: dict[tuple[int, int], float]) -> float:
        """When a run was over: it said so, or its process was dead."""
        deaths = [
            self.deaths.get(run["node"]),
            self.deaths.get(str(run["pid"])),
            ended.get((run["task"], run["lease"])),
        ]
        return min(at for at in deaths if at is not None)

    def _ended(self, node: str) -> list[dict[str, Any]]:
        return [event for event in self.cluster.notes(event="ended") if event["node"] == node]

    def describe(self) -> str:
        nodes = "\n".join(node.log_text() for node in self.cluster.nodes)
        return f"{self.statuses()} of {self.inserted}, {self.deaths}\n{nodes}"


@contextmanager
def load_on(engine: Engine, cluster: Cluster) -> Iterator[SqlLoad]:
    """A load, from now until it is ended."""
    load = SqlLoad(engine, cluster)
    thread = threading.Thread(target=load.run, name="load")
    thread.start()
    try:
        yield load
    finally:
        load.end()
        thread.join()
