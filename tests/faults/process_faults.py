"""What is done to processes: kills and freezes."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from tests.faults import history
from tests.faults.disk import Disk
from tests.faults.fault_injector import FaultInjector, FaultRates, recorded_fault, sqlite_file
from tests.faults.nodes import NodeFleet, ProcessHandle, RestartingNode
from tests.support.sigstop import wait_until_stopped

FREEZE_TRIES: Final = 200


class KillInjector(FaultInjector):
    """A SIGKILL each second: mostly of one process, now and then of a master or of a whole node."""

    def __init__(self, fleet: NodeFleet, rng: random.Random, rates: FaultRates, stopping: threading.Event) -> None:
        super().__init__("kills", rng, rates.kill_every, (1.0, 1.0), stopping)
        self._fleet = fleet

    def inject(self) -> None:
        self.inject_one_of(
            {"child": (96, self.kill_child), "master": (2, self.kill_master), "power": (2, self.cut_power)}
        )

    def kill_child(self) -> None:
        """Mostly one that has booted: else nodes whose agents are killed in each boot never come up."""
        handles = self._fleet.booting() if self.rng.random() < 0.05 else self._fleet.children()
        if handles:
            handle = self.rng.choice(handles)
            kill(f"kill {handle.role}", handle.name, [handle])

    def kill_master(self) -> None:
        """The kernel notifies its children, which end."""
        node = self._node()
        if node and (master := node.master()):
            kill("kill master", master.name, [master])

    def cut_power(self) -> None:
        """All are stopped before they are killed, so that none can still do anything about the others' end."""
        node = self._node()
        if node and (all_processes := node.all_processes()):
            kill("kill node", node.name, all_processes)

    def _node(self) -> RestartingNode | None:
        """One of two, at least, that are up: so that another one can notice."""
        ready = [node for node in self._fleet.nodes if node.is_ready]
        return self.rng.choice(ready) if len(ready) > 1 else None


class FreezeInjector(FaultInjector):
    """SIGSTOP for longer than max_update, then SIGCONT: of single processes and of whole nodes."""

    def __init__(
        self, fleet: NodeFleet, rng: random.Random, rates: FaultRates, stopping: threading.Event, *, max_update: float
    ) -> None:
        super().__init__("freezes", rng, rates.freeze_every, (0.5, 1.5), stopping)
        self._fleet = fleet
        self._max_update = max_update
        self._sqlite = sqlite_file(fleet)

    def inject(self) -> None:
        self.inject_one_of(
            {
                "workers": (6, lambda: self.freeze_role("worker")),
                "agent": (2, lambda: self.freeze_role("agent")),
                "manager": (2, lambda: self.freeze_role("manager")),
                "node": (3, self.freeze_node),
            }
        )

    def freeze_role(self, role: str) -> None:
        """One or two processes of a role."""
        handles = [handle for handle in self._fleet.children() if handle.role == role]
        if handles:
            some = self.rng.sample(handles, min(len(handles), self.rng.randint(1, 2)))
            self._freeze(f"freeze {role}", "+".join(handle.name for handle in some), some)

    def freeze_node(self) -> None:
        """With its master, and the programs of its handlers."""
        node = self.rng.choice(self._fleet.nodes)
        if all_processes := node.all_processes():
            self._freeze("freeze node", node.name, all_processes)

    def _freeze(self, kind: str, target: str, handles: Sequence[ProcessHandle]) -> None:
        seconds = self._max_update + self.rng.uniform(1.0, 4.0)
        with recorded_fault(kind, target, effect="frozen", pids=[handle.pid for handle in handles]):
            try:
                self._stop(handles)
                self.wait(seconds)
            finally:
                signal_all(handles, signal.SIGCONT)

    def _stop(self, handles: Sequence[ProcessHandle]) -> None:
        """While none of them writes, where they write to a file: SQLite's lock would stop all others too."""
        for _ in range(FREEZE_TRIES):
            signal_all(handles, signal.SIGSTOP)
            wait_until_stopped(handle.pid for handle in handles)
            if self._sqlite is None or is_writable(self._sqlite):
                return
            signal_all(handles, signal.SIGCONT)
            time.sleep(self.rng.uniform(0.001, 0.02))


class FullRunDirectories(FaultInjector):
    """The disk on which the run directories of all nodes are is full for a while; kills go on meanwhile."""

    def __init__(self, disk: Disk, rng: random.Random, rates: FaultRates, stopping: threading.Event) -> None:
        super().__init__("run directories", rng, rates.outage_every, (0.5, 1.5), stopping)
        self._disk = disk

    def inject(self) -> None:
        with recorded_fault("full run directories", "all"):
            self._disk.fill()
            try:
                self.wait(self.rng.uniform(1.0, 6.0))
            finally:
                self._disk.free()


def kill(kind: str, target: str, handles: Sequence[ProcessHandle]) -> None:
    """Kill processes at one moment."""
    history.record("fault", kind=kind, target=target, effect="dead", pids=[handle.pid for handle in handles])
    if len(handles) > 1:
        signal_all(handles, signal.SIGSTOP)
    signal_all(handles, signal.SIGKILL)


def signal_all(handles: Iterable[ProcessHandle], number: signal.Signals) -> None:
    for handle in handles:
        handle.signal(number)


def is_writable(file: Path) -> bool:
    """Whether no process holds the lock of a database in a file for longer than a transaction takes."""
    with closing(sqlite3.connect(file, timeout=0.3, isolation_level=None)) as connection:
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return True
        return False
