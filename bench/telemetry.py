"""What measuring costs: the same drain with nothing, with metrics, and with spans, in turns.

    python -m bench.telemetry --on sqlite mariadb --rounds 7

The ratio of times is taken within a round, since a slow minute of the machine touches all of it; the median of the
rounds counts. That of processor times is of the least of all rounds, because other work on the machine only adds to
them. Above 1.00 the drain takes longer than without.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Final, get_args

from bench.databases import VARIANTS, BenchDatabase, open_bench_database
from bench.draining import BEYOND, WARM, drain, fill
from bench.worker import Drained, Measures

MEASURES: Final[tuple[Measures, ...]] = get_args(Measures)


class CollectorSink(BaseHTTPRequestHandler):
    """Takes spans, and drops them."""

    def do_POST(self) -> None:
        """Answer that they have come."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Nothing."""


def main() -> None:
    """Measure what the arguments say, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__)
    parser.add_argument("--on", nargs="+", choices=VARIANTS, default=("sqlite", "mariadb", "postgresql"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--count", type=int, default=100, help="tasks at once")
    parser.add_argument("--only", nargs="+", choices=MEASURES[1:], default=MEASURES[1:], help="what is measured")
    chosen = parser.parse_args()
    with collector():
        for name in chosen.on:
            with open_bench_database(name) as target:
                print(row(target, chosen, ("nothing", *chosen.only)), flush=True)


def row(target: BenchDatabase, chosen: argparse.Namespace, compared: Sequence[Measures]) -> str:
    """The ratios of one database."""
    rounds, tasks = chosen.rounds, chosen.tasks
    by_time: dict[str, list[float]] = {measures: [] for measures in compared}
    by_cpu: dict[str, list[float]] = {measures: [] for measures in compared}
    rates: list[float] = []
    for number in range(rounds):
        turns = compared if number % 2 == 0 else compared[::-1]
        measured = {measures: measure(target, tasks, chosen.count, measures) for measures in turns}
        rates.append(tasks / measured["nothing"].seconds)
        for measures, drained in measured.items():
            by_time[measures].append(drained.seconds / measured["nothing"].seconds)
            by_cpu[measures].append(drained.cpu)
        print(f"{target.name}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    ratios = [
        f"{one} {median(by_time[one]):.3f} (cpu {min(by_cpu[one]) / min(by_cpu['nothing']):.3f})"
        for one in compared[1:]
    ]
    return f"{target.name}: {median(rates):,.0f} tasks/s without; {'; '.join(ratios)}"


def measure(target: BenchDatabase, tasks: int, count: int, measures: Measures) -> Drained:
    """One drain."""
    target.empty()
    fill(target, tasks + (WARM + BEYOND) * count)
    return drain(target, count, WARM * count, tasks, measures)


@contextmanager
def collector() -> Iterator[None]:
    """A collector of spans, to which the worker processes send."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), CollectorSink)
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
