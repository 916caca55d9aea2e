"""One long outage of a server, with the memory and the processor time of each process of a node watched.

A node that has a task at work loses its database for minutes. Each failed attempt to connect may leave something in
memory, and each loop that asks may forget to pause; neither is seen in what becomes of the tasks.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from peerd import Status
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.cluster.cluster import Cluster, ClusterNode
from tests.faults import outage_jobs
from tests.support.server import DatabaseServer
from tests.support.server_kinds import SERVERS
from tests.support.servers import create_database

MAX_GROWTH: Final = 1.1
"""Times the memory before, that a process may have after an outage, whatever its length …"""
MAX_EXTRA_BYTES: Final = 4 << 20
"""… and bytes: of code that only an outage runs for the first time."""
MAX_CORE_SHARE: Final = 0.05
"""Of a core, that a process may use during an outage."""
SETTLES_WITHIN: Final = 10.0
"""Seconds in which a node at work has loaded all that it needs."""
WITHIN: Final = 120.0
MEGABYTE: Final = 1 << 20

SECTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "node": {"heartbeat_every": "2s", "grace": "5s"},
    "manager": {"every": "1s", "max_update": "30s", "inactive_after": "10s"},
    "schedules": {"often": {"interval": "10s", "queue": "idle", "task": "nothing"}},
    "workers": {
        "busy": {"tasks": "outage_jobs:busy", "update": "3s"},
        "idle": {"tasks": "outage_jobs:idle", "update": "3s"},
        "rounds": {"worker": "outage_jobs:OutagePeriodicWorker"},
    },
    "sections": {"cluster": {"secret": "a secret that all nodes share"}},
}


class ResourceUse(msgspec.Struct, frozen=True):
    """What a process has used."""

    memory: int
    """Bytes that are in memory."""
    processor: float
    """Seconds, since it began."""


class ProcessUse(msgspec.Struct, frozen=True):
    """A process in an outage.

    >>> before, after = ResourceUse(100 << 20, 1.0), ResourceUse(140 << 20, 2.0)
    >>> grown = ProcessUse("agent", before, after, after, seconds=100.0)
    >>> list(grown.problems())
    ['agent grew from 100.0 to 140.0 MB in an outage']
    """

    slot: str
    before: ResourceUse
    during: ResourceUse
    """At its end."""
    after: ResourceUse
    seconds: float
    """That it lasted."""

    @property
    def share(self) -> float:
        """Of a core, during the outage."""
        return (self.during.processor - self.before.processor) / self.seconds

    def problems(self) -> Iterator[str]:
        """What should not be."""
        if self.after.memory > self.before.memory * MAX_GROWTH + MAX_EXTRA_BYTES:
            before, after = (use.memory / MEGABYTE for use in (self.before, self.after))
            yield f"{self.slot} grew from {before:.1f} to {after:.1f} MB in an outage"
        if self.share > MAX_CORE_SHARE:
            yield f"{self.slot} used {self.share:.0%} of a core in an outage"

    def __str__(self) -> str:
        memory = " → ".join(f"{use.memory / MEGABYTE:.1f}" for use in (self.before, self.during, self.after))
        return f"{self.slot:<10} {memory} MB, {self.share:.1%} of a core"


class OutageReport(msgspec.Struct, frozen=True):
    """What an outage showed."""

    kind: str
    seconds: float
    processes: list[ProcessUse]
    others: list[str]
    """Problems that are no process's own."""

    @property
    def problems(self) -> list[str]:
        """All that should not be."""
        return [*(problem for process in self.processes for problem in process.problems()), *self.others]

    def __str__(self) -> str:
        head = f"=== {self.kind}: {self.seconds:.0f} s without the server; memory before, at its end and after"
        return "\n".join([head, *map(str, self.processes), *self.problems, "BAD" if self.problems else "GOOD"])


def run(kind: str, seconds: float) -> OutageReport:
    """Take a node's database away for so long, and see what its processes use.

    Raises:
        ServerUnavailableError: the server is not installed.
    """
    with _server(kind) as server, _cluster(create_database(server, "peerd")) as cluster:
        node = cluster.node("one", **{name: dict(given) for name, given in SECTIONS.items()}).up()
        job = cluster.client.enqueue("busy", name="reports_progress")
        _wait_for_progress(cluster, job.id, "")
        time.sleep(SETTLES_WITHIN)
        processes = _processes(node)
        before, began = _resource_uses(processes), time.monotonic()
        note = cluster.client.tasks.get(job.id).progress_note
        server.kill()
        time.sleep(seconds)  # the length of the outage is what is tested
        during, lasted = _resource_uses(processes), time.monotonic() - began
        server.start()
        _wait_for_progress(cluster, job.id, note)
        after = _resource_uses(processes)
        (cluster.folder / outage_jobs.GATE).touch()
        ended = cluster.wait_until(job, Status.DONE)
        others = [] if (ended.lease, ended.attempts) == (1, 0) else [f"the task was given to others: {ended}"]
        if (now := _processes(node)) != processes:
            others.append(f"processes were replaced: {processes}, and then {now}")
        watched = [ProcessUse(slot, before[slot], during[slot], after[slot], lasted) for slot in processes]
        return OutageReport(kind, lasted, watched, others)


@contextmanager
def _server(kind: str) -> Iterator[DatabaseServer]:
    folder = Path(tempfile.mkdtemp(prefix="peerd-outage-"))
    folder.chmod(0o755)  # PostgreSQL runs as another user when we are root
    server = SERVERS[kind](folder / kind)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cluster(url: str) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="peerd-outage-"))
    shutil.copy(Path(outage_jobs.__file__), folder / "outage_jobs.py")
    cluster = Cluster(folder, url)
    try:
        yield cluster
    finally:
        left = cluster.clean_up()
        shutil.rmtree(folder, ignore_errors=True)
        assert not left, f"processes were left behind: {left}"


def _wait_for_progress(cluster: Cluster, task_id: int, beyond: str | None) -> None:
    eventually(
        lambda: cluster.client.tasks.get(task_id).progress_note not in (None, beyond),
        timeout=WITHIN,
        message=cluster.describe,
    )


def _processes(node: ClusterNode) -> dict[str, int]:
    """The process ids of a node, by slot."""
    assert node.master is not None
    slots = control_client.status(node.run_directory)["slots"]
    return {"master": node.master.pid, **{str(slot["name"]): int(slot["pid"]) for slot in slots}}


def _resource_uses(processes: Mapping[str, int]) -> dict[str, ResourceUse]:
    return {slot: _resource_use(psutil.Process(pid)) for slot, pid in processes.items()}


def _resource_use(process: psutil.Process) -> ResourceUse:
    times = process.cpu_times()
    return ResourceUse(process.memory_info().rss, times.user + times.system)
