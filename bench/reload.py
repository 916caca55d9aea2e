"""``make bench-reload``: replace the workers of web servers under load, and count the requests that fail.

Each server serves the same app with two workers on one port, in turn, under the same load: clients that connect anew
for each request, clients that keep their connection and ask at once again, and clients that keep it and pause. While
they ask, all workers are replaced, again and again; the next time when the old ones have gone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.machine import this_machine
from bench.web_load import KINDS
from bench.web_servers import ROOT, SERVERS, WORKERS, RunningServer, answers, version_of, wait_until

GENERATORS: Final = 2
CLIENTS: Final = {"new": 15, "busy": 10, "idle": 15}
"""Of each kind, in each generator."""
HEADINGS: Final = {"new": "new connection", "busy": "keep-alive", "idle": "keep-alive, pauses"}


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """What became of the requests to one server, by kind of client."""

    name: str
    version: str
    counts: dict[str, Counter[str]]
    replacements: int
    seconds: float
    problem: str = ""

    def failed(self, kind: str) -> int:
        """How many requests of a kind of client were not answered with 200."""
        return sum(self.counts[kind].values()) - self.counts[kind]["ok"]


def main() -> int:
    """Run what the arguments say; 1 when peerd has lost a request."""
    chosen = arguments(sys.argv[1:])
    results = []
    for name in chosen.servers:
        print(f"{name}: {chosen.replacements} replacements of {WORKERS} workers", file=sys.stderr)
        results.append(measure(name, chosen.replacements))
    print(table(results))
    ours = [result for result in results if result.name == "peerd"]
    return int(any(result.problem or result.failed(kind) for result in ours for kind in KINDS))


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.reload", description="Requests lost while workers change.")
    parser.add_argument("--replacements", type=int, default=20, help="of all workers, of each server")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    return parser.parse_args(words)


def measure(name: str, replacements: int) -> ReloadResult:
    """Replace the workers of one server so many times, under load."""
    with tempfile.TemporaryDirectory(prefix=f"peerd-bench-{name}-") as folder, SERVERS[name](Path(folder)) as server:
        wait_until(lambda: answers(server.port) and len(server.workers()) == WORKERS, f"{name} answers")
        began = time.monotonic()
        generators = [_generator(server) for _ in range(GENERATORS)]
        time.sleep(1.0)
        done, problem = 0, ""
        try:
            while done < replacements:
                server.replace_all()
                done += 1
        except TimeoutError as error:
            problem = str(error)
        time.sleep(1.0)
        counts = _collected(generators)
        return ReloadResult(name, version_of(name), counts, done, time.monotonic() - began, problem)


def _generator(server: RunningServer) -> subprocess.Popen[str]:
    numbers = [str(CLIENTS[kind]) for kind in KINDS]
    command = [sys.executable, "-m", "bench.web_load", str(server.port), *numbers]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _collected(generators: Sequence[subprocess.Popen[str]]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for generator in generators:
        said, _ = generator.communicate("")
        for kind, some in json.loads(said).items():
            counts[kind].update(some)
    return counts


def table(results: Sequence[ReloadResult]) -> str:
    """The results, side by side: failed of all requests, then how they failed."""
    heads = ["server", "replacements", *(HEADINGS[kind] for kind in KINDS)]
    rows = [
        [
            f"{one.name} {one.version}",
            f"{one.replacements} × {WORKERS} in {one.seconds:.0f} s",
            *(f"{one.failed(kind):,} of {sum(one.counts[kind].values()):,}" for kind in KINDS),
        ]
        for one in results
    ]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    how = [
        f"  {one.name}, {HEADINGS[kind]}: {words}" for one in results for kind in KINDS if (words := _how(one, kind))
    ]
    problems = [f"  {one.problem}" for one in results if one.problem]
    parts = [
        f"failed requests, on {this_machine()}",
        *lines,
        *(["", "how they failed:", *how] if how else []),
        *problems,
    ]
    return "\n".join(parts)


def _how(result: ReloadResult, kind: str) -> str:
    return ", ".join(f"{number:,} × {how}" for how, number in result.counts[kind].most_common() if how != "ok")


if __name__ == "__main__":
    sys.exit(main())
