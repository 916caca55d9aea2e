"""``python -m bench.peers.command PEER URL enqueue|drain|pick-up|work …``: measure one peer; the answer is JSON."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.peers.contract import ANSWER_VARIABLE, NOTES_VARIABLE, TASKS_VARIABLE, WARM_VARIABLE, PeerQueue

ROOT: Final = Path(__file__).parents[2]
LONGEST: Final = 180.0
"""Seconds for a drain."""
SETTLED_WITHIN: Final = 15.0
"""Seconds after the last task until the store must say that none is left."""
IDLE: Final = (1.0, 2.5)
"""Seconds of rest between two tasks of which the way is timed."""


def measure_enqueue(peer: PeerQueue, how: str, number: int) -> dict[str, Any]:
    """Enqueue one by one, or all together."""
    enqueue = peer.enqueue_singly if how == "singly" else peer.enqueue_together
    enqueue(10)
    began, used = time.perf_counter(), time.process_time()
    enqueue(number)
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}


def measure_drain(peer: PeerQueue, name: str, at_once: int, warm: int, number: int) -> dict[str, Any]:
    """Fill the queue, let one worker process empty it, and see in its store that nothing is left."""
    with tempfile.TemporaryDirectory(prefix="peerd-bench-peer-") as folder:
        peer.enqueue_together(warm + number)
        answer = Path(folder) / "answer"
        variables = {WARM_VARIABLE: str(warm), TASKS_VARIABLE: str(number), ANSWER_VARIABLE: str(answer)}
        with working(name, peer.url, at_once, variables, Path(folder)):
            wait_until(answer.exists, LONGEST, "the queue was not drained")
            wait_until(lambda: peer.left() == 0, SETTLED_WITHIN, "its store says that tasks are left")
        measured: dict[str, Any] = json.loads(answer.read_text())
        return measured


def measure_pick_up(peer: PeerQueue, name: str, at_once: int, times: int) -> dict[str, Any]:
    """Enqueue single tasks at odd moments for a worker that has nothing else to do."""
    with tempfile.TemporaryDirectory(prefix="peerd-bench-peer-") as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        with working(name, peer.url, at_once, {NOTES_VARIABLE: str(notes)}, Path(folder)):
            _pick_up(peer, notes, 0)  # the worker is up when it has run a task
            waited = []
            for number in range(1, times + 1):
                time.sleep(random.uniform(*IDLE))
                waited.append(_pick_up(peer, notes, number))
        return {"milliseconds": waited}


def _pick_up(peer: PeerQueue, notes: Path, number: int) -> float:
    began = time.monotonic_ns()
    peer.enqueue_note(number)
    wait_until(lambda: _noted(notes, number) is not None, 60, f"task {number} was not run")
    picked_up = _noted(notes, number)
    assert picked_up is not None
    return (picked_up - began) / 1e6


def _noted(notes: Path, number: int) -> int | None:
    for line in notes.read_text().splitlines():
        noted, _, moment = line.partition(" ")
        if int(noted) == number and moment:
            return int(moment)
    return None


@contextmanager
def working(name: str, url: str, at_once: int, variables: dict[str, str], folder: Path) -> Iterator[None]:
    """One worker process, killed at the end: what it did was looked at before."""
    command = [sys.executable, "-m", "bench.peers.command", name, url, "work", str(at_once)]
    with (folder / "log").open("w+") as log:
        worker = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield
        except TimeoutError as error:
            log.seek(0)
            raise TimeoutError(f"{error}; its worker said:\n{log.read()[-2000:]}") from None
        finally:
            worker.kill()
            worker.wait()


def wait_until(holds: Any, within: float, what: str) -> None:
    """Look every 20 ms."""
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {within:g} s")
        time.sleep(0.02)


def load(name: str, url: str) -> PeerQueue:
    """The peer of this name: the class `Measured` of its module."""
    measured: type[PeerQueue] = importlib.import_module(f"bench.peers.{name}").Measured
    return measured(url)


def main() -> None:
    """Do what the arguments say."""
    name, url, action, *words = sys.argv[1:]
    peer = load(name, url)
    match action, words:
        case "work", [at_once]:
            peer.work(int(at_once))
            return
        case "enqueue", [how, number]:
            peer.prepare()
            answer = measure_enqueue(peer, how, int(number))
        case "drain", [at_once, warm, number]:
            peer.prepare()
            answer = measure_drain(peer, name, int(at_once), int(warm), int(number))
        case "pick-up", [at_once, times]:
            peer.prepare()
            answer = measure_pick_up(peer, name, int(at_once), int(times))
        case _:
            raise SystemExit(f"what is {action} {words}?")
    print(json.dumps(answer | {"version": version(peer.distribution)}))


if __name__ == "__main__":
    main()
