"""``make bench-gateway``: the queue server beside Debian's beanstalkd, where each waits for the disk at every write.

Each shape puts jobs and then reserves and deletes them: with one connection that waits for each answer, with fifty that
do, and with one that sends a hundred commands in a packet. The servers take turns in each round, so that a slow minute
takes from all alike; a ratio is one of the same round. Then comes the time from a put to a client that waits, and what
10,000 idle connections cost. On the databases of the nodes, the bare driver does the same as one client, without a
server between.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

from bench.gateway_floor import floor_rates
from bench.gateway_load import BODY
from bench.gateway_servers import SERVERS, MeasuredServer
from bench.machine import this_machine
from bench.markdown_table import aligned
from bench.samples import percentile
from tests.support.server import ServerUnavailableError

ROOT: Final = Path(__file__).parents[1]
LOAD_TIMEOUT: Final = 300.0
SETTLING: Final = 3.0
COUNTING: Final = 10.0
"""Seconds over which statements are counted."""
P50, P99 = "put → reserve that waits, p50", "put → reserve that waits, p99"


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How jobs are put and taken.

    Attributes:
        name: as the table calls it.
        jobs: in a round; a multiple of the batch.
        connections: that have one command under way each.
        batch: commands in a packet, of a single connection.
    """

    name: str
    jobs: int
    connections: int = 1
    batch: int = 1


SHAPES: Final = (
    LoadShape("1 connection", 2_000),
    LoadShape("50 connections", 10_000, connections=50),
    LoadShape("pipelined", 10_000, batch=100),
)
ON_SERVERS: Final = {"1 connection": 0.5, "50 connections": 0.5, "pipelined": 0.5, P99: 3.0}
GOALS: Final = {
    "SQLite": {"1 connection": 0.5, "50 connections": 1.0, "pipelined": 1.0, P99: 3.0},
    "MariaDB": ON_SERVERS,
    "MySQL": ON_SERVERS,
}
"""By what a server's name ends with or is built on: the least ratio of a rate, the largest one of a time."""
FLOOR: Final = "{name}: bare driver"
Results = dict[str, dict[str, list[float]]]
"""measurement → server → a figure for each round: jobs in a second, or milliseconds."""


@dataclass(frozen=True, slots=True)
class IdleCost:
    """What idle connections cost a server.

    Attributes:
        connected: bytes of each, when it has said what it uses and watches.
        waiting: bytes of each, when it waits for a job.
        statements_before: in a second, without them.
        statements: in a second, while all of them wait.
    """

    connected: float
    waiting: float
    statements_before: float | None
    statements: float | None


def main() -> int:
    """Run what the arguments say."""
    chosen = arguments(sys.argv[1:])
    with ExitStack() as running:
        servers = list(started(chosen.servers, running))
        print(f"{this_machine()}\nbodies of {len(BODY)} bytes, {chosen.rounds} rounds", flush=True)
        results = measure(servers, chosen.rounds, chosen.scale)
        print("\n".join(table(results, [one.name for one in servers])), flush=True)
        print("\n".join(["", *floor_table(results, servers)]), flush=True)
        if chosen.idle:
            costs = {one.name: idle_cost(one, chosen.idle) for one in servers}
            print("\n".join(["", f"{chosen.idle:,} idle connections", "", *idle_table(costs)]))
    return 0


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description="The queue server beside beanstalkd.")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of jobs")
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections; 0 leaves them out")
    return parser.parse_args(words)


def started(names: Sequence[str], running: ExitStack) -> Iterator[MeasuredServer]:
    """Start the servers that can be started here, and say why others are not."""
    for name in names:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="peerd-bench-gateway-")))
        try:
            yield running.enter_context(SERVERS[name](folder))
        except ServerUnavailableError as error:
            print(f"NOT MEASURED: {name}: {error}")


# ---------------------------------------------------------------- rates and times


def measure(servers: Sequence[MeasuredServer], rounds: int, scale: float = 1.0) -> Results:
    """All shapes and the waking, the servers in turns; each round begins with another one."""
    results: Results = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        turn = number % len(servers)
        for shape in SHAPES:
            for server in chain(servers[turn:], servers[:turn]):
                for what, rate in rates(server, shape, scale):
                    results[what][server.name].append(rate)
        for server in servers:
            for what, rate in floor_rates(server.target, scaled(SHAPES[0].jobs, 1, scale)) if server.target else ():
                results[f"{what}, {SHAPES[0].name}"][FLOOR.format(name=server.name)].append(rate)
        for server in chain(servers[turn:], servers[:turn]):
            taken = load(server, "wake", scaled(500, 1, scale))
            results[P50][server.name].append(percentile(taken, 0.5) * 1000)
            results[P99][server.name].append(percentile(taken, 0.99) * 1000)
    return results


def rates(server: MeasuredServer, shape: LoadShape, scale: float) -> Iterator[tuple[str, float]]:
    """Jobs in a second, put and then reserved and deleted."""
    jobs = scaled(shape.jobs, max(shape.batch, shape.connections), scale)
    for word, title in (("put", "put"), ("take", "reserve + delete")):
        [seconds] = load(server, word, jobs, shape.connections, shape.batch)
        yield f"{title}, {shape.name}", jobs / seconds


def scaled(number: int, multiple_of: int, scale: float) -> int:
    """So many times the number, as a multiple.

    >>> scaled(10_000, 100, 0.0125)
    100
    """
    return max(1, int(number * scale) // multiple_of) * multiple_of


def load(server: MeasuredServer, what: str, *numbers: int) -> list[float]:
    """Run the load generator to its end; the seconds that it has measured."""
    command = [sys.executable, "-m", "bench.gateway_load", str(server.port), what, *map(str, numbers)]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LOAD_TIMEOUT, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        error.add_note(f"{server.name}: {what} {numbers}")
        raise
    seconds: list[float] = json.loads(done.stdout)
    return seconds


# ---------------------------------------------------------------- idle connections


def idle_cost(server: MeasuredServer, connections: int) -> IdleCost:
    """Open them, look, have all of them wait, look again."""
    time.sleep(SETTLING)
    before, statements_before = server.memory(), statement_rate(server)
    command = [sys.executable, "-m", "bench.gateway_load", str(server.port), "hold", str(connections)]
    holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        reached(holder.stdout.readline(), "connected", server)
        connected = server.memory()
        holder.stdin.write("wait\n")
        holder.stdin.flush()
        reached(holder.stdout.readline(), "waiting", server)
        time.sleep(SETTLING)
        cost = IdleCost(
            (connected - before) / connections,
            (server.memory() - before) / connections,
            statements_before,
            statement_rate(server),
        )
        holder.stdin.close()
    return cost


def reached(said: str, expected: str, server: MeasuredServer) -> None:
    """Raise unless the holder of connections has said that."""
    if said.strip() != expected:
        raise RuntimeError(f"{server.name}: its idle connections have not come to be {expected}")


def statement_rate(server: MeasuredServer) -> float | None:
    """Statements in a second, of all clients of its database but the one that asks."""
    if server.statements is None:
        return None
    before, began = server.statements(), time.monotonic()
    time.sleep(COUNTING)
    return (server.statements() - before - 1) / (time.monotonic() - began)


# ---------------------------------------------------------------- tables


def table(results: Results, names: Sequence[str]) -> list[str]:
    """Medians over the rounds; the first server is what the others are compared with."""
    rows = [["", *chain.from_iterable([[name, "ratio"] if place else [name] for place, name in enumerate(names)])]]
    for what, by_server in results.items():
        row = [what, figure(what, median(by_server[names[0]]))]
        for name in names[1:]:
            one = ratio(by_server[name], by_server[names[0]])
            row += [figure(what, median(by_server[name])), f"{one:.2f} ×{verdict(what, name, one)}"]
        rows.append(row)
    return aligned(rows)


def floor_table(results: Results, servers: Sequence[MeasuredServer]) -> list[str]:
    """What the bare driver does with one client, in relation to the first server, and a server's rate to it."""
    rows = [["", "bare driver", f"÷ {servers[0].name}", "server ÷ bare driver"]]
    for server in servers:
        floor = FLOOR.format(name=server.name)
        for what, by_server in results.items():
            if floor in by_server:
                rates_of_floor = by_server[floor]
                against = f"{ratio(rates_of_floor, by_server[servers[0].name]):.2f} ×"
                share = f"{ratio(by_server[server.name], rates_of_floor):.2f} ×"
                rows.append([f"{server.name}: {what}", figure(what, median(rates_of_floor)), against, share])
    return aligned(rows)


def figure(what: str, value: float) -> str:
    """A rate or a time.

    >>> figure("put, pipelined", 9300.4), figure(P99, 1.254)
    ('9,300 /s', '1.25 ms')
    """
    return f"{value:.2f} ms" if what in {P50, P99} else f"{value:,.0f} /s"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios within each round.

    >>> ratio([2.0, 10.0, 3.0], [1.0, 10.0, 1.0])
    2.0
    """
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def verdict(what: str, name: str, one: float) -> str:
    """A mark where a ratio has a goal: reached or not.

    >>> verdict("put, pipelined", "node, MariaDB", 0.6), verdict(P99, "node, SQLite", 3.5)
    (' ✓', ' ✗')
    """
    goals = GOALS[next((kind for kind in GOALS if kind in name), "SQLite")]
    goal = goals.get(what) or goals.get(what.rpartition(", ")[2])
    if goal is None:
        return ""
    return " ✓" if (one <= goal if what == P99 else one >= goal) else " ✗"


def idle_table(costs: dict[str, IdleCost]) -> list[str]:
    """What idle connections cost each server."""
    heads = ["", "memory of each", "of each that waits", "statements /s without", "statements /s while all wait"]
    rows = [
        [name, f"{one.connected:,.0f} B", f"{one.waiting:,.0f} B", rate(one.statements_before), rate(one.statements)]
        for name, one in costs.items()
    ]
    return aligned([heads, *rows])


def rate(value: float | None) -> str:
    """Statements in a second, where they are counted."""
    return "" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
