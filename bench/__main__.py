"""``make bench``: measure, print the report, draw the plots, keep the samples."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench import (  # fmt: skip
    claim_and_complete,
    draining,
    during_chore,
    enqueuing,
    fairness,
    idling,
    pick_up_latency,
    plots,
    report,
    scaling,
    shapes,
)
from bench.databases import VARIANTS, BenchDatabase, ServerUnavailableError, open_bench_database
from bench.machine import this_machine
from bench.peer_measurements import PEER_SETUPS, REDIS, PeerMeasurements, peers_of
from bench.redis_server import Redis
from bench.report import BenchRun, joined, save
from bench.samples import MeasurementFailure, Sample, TimingSample
from bench.sizes import ALL, BY_NAME, Sizes

Measure = Callable[[BenchDatabase, Sizes], Iterable[Sample]]
Step = tuple[str, Callable[[], Iterable[Sample]]]
IN_ROUNDS: Final[dict[str, Measure]] = {
    "enqueue": enqueuing.measure,
    "hold": claim_and_complete.measure,
    "drain": draining.measure,
    "cores": scaling.measure_cores,
}
"""What is measured several times; all that is compared has its turn in each round."""
ONCE: Final[dict[str, Measure]] = {
    "processes": scaling.measure_processes,
    "nodes": scaling.measure_nodes,
    "fairness": fairness.measure,
    "idle": idling.measure,
    "shapes": shapes.measure,
    "beside": during_chore.measure,
}
NOT_TWICE: Final = ("processes", "nodes", "fairness", "idle", "shapes", "beside", "cores")
"""Of two variants of the same database, only the faster one is measured in these."""


def main() -> None:
    """Run what the arguments say."""
    chosen = arguments(sys.argv[1:])
    sizes = BY_NAME[chosen.size]
    changed = {"rounds": chosen.rounds or sizes.rounds, "shapes": chosen.rows or sizes.shapes}
    sizes = msgspec.structs.replace(sizes, **changed)
    run = joined(chosen.of) if chosen.of else measure(chosen.on or sizes.on, chosen.only or sizes.only, sizes)
    print(report.report(run))
    if not chosen.of:
        print(f"\nraw samples: {save(run)}")
    for file in plots.draw(run, chosen.plots):
        print(f"plot: {file}")


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast peerd is, beside drivers and peers.")
    parser.add_argument("--size", choices=BY_NAME, default="full", help="quick: two minutes")
    parser.add_argument("--on", nargs="+", choices=VARIANTS, help="databases")
    parser.add_argument("--only", nargs="+", choices=ALL, help="measurements")
    parser.add_argument("--rounds", type=int, help="how often that is measured which is compared")
    parser.add_argument("--rows", type=float, metavar="FACTOR", help="for the rows of shapes; 1 is ten million done")
    parser.add_argument(
        "--of", nargs="+", type=Path, metavar="FILE", help="report runs that were kept; measure nothing"
    )
    parser.add_argument("--plots", type=Path, default=report.RESULTS, help="the folder for the plots")
    return parser.parse_args(words)


def measure(names: Iterable[str], only: Sequence[str], sizes: Sizes) -> BenchRun:
    """Measure on each database. Rounds are interleaved: a slow minute of the machine touches all of them alike."""
    samples: list[Sample] = []
    with ExitStack() as afterwards:
        targets = [opened for name in names if (opened := _open(name, afterwards, samples)) is not None]
        peers = _peers(targets, afterwards, sizes, samples) if {"peers", "pick-up"} & set(only) else []
        machine = this_machine()
        began = time.monotonic()
        for number in range(sizes.rounds):
            for words, step in _round(targets, peers, only, sizes):
                _print_progress(f"round {number + 1} of {sizes.rounds}: {words}", began)
                for sample in _run_step(words, step):
                    if isinstance(sample, TimingSample):
                        sample.round = number
                    samples.append(sample)
        if "pick-up" in only:
            _print_progress(f"pick-up: {sizes.pick_ups} tasks on each", began)
            samples += _pick_ups(targets, peers, sizes)
        for words, step in _once(targets, only, sizes):
            _print_progress(words, began)
            samples += _run_step(words, step)
        versions = {one.name: one.version for one in targets}
    return BenchRun(machine=machine, sizes=sizes, versions=versions, samples=samples)


def _open(name: str, afterwards: ExitStack, samples: list[Sample]) -> BenchDatabase | None:
    try:
        return afterwards.enter_context(open_bench_database(name))
    except ServerUnavailableError as error:
        samples.append(_failed(name, "everything", str(error)))
        return None


def _peers(
    targets: Sequence[BenchDatabase], afterwards: ExitStack, sizes: Sizes, samples: list[Sample]
) -> list[PeerMeasurements]:
    """Those of each database, in its faster variant where there are two servers, and those on Redis."""
    found = [peers_of(one, sizes.peers) for one in targets if one.kind == "sqlite" or one in _fastest(targets)]
    modules = [
        peer_setup.module
        for peer_setup in PEER_SETUPS
        if peer_setup.store == REDIS and (sizes.peers is None or peer_setup.module in sizes.peers)
    ]
    if modules:
        folder = Path(afterwards.enter_context(report.temporary_folder()))
        redis = Redis(folder / REDIS)
        try:
            redis.start()
        except ServerUnavailableError as error:
            samples.append(_failed(REDIS, "everything", str(error)))
        else:
            afterwards.callback(redis.stop)
            addresses = {module: redis.url(str(number)) for number, module in enumerate(modules)}
            found.append(PeerMeasurements(REDIS, REDIS, addresses, sizes.peers))
    return found


def _fastest(targets: Sequence[BenchDatabase]) -> list[BenchDatabase]:
    """One of each kind: of MariaDB and MySQL the last one, which is by mysqlclient; of SQLite the first, at FULL."""
    servers = {one.variant.server: one for one in targets}
    first_sqlite = next((one for one in targets if one.kind == "sqlite"), None)
    return [one for one in targets if one is (first_sqlite if one.kind == "sqlite" else servers[one.variant.server])]


def _chosen(targets: Sequence[BenchDatabase], name: str) -> Sequence[BenchDatabase]:
    return _fastest(targets) if name in NOT_TWICE else targets


def _round(
    targets: Sequence[BenchDatabase], peers: Sequence[PeerMeasurements], only: Sequence[str], sizes: Sizes
) -> Iterator[Step]:
    """What is compared has its turns beside each other: a database with its floors and its peers."""
    for one in targets:
        for name, measured in IN_ROUNDS.items():
            if name in only and one in _chosen(targets, name):
                yield f"{name} on {one.name}", partial(measured, one, sizes)
        for others in peers:
            if others.database == one.name and "peers" in only:
                yield f"peers on {one.name}", partial(others.measure, sizes)
    for others in peers:
        if others.database == REDIS and "peers" in only:
            yield f"peers on {REDIS}", partial(others.measure, sizes)


def _once(targets: Sequence[BenchDatabase], only: Sequence[str], sizes: Sizes) -> Iterator[Step]:
    for name, measured in ONCE.items():
        if name in only:
            for one in _chosen(targets, name):
                yield f"{name} on {one.name}", partial(measured, one, sizes)


def _pick_ups(targets: Sequence[BenchDatabase], peers: Sequence[PeerMeasurements], sizes: Sizes) -> list[Sample]:
    """All at once: a worker that waits takes no time from the others."""
    steps: list[Step] = [(f"pick-up on {one.name}", partial(pick_up_latency.measure, one, sizes)) for one in targets]
    steps += [(f"peers' pick-up on {one.database}", partial(one.pick_up, sizes)) for one in peers]
    with ThreadPoolExecutor(max(len(steps), 1)) as threads:
        return [sample for found in threads.map(lambda step: list(_run_step(*step)), steps) for sample in found]


def _run_step(words: str, step: Callable[[], Iterable[Sample]]) -> Iterator[Sample]:
    """What it measures; what fails is said at once, and again in the report, and the others go on."""
    what, _, database = words.rpartition(" on ")
    try:
        for sample in step():
            if isinstance(sample, MeasurementFailure):
                print(f"NOT MEASURED on {sample.database}: {sample.what}: {sample.reason}", file=sys.stderr)
            yield sample
    except Exception as error:  # noqa: BLE001 - an hour's samples are not lost for one that failed
        notes = "\n".join(getattr(error, "__notes__", ()))
        yield _failed(database, what, f"{type(error).__name__}: {error}\n{notes}".strip())


def _failed(database: str, what: str, reason: str) -> MeasurementFailure:
    print(f"NOT MEASURED on {database}: {what}: {reason}", file=sys.stderr)
    return MeasurementFailure(database=database, what=what, reason=reason)


def _print_progress(words: str, began: float) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
