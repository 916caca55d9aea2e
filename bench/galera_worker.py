"""A process that drains beside others: ``python -m bench.galera_worker URL COUNT``.

It says ``ready``, begins when a line comes, and ends when it has had nothing to do for a while. Its answer is JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError

from bench.databases import register_bench_process
from bench.jobs import bench
from peerd.config.settings import WorkSettings
from peerd.runtime.observability.events import AttemptEnded, Event, EventBus, TasksClaimed
from peerd.runtime.observability.log_output import configure_logging, log_events
from peerd.store.connection.database import Database
from peerd.store.connection.database_errors import was_rolled_back
from peerd.work.task_runner import Runner
from peerd.work.task_worker import QueueWorker

POOL_SIZE = 4
IDLE = 2.0
"""Seconds without a task after which nothing is left."""


class Counted(msgspec.Struct):
    """What one process did; ``ended_at`` is the machine's monotonic clock when its last task was done."""

    tasks: int
    claims: int
    conflicts: int
    ended_at: float


class ConflictTally(msgspec.Struct):
    """Reads events, and errors of the database."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    ended_at: float = 0.0

    def __call__(self, fact: Event) -> None:
        """Count what was claimed, and what is done and committed."""
        match fact:
            case TasksClaimed():
                self.counts["claims"] += 1
            case AttemptEnded(outcome="done"):
                self.counts["tasks"] += 1
                self.ended_at = time.monotonic()

    def on_error(self, context: ExceptionContext) -> None:
        """Count what the database undid."""
        error = context.sqlalchemy_exception
        self.counts["conflicts"] += isinstance(error, DBAPIError) and was_rolled_back(error)


async def drain(url: str, count: int) -> Counted:
    """Drain, so many tasks at once, until nothing is left."""
    database = Database(url, pool_size=POOL_SIZE)
    counter = ConflictTally()
    sa.event.listen(database.engine, "handle_error", counter.on_error)
    claimer = register_bench_process(database, bench.name)
    worker = QueueWorker([bench])
    worker.settings = WorkSettings(queues=(bench.name,), count=count)
    log = configure_logging("info", "console", node="bench", slot="bench-1")
    events = EventBus(counter)
    log_events(events, log)
    runner = Runner(worker, database, claimer, node="bench", events=events)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    counter.ended_at = time.monotonic()
    running = asyncio.create_task(runner.run())
    while time.monotonic() - counter.ended_at < IDLE:  # noqa: ASYNC110 - there is no event for 'nothing more'
        await asyncio.sleep(0.1)
    await runner.stop(grace=5)
    await running
    database.close()
    counts = counter.counts
    return Counted(counts["tasks"], counts["claims"], counts["conflicts"], counter.ended_at)


def main() -> None:
    """Answer on standard output; the log goes to standard error."""
    url, count = sys.argv[1:]
    counted = asyncio.run(drain(url, int(count)))
    sys.stdout.write(msgspec.json.encode(counted).decode())


if __name__ == "__main__":
    main()
