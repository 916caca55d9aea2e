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
from tests.faults.fault_injector import Lane, Tempo, sqlite_file, told
from tests.faults.nodes import Fleet, Node, Victim
from tests.support.sigstop import wait_until_stopped

FREEZE_TRIES: Final = 200


class Kills(Lane):
    """A SIGKILL each second: mostly of one process, now and then of a master or of a whole node."""

    def __init__(self, fleet: Fleet, rng: random.Random, tempo: Tempo, stopping: threading.Event) -> None:
        super().__init__("kills", rng, tempo.kill_every, (1.0, 1.0), stopping)
        self._fleet = fleet

    def act(self) -> None:
        self.one_of({"child": (96, self.kill_child), "master": (2, self.kill_master), "power": (2, self.cut_power)})

    def kill_child(self) -> None:
        """Mostly one that has booted: else nodes whose agents are killed in each boot never come up."""
        victims = self._fleet.booting() if self.rng.random() < 0.05 else self._fleet.children()
        if victims:
            victim = self.rng.choice(victims)
            kill(f"kill {victim.role}", victim.name, [victim])

    def kill_master(self) -> None:
        """Its children are told by the kernel, and leave."""
        node = self._node()
        if node and (master := node.master()):
            kill("kill master", master.name, [master])

    def cut_power(self) -> None:
        """All are stopped before they are killed, so that none can still do anything about the others' end."""
        node = self._node()
        if node and (everything := node.everything()):
            kill("kill node", node.name, everything)

    def _node(self) -> Node | None:
        """One of two, at least, that are up: so that there is somebody to notice."""
        ready = [node for node in self._fleet.nodes if node.is_ready]
        return self.rng.choice(ready) if len(ready) > 1 else None


class Freezes(Lane):
    """SIGSTOP for longer than max_update, then SIGCONT: of single processes and of whole nodes."""

    def __init__(
        self, fleet: Fleet, rng: random.Random, tempo: Tempo, stopping: threading.Event, *, max_update: float
    ) -> None:
        super().__init__("freezes", rng, tempo.freeze_every, (0.5, 1.5), stopping)
        self._fleet = fleet
        self._max_update = max_update
        self._sqlite = sqlite_file(fleet)

    def act(self) -> None:
        self.one_of(
            {
                "workers": (6, lambda: self.freeze_role("worker")),
                "agent": (2, lambda: self.freeze_role("agent")),
                "manager": (2, lambda: self.freeze_role("manager")),
                "node": (3, self.freeze_node),
            }
        )

    def freeze_role(self, role: str) -> None:
        """One or two processes of a role."""
        victims = [victim for victim in self._fleet.children() if victim.role == role]
        if victims:
            some = self.rng.sample(victims, min(len(victims), self.rng.randint(1, 2)))
            self._freeze(f"freeze {role}", "+".join(victim.name for victim in some), some)

    def freeze_node(self) -> None:
        """With its master, and the programs of its handlers."""
        node = self.rng.choice(self._fleet.nodes)
        if everything := node.everything():
            self._freeze("freeze node", node.name, everything)

    def _freeze(self, kind: str, target: str, victims: Sequence[Victim]) -> None:
        seconds = self._max_update + self.rng.uniform(1.0, 4.0)
        with told(kind, target, effect="frozen", pids=[victim.pid for victim in victims]):
            try:
                self._stop(victims)
                self.wait(seconds)
            finally:
                signal_all(victims, signal.SIGCONT)

    def _stop(self, victims: Sequence[Victim]) -> None:
        """While none of them writes, where they write to a file: SQLite's lock would stop all others too."""
        for _ in range(FREEZE_TRIES):
            signal_all(victims, signal.SIGSTOP)
            wait_until_stopped(victim.pid for victim in victims)
            if self._sqlite is None or is_writable(self._sqlite):
                return
            signal_all(victims, signal.SIGCONT)
            time.sleep(self.rng.uniform(0.001, 0.02))


def kill(kind: str, target: str, victims: Sequence[Victim]) -> None:
    """Kill processes at one moment."""
    history.record("fault", kind=kind, target=target, effect="dead", pids=[victim.pid for victim in victims])
    if len(victims) > 1:
        signal_all(victims, signal.SIGSTOP)
    signal_all(victims, signal.SIGKILL)


def signal_all(victims: Iterable[Victim], number: signal.Signals) -> None:
    for victim in victims:
        victim.signal(number)


def is_writable(file: Path) -> bool:
    """Whether nobody holds the lock of a database in a file for longer than a transaction takes."""
    with closing(sqlite3.connect(file, timeout=0.3, isolation_level=None)) as connection:
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return True
        return False
