"""``make bench-galera``: six worker processes on one plain server, and on three servers of a Galera cluster.

The same work on the same machine, which three servers share as one server has it alone: on machines of their own they
do better. All servers wait for the disk at each commit.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.draining import ROOT
from bench.galera_worker import Counted
from bench.machine import Machine, this_machine
from bench.markdown_table import aligned
from bench.report import RESULTS
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store.connection.database import Database
from peerd.store.connection.mysql import wait_for_sync
from peerd.store.enqueue import enqueue_many
from peerd.store.schema.migrate import migrate
from peerd.store.tasks.pages import count_tasks
from tests.support.galera import Galera
from tests.support.mariadb import MariaDB
from tests.support.servers import create_database

PROCESSES: Final = 6
COUNT: Final = 50
"""Tasks at once in each process."""
LONGEST: Final = 300
HEAD: Final = ("6 processes", "tasks a second", "÷ plain", "claims", "conflicts", "% of claims", "% of tasks")


class GaleraSample(msgspec.Struct, kw_only=True):
    """One drain by all processes."""

    servers: str
    round: int
    tasks: int
    seconds: float
    claims: int
    conflicts: int

    @property
    def rate(self) -> float:
        """Tasks in a second."""
        return self.tasks / self.seconds


class GaleraRun(msgspec.Struct, kw_only=True):
    """A whole run, as it is kept."""

    machine: Machine
    samples: list[GaleraSample]


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m bench.galera", description=__doc__)
    parser.add_argument("--tasks", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    run = GaleraRun(machine=this_machine(), samples=list(measure(chosen.tasks, chosen.rounds)))
    print(report(run))
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"galera-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))
    print(f"\nraw samples: {file}")


def measure(tasks: int, rounds: int) -> Iterator[GaleraSample]:
    """Drain on each, round by round; a database of its own each time."""
    with folder() as home:
        plain, galera = MariaDB(home / "plain", durable=True), Galera(home / "galera", durable=True)
        try:
            plain.start()
            galera.start()
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
                name = f"peerd{number}"
                create_database(plain, name)
                create_database(galera, name)
                yield drain("plain", number, tasks, [plain.url(name)] * PROCESSES)
                yield drain("Galera, all at one server", number, tasks // 3, [galera.url(name)] * PROCESSES)
                yield drain(
                    "Galera, two at each server",
                    number,
                    tasks,
                    [galera.url(name, at=place % 3) for place in range(PROCESSES)],
                )
        finally:
            galera.stop()
            plain.stop()


def drain(servers: str, number: int, tasks: int, urls: Sequence[str]) -> GaleraSample:
    """Fill the queue, let six processes empty it, see in the table that all is done."""
    with closing(Database(urls[0])) as database:
        migrate(database)
        database.run(lambda connection: connection.exec_driver_sql("DELETE FROM tasks"))
        for _ in range(0, tasks, 1000):
            database.run(enqueue_many, [NewTask(queue="bench", name="noop", body='{"number":1}')] * 1000)
        began, counted = run_workers(urls)
        database.run(wait_for_sync)
        done = database.read(count_tasks)[Status.DONE]
    total = sum(one.tasks for one in counted)
    assert done == total, f"{done} are done in the table, and {total} were accepted"
    return GaleraSample(
        servers=servers,
        round=number,
        tasks=total,
        seconds=max(one.ended_at for one in counted if one.tasks) - began,
        claims=sum(one.claims for one in counted),
        conflicts=sum(one.conflicts for one in counted),
    )


def run_workers(urls: Sequence[str]) -> tuple[float, list[Counted]]:
    """Let a process for each address go, all at once; when that was, and what each did."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.galera_worker", url, str(COUNT)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for url in urls
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        began = time.monotonic()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [worker.communicate(timeout=LONGEST)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return began, [msgspec.json.decode(answer, type=Counted) for answer in answers]


def report(run: GaleraRun) -> str:
    """A table, for people; it is Markdown too."""
    rows: list[Sequence[str]] = [HEAD]
    plain = {one.round: one.rate for one in run.samples if one.servers == "plain"}
    for servers in dict.fromkeys(one.servers for one in run.samples):
        its = [one for one in run.samples if one.servers == servers]
        tasks, claims, conflicts = (sum(getattr(one, name) for one in its) for name in ("tasks", "claims", "conflicts"))
        rate, ratio = median(one.rate for one in its), median(one.rate / plain[one.round] for one in its)
        shares = [f"{conflicts / of:.2%}" for of in (claims, tasks)]
        rows.append([servers, f"{rate:,.0f}", f"{ratio:.2f}", f"{claims:,}", f"{conflicts:,}", *shares])
    return "\n".join([f"{run.machine}; medians of the rounds", "", *aligned(rows)])


@contextmanager
def folder() -> Iterator[Path]:
    """For the servers, which run as another user when we are root."""
    home = Path(tempfile.mkdtemp(prefix="peerd-bench-"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
