"""How long pages of the dashboard take with millions of tasks, and what many open dashboards cost the database.

``python -m bench.pages DATABASE ROWS``, such as ``mariadb 10000000``; it prints two Markdown tables.

The first byte is measured by a client that keeps its connection, once in 1.1 s, so that nothing is answered twice from
the cache of a second, while a task is enqueued every tenth of a second. Viewers behave as the script of the pages does
where something changes all the time: they follow the stream of events, and read their page again every 1.5 s.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Final, Self

import httpx
import sqlalchemy as sa

from bench.databases import BenchDatabase, open_bench_database
from bench.large_table import fill, fill_lines, fill_statistics
from peerd.operate.client import Client
from peerd.store.connection.database import Database
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.statements import DriverConnection, DriverResult
from peerd.web import create_app
from peerd.web.pages.addresses import Subject
from peerd.web.pages.rendering import LIVE_HEADER
from tests.support.served_api import everyone, served

REPETITIONS: Final = 20
PAUSE: Final = 1.1
"""Seconds between two readings of a page: more than an answer is shared."""
VIEWERS: Final = (1, 50)
WATCHED_FOR: Final = 45.0
BETWEEN_READINGS: Final = 1.5
"""Seconds, as in peerd.js."""
LOAD_INTERVAL: Final = 0.1


def pages_of(client: Client) -> dict[str, str]:
    """The pages, and their addresses."""
    some = client.tasks.page(status="dead", limit=1).items[0].id
    return {
        "overview, an hour": "/",
        "overview, a day by queue": "/?span=1d&by=queue",
        "overview, a week by handler": "/?span=7d&by=handler",
        "tasks, the newest": "/tasks",
        "tasks, dead": "/tasks?status=dead",
        "tasks, dead, a text": "/tasks?status=dead&search=NO%20SPACE",
        "tasks, dead, a text that none has": "/tasks?status=dead&search=elephant",
        "tasks, a priority that none has": "/tasks?where=priority%3D77",
        "tasks, pending of a queue, 200": "/tasks?status=pending&queue=video&size=200",
        "a task": Subject.TASK.page(some),
        "bulk action, all dead": "/bulk/new?status=dead",
        "bulk action, all pending of a queue": "/bulk/new?status=pending&queue=video",
        "errors of a day": "/errors",
        "handlers beside yesterday": "/handlers",
        "log lines, the newest": "/logs?text=frame&since=7d",
        "log lines, a text that none has": "/logs?text=elephant&since=7d",
        "queues": "/queues",
        "a queue, and why its tasks wait": Subject.QUEUE.page("video"),
        "limits": "/limits",
        "nodes": "/nodes",
        "processes": "/processes?ended=1",
        "schedules": "/schedules",
        "alerts": "/alerts",
        "audit log": "/audit",
        "audit log, two conditions": "/audit?operation=tasks.cancel&since=7d",
    }


@contextmanager
def load(client: Client) -> Iterator[None]:
    """A task is enqueued every now and then, and the queues are sampled, as a manager does it."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(LOAD_INTERVAL):
            client.enqueue("video", name="probe", body={"n": 1})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def first_bytes(address: str, path: str) -> list[float]:
    """The milliseconds until the first byte of the body, sorted."""
    times = []
    with httpx.Client(base_url=address, timeout=60) as http:
        http.get(path).raise_for_status()
        for _ in range(REPETITIONS):
            time.sleep(PAUSE)
            began = time.perf_counter()
            with http.stream("GET", path) as answer:
                next(answer.iter_raw())
                times.append(1000 * (time.perf_counter() - began))
    return sorted(times)


class StatementCounter:
    """Counts what is sent to a database while it is entered, by SQLAlchemy and beside it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.count = 0

    def __enter__(self) -> Self:
        for engine in self._database.engines.distinct():
            sa.event.listen(engine, "before_cursor_execute", self._add)
        self._execute = DriverConnection.exec_driver_sql
        execute = self._execute

        def count_and_execute(connection: DriverConnection, sql: str, arguments: object) -> DriverResult:
            self.count += 1
            return execute(connection, sql, arguments)

        DriverConnection.exec_driver_sql = count_and_execute  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        DriverConnection.exec_driver_sql = self._execute  # type: ignore[method-assign]
        for engine in self._database.engines.distinct():
            sa.event.remove(engine, "before_cursor_execute", self._add)

    def _add(self, *_: object) -> None:
        self.count += 1


async def watch(address: str, count: int) -> int:
    """Keep so many overviews open for a while; how often they were read."""
    readings = 0

    async def view() -> None:
        nonlocal readings
        async with httpx.AsyncClient(base_url=address, timeout=60) as http, followed(http):
            etag = (await http.get("/")).headers["etag"]
            until = time.monotonic() + WATCHED_FOR
            while time.monotonic() < until:
                answer = await http.get("/", headers={LIVE_HEADER: "1", "if-none-match": etag})
                etag = answer.headers["etag"]
                readings += 1
                await asyncio.sleep(BETWEEN_READINGS)

    await asyncio.gather(*(view() for _ in range(count)))
    return readings


@asynccontextmanager
async def followed(http: httpx.AsyncClient) -> AsyncIterator[None]:
    """Follow the stream of the page's events meanwhile."""

    async def follow() -> None:
        async with http.stream("GET", "/api/v1/events?type=queue&type=node&type=alert") as stream:
            async for _ in stream.aiter_lines():
                pass

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()


def measure_pages(target: BenchDatabase, address: str) -> None:
    """Print the first table."""
    print("| page | first byte, median ms | p95 ms |\n|---|--:|--:|")
    with load(target.client):
        for name, path in pages_of(target.client).items():
            times = first_bytes(address, path)
            print(f"| {name} | {statistics.median(times):.0f} | {times[int(0.95 * len(times))]:.0f} |", flush=True)


def measure_viewers(target: BenchDatabase, address: str) -> None:
    """Print the second table."""
    print("\n| open dashboards | tasks | readings/s | statements/s |\n|--:|---|--:|--:|")
    loads = [(count, 1 / LOAD_INTERVAL, load(target.client)) for count in VIEWERS]
    watched: list[tuple[int, float, AbstractContextManager[None]]] = [(1, 0.0, nullcontext()), *loads]
    for count, enqueued, loaded in watched:
        with loaded, StatementCounter(target.database) as counter:
            began = time.monotonic()
            readings = asyncio.run(watch(address, count))
            seconds = time.monotonic() - began
        statements = counter.count / seconds - enqueued  # the load's, at least one for each task
        print(f"| {count} | {enqueued:.0f}/s | {readings / seconds:.1f} | {statements:.1f} |", flush=True)


def main(arguments: list[str]) -> None:
    """Fill, serve, measure and print."""
    kind, rows = arguments[0], int(arguments[1])
    with open_bench_database(kind) as target:
        began = time.perf_counter()
        fill(target, rows)
        fill_lines(target, rows)
        fill_statistics(target)
        target.database.run(write_depths, target.database.read(sample_depths))
        print(f"{target.version}: {rows:,} tasks in {time.perf_counter() - began:.0f} s\n", flush=True)
        with served(create_app(target.client, authenticate=everyone)) as address:
            measure_pages(target, address)
            measure_viewers(target, address)


if __name__ == "__main__":
    main(sys.argv[1:])
