"""The process that drains: ``python -m bench.worker URL COUNT WARM TASKS``.

It is what a node's worker process is (the Runner, a QueueWorker, threads for the database, a log line for each task),
without the master: nothing is supervised while it is measured.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from bench.databases import enter
from bench.draining import Drained
from bench.jobs import bench
from peerd.runtime import garbage
from peerd.runtime.condensing import Condensed
from peerd.runtime.events import AttemptEnded, Events, Fact
from peerd.runtime.wording import LogReader, start_logging
from peerd.store.database import Database
from peerd.work.running import Runner
from peerd.work.settings import Settings
from peerd.work.task_worker import QueueWorker

POOL_SIZE = 4
"""Connections, as the config's default."""


class StopWatch:
    """Reads events; runs from the end of the last warm-up task to the end of the last task.

    Args:
        warm: tasks that are not measured.
        tasks: tasks that are.
    """

    def __init__(self, warm: int, tasks: int) -> None:
        self._marks = (warm, warm + tasks)
        self._ended = 0
        self._seen: list[tuple[float, float]] = []
        self.given_back = 0
        self.all_ended = asyncio.Event()

    def __call__(self, fact: Fact) -> None:
        """Count the tasks that are done and committed; what is given back is none of them."""
        if not isinstance(fact, AttemptEnded) or self.all_ended.is_set():
            return
        if fact.outcome == "released":
            self.given_back += 1
            return
        assert fact.outcome == "done", fact
        self._ended += 1
        if self._ended in self._marks:
            self._seen.append((time.perf_counter(), time.process_time()))
        if self._ended == self._marks[-1]:
            self.all_ended.set()

    def drained(self) -> Drained:
        """How long it ran."""
        (began, used), (ended, used_then) = self._seen
        return Drained(seconds=ended - began, cpu=used_then - used)


async def drain(url: str, count: int, warm: int, tasks: int) -> Drained:
    """Drain so many tasks, so many at once."""
    database = Database(url, pool_size=POOL_SIZE)
    claimer = enter(database, bench.name)
    worker = QueueWorker([bench])
    worker.settings = Settings(queues=(bench.name,), count=count)
    watch = StopWatch(warm, tasks)
    log = start_logging("info", "console", node="bench", slot="bench-1")
    runner = Runner(worker, database, claimer, node="bench", events=Events(Condensed(LogReader(log)), watch))
    garbage.settle()
    running = asyncio.create_task(runner.run())
    await watch.all_ended.wait()
    await runner.stop(grace=5)
    await running
    database.close()
    return watch.drained()


def main() -> None:
    """Answer on standard output; the log goes to standard error."""
    url, *numbers = sys.argv[1:]
    drained = asyncio.run(drain(url, *map(int, numbers)))
    sys.stdout.write(msgspec.json.encode(drained).decode())


if __name__ == "__main__":
    main()
