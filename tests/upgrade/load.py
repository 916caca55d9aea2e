"""A load that needs no version of peerd: rows inserted with SQL; and what must be true of their runs."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

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

    cluster: Cluster
    inserted: int = 0
    deaths: dict[int, float] = field(default_factory=dict)
    """When a process, by its id, was killed."""
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(EVERY):
            body = json.dumps({"seconds": SECONDS[self.inserted % len(SECONDS)]})
            with self.cluster.client.database.engine.begin() as connection:
                connection.execute(INSERT, {"name": HANDLERS[self.inserted % len(HANDLERS)], "body": body})
            self.inserted += 1

    def wait_for_runs(self, node: str, count: int = 12) -> None:
        """Wait until a node has begun and ended so many more tasks."""

        def ended() -> int:
            return sum(event["node"] == node for event in self.cluster.notes(event="ended"))

        before = ended()
        eventually(lambda: ended() >= before + count, timeout=WITHIN, message=self.describe)

    def wait_for_the_end(self) -> None:
        eventually(lambda: self.statuses().keys() == {"done"}, timeout=WITHIN, message=self.describe)

    def statuses(self) -> dict[str, int]:
        with self.cluster.client.database.engine.connect() as connection:
            counts = connection.execute(sa.text("SELECT status, count(*) FROM tasks GROUP BY status")).all()
        return {str(status): int(count) for status, count in counts}

    def check(self) -> None:
        """No task was lost, and each run beside a task's one is explained by an attempt; none ran in two places."""
        assert self.statuses() == {"done": self.inserted}
        with self.cluster.client.database.engine.connect() as connection:
            explained = {tuple(row) for row in connection.execute(sa.text("SELECT task_id, lease FROM attempts"))}
        runs: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for began in self.cluster.notes(event="began"):
            runs[began["task"]].append(began)
        assert len(runs) == self.inserted
        ended = {(one["task"], one["lease"]): one["at"] for one in self.cluster.notes(event="ended")}
        for task, own in runs.items():
            own.sort(key=lambda run: int(run["lease"]))
            assert len({run["lease"] for run in own}) == len(own), (task, own)
            for earlier, later in pairwise(own):
                of = (task, earlier["lease"])
                assert of in explained, (task, own)
                over = [at for at in (self.deaths.get(earlier["pid"]), ended.get(of)) if at is not None]
                assert min(over) <= later["at"], (task, own)

    def describe(self) -> str:
        return "\n".join([f"{self.statuses()} of {self.inserted}", *(node.log_text() for node in self.cluster.nodes)])


@contextmanager
def load_on(cluster: Cluster) -> Iterator[SqlLoad]:
    """A load, from now until it is ended."""
    load = SqlLoad(cluster)
    thread = threading.Thread(target=load.run, name="load")
    thread.start()
    try:
        yield load
    finally:
        load.over.set()
        thread.join()
