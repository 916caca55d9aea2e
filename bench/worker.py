"""The process that drains: ``python -m bench.worker ORDER``, an `Order` as JSON.

It is what a node's worker process is (the Runner, a QueueWorker, threads for the database, a log line for each task),
without the master: nothing is supervised while it is measured.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import msgspec
import sqlalchemy as sa

from bench.databases import Node, open_database, register_bench_process
from bench.jobs import bench
from peerd.config.settings import TelemetrySettings, WorkSettings
from peerd.entrypoints.process_parts import measure_process
from peerd.runtime import concurrency
from peerd.runtime.frames import encode
from peerd.runtime.metrics.registry import AttemptStatistics
from peerd.runtime.observability.events import AttemptEnded, Event, EventBus
from peerd.runtime.observability.log_output import configure_logging, log_events
from peerd.runtime.process import interpreter
from peerd.runtime.process.process_context import ProcessContext
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.take.claimer import Claimer
from peerd.work import statistics_writer
from peerd.work.line_writer import LineWriter
from peerd.work.output_capture import capture_output
from peerd.work.task_runner import Runner
from peerd.work.task_worker import QueueWorker

POOL_SIZE = 4
"""Connections, as the config's default."""
COUNTER = struct.Struct("q")
"""A process's number of ended tasks, in the file of all tallies."""


Measures = Literal["nothing", "metrics", "spans"]


class DrainRequest(msgspec.Struct, kw_only=True):
    """What a worker process shall do: `count` tasks at once, and either so many tasks, or until told to stop.

    With ``tally`` it is one of several: it says `ready` and waits for a line on its standard input before it begins,
    counts in its place of that file what has ended, and stops when its standard input ends. With ``keeps_lines`` what
    handlers log is kept. It ``measures`` itself as [telemetry] of a node says: nothing, metrics, or metrics and spans.
    """

    url: str
    synchronous: str = "FULL"
    count: int
    warm: int = 0
    tasks: int = 0
    node: Node | None = None
    tally: str | None = None
    counter_index: int = 0
    statistics_every: float | None = None
    """Seconds between two writes of the counts of its attempts; None: it has no statistics."""
    keeps_lines: bool = False
    measures: Measures = "nothing"


class Drained(msgspec.Struct):
    """What it answers: seconds by the clock and of its own time, and the statements that its statistics sent."""

    seconds: float
    cpu: float
    statements: int = 0


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
        self.all_ended = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Count the tasks that are done and committed; what is released at the end is none of them."""
        if not isinstance(event, AttemptEnded) or self.all_ended.is_set():
            return
        if event.outcome == "released":
            return  # it was claimed ahead, and went back
        assert event.outcome == "done", event
        self._ended += 1
        if self._ended in self._marks:
            self._seen.append((time.perf_counter(), time.process_time()))
        if self._ended == self._marks[-1]:
            self.all_ended.set()

    def drained(self) -> Drained:
        """How long it ran."""
        (began, used), (ended, used_then) = self._seen
        return Drained(seconds=ended - began, cpu=used_then - used)


class SharedTally:
    """Reads events; counts what has ended where the process that started this one can see it.

    Args:
        file: of all processes' tallies.
        place: this one's.
    """

    def __init__(self, file: Path, counter_index: int) -> None:
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 0)
        self._offset = counter_index * COUNTER.size
        self._ended = 0

    def __call__(self, event: Event) -> None:
        """Count."""
        if isinstance(event, AttemptEnded) and event.outcome == "done":
            self._ended += 1
            COUNTER.pack_into(self._memory, self._offset, self._ended)


async def drain(order: DrainRequest) -> Drained:
    """Drain so many tasks."""
    watch = StopWatch(order.warm, order.tasks)
    async with _Running(order, watch) as running:
        await watch.all_ended.wait()
        statements = running.statistics_statements
    return msgspec.structs.replace(watch.drained(), statements=statements)


async def drain_with_others(order: DrainRequest) -> None:
    """Begin when all are ready, and stop when it is said."""
    assert order.tally is not None
    running = _Running(order, SharedTally(Path(order.tally), order.counter_index))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with running:
        await asyncio.to_thread(sys.stdin.read)


class _Running:
    """A Runner for the time of a block."""

    def __init__(self, order: DrainRequest, watch: StopWatch | SharedTally) -> None:
        self._database = open_database(order.url, order.synchronous, pool_size=POOL_SIZE)
        claimer = register_bench_process(self._database, bench.name, node=order.node)
        worker = QueueWorker([bench])
        worker.settings = WorkSettings(queues=(bench.name,), count=order.count)
        log = configure_logging("info", "console", node="bench", slot="bench-1")
        events = EventBus()
        log_events(events, log)
        events.listen(watch, (AttemptEnded,))
        self._line_writer: LineWriter | None = None
        if order.keeps_lines:  # as a worker process of a node
            capture_output("info")
            self._line_writer = LineWriter(self._database, events)
            self._line_writer.start()
        statistics = AttemptStatistics()
        if order.measures != "nothing" or order.statistics_every is not None:
            events.listen(statistics, (AttemptEnded,))
        if order.measures != "nothing":
            _measure(worker, self._database, events, statistics, spans=order.measures == "spans")
        self._runner = Runner(
            worker,
            self._database,
            claimer,
            node="bench",
            events=events,
            lines=None if self._line_writer is None else self._line_writer.lines,
        )
        self.statistics_statements = 0
        self._statistics: concurrency.PeriodicThread | None = None
        if order.statistics_every is not None:
            vars(statistics_writer).update(FLUSH_EVERY=order.statistics_every)
            self._statistics = self._write_statistics(claimer, events, statistics, order.count)

    def _write_statistics(
        self, claimer: Claimer, events: EventBus, statistics: AttemptStatistics, slots: int
    ) -> concurrency.PeriodicThread:
        """As `peerd.work.services.TaskService` does, and the statements are counted."""
        writer = statistics_writer.StatisticsWriter(
            self._database,
            statistics,
            claimer.node_id,
            claimer.process_id,
            running=self._runner.executor_slots.running_since,
            slots=slots,
            outages=OutageTracker(events, time.monotonic),
            events=events,
        )

        def count(_: object, __: object, statement: str, *___: object) -> None:
            self.statistics_statements += "INSERT INTO statistics" in statement

        for engine in self._database.engines.distinct():
            sa.event.listen(engine, "before_cursor_execute", count)
        return concurrency.PeriodicThread(writer.round)

    async def __aenter__(self) -> Self:
        interpreter.freeze_and_enable_gc()
        if self._database.is_single_writer:
            concurrency.shorten_switch_interval()
        self._task = asyncio.create_task(self._runner.run())
        if self._statistics is not None:
            self._statistics.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._statistics is not None:
            self._statistics.stop()
            self._statistics.join(5.0)
        await self._runner.stop(grace=5)
        await self._task
        if self._line_writer is not None:
            self._line_writer.stop(10.0)
        self._database.close()


class UnreadLink:
    """A link whose frames are encoded, as those of a process are, and go nowhere."""

    node, slot, kind = "bench", "bench-1", "bench"

    def send(self, message: Mapping[str, object]) -> None:
        """Encode it."""
        encode(message)

    def stuck(self, attempt: Mapping[str, object] | None, reason: str) -> None:
        """Nothing is stuck."""

    def take_largest_lag(self) -> float:
        """It is not measured."""
        return 0.0


def _measure(
    worker: QueueWorker, database: Database, events: EventBus, statistics: AttemptStatistics, *, spans: bool
) -> None:
    """Measure the process as a node's worker process does, reports included."""
    settings = TelemetrySettings(metrics=True, opentelemetry=spans)
    process = ProcessContext(UnreadLink(), events)
    worker.set_process(process)
    measure_process(settings, events, database, statistics=statistics)(process)


def main() -> None:
    """Answer on standard output; the log goes to standard error."""
    order = msgspec.json.decode(sys.argv[1], type=DrainRequest)
    if order.tally is None:
        sys.stdout.write(msgspec.json.encode(asyncio.run(drain(order))).decode())
    else:
        asyncio.run(drain_with_others(order))


if __name__ == "__main__":
    main()
