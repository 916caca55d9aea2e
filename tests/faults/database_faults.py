"""What is done to the database: the server and the network before it, or the file and the disk that it lies on."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import sqlalchemy as sa

from peerd.store.schema.tables import tasks
from tests.faults import history
from tests.faults.disk import Disk
from tests.faults.fault_injector import FaultInjector, FaultRates, recorded_fault, sqlite_file
from tests.faults.nodes import NodeFleet
from tests.faults.proxy import ProxyMode, TcpProxy
from tests.support.server import DatabaseServer

LINGER_SECONDS: Final = 3.0
"""Seconds after an outage in which a client may still find its old connection broken, pause, and try again."""


class ServerFaultInjector(FaultInjector):
    """What becomes of a database server, and of the network before it.

    Args:
        fleet: the nodes.
        server: theirs.
        url: straight to their database.
        start: starts the server, from a thread that lives as long as it shall: its death would be the server's.
        others: proxies of clients that are no nodes.
    """

    def __init__(
        self,
        fleet: NodeFleet,
        server: DatabaseServer,
        url: str,
        start: Callable[[], None],
        others: Sequence[TcpProxy],
        rng: random.Random,
        rates: FaultRates,
        stopping: threading.Event,
        *,
        max_update: float,
    ) -> None:
        super().__init__("outages", rng, rates.outage_every, (0.5, 1.5), stopping)
        self._fleet = fleet
        self._server = server
        self._url = url
        self._start = start
        self._proxies = [*(node.proxy for node in fleet.nodes if node.proxy), *others]
        self._tempo = rates
        self._max_update = max_update
        self._round = 0

    def inject(self) -> None:
        """The first ones in turn, so that a short campaign has them all; then as it comes."""
        self._round += 1
        firsts = [self.lose_replies, self.lock_a_row, self.kill_server, self.cut_off_one, self.stop_server]
        if self._round <= len(firsts):
            firsts[self._round - 1]()
        elif self._round == len(firsts) + 1 and self._tempo.long_outage:
            self.stop_server(self._tempo.long_outage)
        else:
            self._any()

    def _any(self) -> None:
        self.inject_one_of(
            {
                "replies": (6, self.lose_replies),
                "cut off": (4, self.cut_off_one),
                "lock": (3, self.lock_a_row),
                "kill": (3, self.kill_server),
                "take away": (3, self.stop_server),
                "freeze": (2, self.freeze_server),
                "cut": (2, self.cut_all),
                "slow": (2, self.slow_down),
            }
        )

    def lock_a_row(self) -> None:
        """Another session writes the row of a running task, and its transaction stays open for longer than max_update.

        It excuses nothing: neither this task nor those beside it are rescued from a process that lives.
        """
        with locked_row(self._url) as task_id:
            if task_id is not None:
                with recorded_fault("locked row", f"task {task_id}"):
                    self.wait(self._max_update + self.rng.uniform(1.0, 5.0))

    def kill_server(self) -> None:
        with recorded_fault("kill server", "server", effect="cut", everyone=True, lingers=LINGER_SECONDS):
            self._server.kill()
            self.wait(self.rng.uniform(0.2, self._tempo.longest_outage / 2))
            self._start()

    def freeze_server(self) -> None:
        with recorded_fault("freeze server", "server", effect="cut", everyone=True, lingers=LINGER_SECONDS):
            self._server.freeze()
            try:
                self.wait(self.rng.uniform(1.0, self._tempo.longest_outage / 2))
            finally:
                self._server.thaw()

    def stop_server(self, seconds: float | None = None) -> None:
        """The database runs, and no process reaches it."""
        mode = self.rng.choice((ProxyMode.DROP, ProxyMode.REFUSE))
        kind = "outage of a minute" if seconds else "outage"
        seconds = seconds or self.rng.uniform(1.0, self._tempo.longest_outage)
        with (
            recorded_fault(kind, "all", effect="cut", everyone=True, lingers=LINGER_SECONDS, error=mode),
            proxies_in_mode(self._proxies, mode),
        ):
            self.wait(seconds)

    def cut_off_one(self) -> None:
        """One node does not reach it, for longer than the others wait for its tasks."""
        node = self.rng.choice(self._fleet.nodes)
        mode = self.rng.choice((ProxyMode.DROP, ProxyMode.REFUSE))
        assert node.proxy is not None
        with (
            recorded_fault("cut off", node.name, effect="cut", nodes=[node.name], lingers=LINGER_SECONDS, error=mode),
            proxies_in_mode([node.proxy], mode),
        ):
            self.wait(self._max_update + self.rng.uniform(1.0, 5.0))

    def lose_replies(self) -> None:
        """Commits are done, and their answers are lost, to nodes and to whoever enqueues."""
        before = sum(proxy.lost_replies for proxy in self._proxies)
        with recorded_fault("lose replies", "all"):
            for proxy in self._proxies:
                proxy.lose_replies(self.rng.randint(3, 15), after=self.rng.choice((0, 0, 1, 5)))
            self.wait(self.rng.uniform(1.0, 4.0))
            for proxy in self._proxies:
                proxy.lose_replies(0)
        history.record("replies-lost", number=sum(proxy.lost_replies for proxy in self._proxies) - before)

    def cut_all(self) -> None:
        with recorded_fault("cut connections", "all"):
            for proxy in self._proxies:
                proxy.cut()

    def slow_down(self) -> None:
        """All that comes and goes is late, or comes in small pieces."""
        slow: dict[str, Any] = self.rng.choice(({"delay": 0.02}, {"delay": 0.05}, {"bytes_per_second": 200_000}))
        with recorded_fault("slow network", "all"), proxies_in_mode(self._proxies, ProxyMode.PASS, **slow):
            self.wait(self.rng.uniform(2.0, 8.0))


class FileFaultInjector(FaultInjector):
    """What becomes of a database in a file: its disk is full, or another process holds its lock."""

    def __init__(
        self, fleet: NodeFleet, disk: Disk, rng: random.Random, rates: FaultRates, stopping: threading.Event
    ) -> None:
        super().__init__("outages", rng, rates.outage_every, (0.5, 1.5), stopping)
        file = sqlite_file(fleet)
        assert file is not None
        self._file = file
        self._disk = disk
        self._tempo = rates
        self._round = 0

    def inject(self) -> None:
        self._round += 1
        if self._round == 3 and self._tempo.long_outage:
            self.hold_lock(self._tempo.long_outage)
        elif self._round % 2:
            self.fill_disk()
        else:
            self.hold_lock(self.rng.uniform(1.0, self._tempo.longest_outage))

    def fill_disk(self) -> None:
        with recorded_fault("full disk", "disk", effect="cut", everyone=True, lingers=LINGER_SECONDS):
            self._disk.fill()
            try:
                self.wait(self.rng.uniform(2.0, self._tempo.longest_outage))
            finally:
                self._disk.free()

    def hold_lock(self, seconds: float) -> None:
        """Another program writes, and does not come to its end."""
        kind = "outage of a minute" if seconds == self._tempo.long_outage else "locked database"
        with (
            recorded_fault(kind, "database", effect="cut", everyone=True, lingers=LINGER_SECONDS),
            closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as connection,
        ):
            connection.execute("BEGIN IMMEDIATE")
            self.wait(seconds)
            connection.execute("ROLLBACK")


@contextmanager
def proxies_in_mode(proxies: Sequence[TcpProxy], mode: ProxyMode, **more: Any) -> Iterator[None]:
    """Proxies that behave so, for a while."""
    for proxy in proxies:
        proxy.set_mode(mode, **more)
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.set_mode(ProxyMode.PASS)


@contextmanager
def locked_row(url: str, *task_ids: int) -> Iterator[int | None]:
    """Lock the row of a running task from outside, until the end of the block.

    Args:
        url: straight to the database, which is a server's.
        task_ids: one of these; any if none is given.

    Returns:
        the task; None where none runs.
    """
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="READ COMMITTED")
    running = sa.select(tasks.c.id).where(
        tasks.c.status == "working", *([tasks.c.id.in_(task_ids)] if task_ids else [])
    )
    try:
        with engine.connect() as connection:
            task_id = connection.execute(running.order_by(tasks.c.checked_at.desc()).limit(1)).scalar()
            one = sa.select(tasks.c.id).where(tasks.c.id == task_id, tasks.c.status == "working")
            locked = None if task_id is None else connection.execute(one.with_for_update()).scalar()
            yield locked
            connection.rollback()
    finally:
        engine.dispose()
