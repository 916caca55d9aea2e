"""The history of a run: what the handlers, the load and the chaos saw, outside the database.

Each process appends lines of JSON to a file of its own, with one `os.write` each, so that a kill -9 between two lines
loses nothing that was written. `at` is the monotonic clock in nanoseconds, one clock for all processes of a machine;
`wall` is the machine's wall clock at the same moment, by which a database's times are laid beside it.

The events, and their fields beyond `at`, `wall`, `pid`:

    enqueued  task queue name key       a commit was acknowledged
    unsure    key error                 whether it was written is not known: the row's body has the key, if there is one
    began     task lease attempt crashes handler key process_id node code
    ended     task lease outcome saw_cancel handler process_id node
    dying     task lease handler process_id node pids
                                        a handler in a process of its own kills that process; its children go on
    hand      task action               a user is about to cancel, retry or move a task
    fault     kind target effect [pids] [nodes] [everyone] [lingers]
    healed    kind target
    opened    connection server         a queue client has connected to the gateway process of this process id
    inserted  task connection key       a put of a queue client was answered; where it was not, the key is `unsure`
    reserved  task connection           a queue client has been given a job
    finishing task connection action    it is about to delete, release or bury a job that it holds
    finished  task connection action outcome
                                        the answer to that
    closed    connection                its connection has ended; recorded when it has noticed, or before it closes it
    sample    counts slots alone        for the plot: tasks by status, slots by state, tasks that wait to run alone

A `began` has the version of the handler's code, where there are two (see `tests.faults.versions`).
An `ended` has the outcome of the handler's code: done, failure, snoozed, canceled, dead, cancelled (it was told to
end), crashing (it is about to kill its process).

A fault's `effect` is `dead` (these processes were killed), `frozen` (they stood still until `healed`) or `cut` (they
were alive, and could not reach the database until `healed`). Its target: `pids`, or all processes of `nodes` (their
names), or `everyone`. A fault is recorded before it is done, and its healing, a `healed` with the same kind and target,
after that is done. `lingers` are seconds that it may go on afterwards (a connection that has to time out first).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

VARIABLE: Final = "PEERD_HISTORY"


class HistoryEvent(msgspec.Struct, kw_only=True):
    """One line of the history."""

    at: int
    event: str
    pid: int = 0
    wall: int = 0
    task: int = 0
    lease: int = 0
    attempt: int = 0
    crashes: int = 0
    process_id: int = 0
    node: str = ""
    handler: str = ""
    queue: str = ""
    name: str = ""
    key: str = ""
    code: str = ""
    outcome: str = ""
    saw_cancel: bool = False
    action: str = ""
    connection: str = ""
    server: int = 0
    error: str = ""
    kind: str = ""
    target: str = ""
    effect: str = ""
    pids: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    everyone: bool = False
    lingers: float = 0.0

    @property
    def time(self) -> float:
        """When, in seconds since 1970."""
        return self.wall / 1e9


def record(event: str, **fields: Any) -> None:
    """Append a line to this process's file below $PEERD_HISTORY."""
    line = {"at": time.monotonic_ns(), "wall": time.time_ns(), "event": event, "pid": os.getpid(), **fields}
    os.write(_file(os.environ[VARIABLE], os.getpid()), json.dumps(line).encode() + b"\n")


def read(folder: Path) -> list[HistoryEvent]:
    """All events of a run, in the order of their time."""
    decoder = msgspec.json.Decoder(HistoryEvent)
    events = [decoder.decode(line) for path in folder.glob("*.jsonl") for line in _whole_lines(path)]
    return sorted(events, key=lambda event: event.at)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Without the last one, where its writer was killed in the middle of it."""
    yield from path.read_bytes().split(b"\n")[:-1]


@cache
def _file(folder: str, pid: int) -> int:
    path = Path(folder) / f"{pid}-{time.monotonic_ns()}.jsonl"
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
