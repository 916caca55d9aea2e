"""The databases of a campaign: where it is, what stands before it, and how it is hit."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Final

from sqlalchemy.engine import make_url

from tests.faults.database_faults import FileFaultInjector, ServerFaultInjector
from tests.faults.disk import open_disk
from tests.faults.fault_injector import FaultInjector, FaultRates
from tests.faults.nodes import NodeFleet
from tests.faults.proxy import ProxyThread, TcpProxy
from tests.support.pgbouncer import PgBouncer
from tests.support.server_kinds import SERVERS
from tests.support.servers import create_database

POOLED: Final = "pooled-"
"""Before the name of a server, of which a pooler serves all clients."""


class TargetDatabase(ABC):
    """A database, and the ways to it."""

    kind: ClassVar[str]
    url: str
    """Straight to it."""
    load_url: str
    """As whoever enqueues sees it."""
    node_urls: Mapping[str, tuple[str, TcpProxy]]
    """As each node sees it, where that is through a proxy."""

    @abstractmethod
    def faults(
        self, fleet: NodeFleet, rng: random.Random, rates: FaultRates, stopping: threading.Event, *, max_update: float
    ) -> FaultInjector:
        """What will be done to it."""

    def words(self) -> str:
        """What is particular about it."""
        return ""


class ServerTarget(TargetDatabase):
    """A server of the campaign's own, which waits for the disk at each commit, with a proxy for each client.

    Behind the proxies of a pooled one, all share a pooler, which stays when the server is killed.
    """

    def __init__(self, kind: str, names: Sequence[str], folder: Path, stack: ExitStack) -> None:
        # A server dies with the thread that started it: it needs one that stays.
        self._starter = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="server"))
        self._server = SERVERS[kind.removeprefix(POOLED)](folder / kind, durable=True)
        stack.callback(self._server.stop)
        self._start()
        self.url = create_database(self._server, "peerd")
        self._entrance = self._server.port
        if kind.startswith(POOLED):
            settings = {"pool_mode": "transaction", "query_wait_timeout": "10"}  # as docs/scaling.md advises
            pooler = PgBouncer(folder / "pooler", self._server.port, **settings)
            stack.callback(pooler.stop)
            self._starter.submit(pooler.start).result()
            self._entrance = pooler.port
        proxies = stack.enter_context(ProxyThread())
        self.node_urls = {name: self._proxied(proxies) for name in names}
        self.load_url, self._load_proxy = self._proxied(proxies)

    def faults(
        self, fleet: NodeFleet, rng: random.Random, rates: FaultRates, stopping: threading.Event, *, max_update: float
    ) -> FaultInjector:
        return ServerFaultInjector(
            fleet, self._server, self.url, self._start, [self._load_proxy], rng, rates, stopping, max_update=max_update
        )

    def _start(self) -> None:
        self._starter.submit(self._server.start).result()

    def _proxied(self, proxies: ProxyThread) -> tuple[str, TcpProxy]:
        proxy = proxies.proxy(self._entrance)
        return make_url(self.url).set(port=proxy.port).render_as_string(hide_password=False), proxy


class FileTarget(TargetDatabase):
    """SQLite's file, on a disk that can become full."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._fleet: NodeFleet | None = None
        self._disk = open_disk(folder / "disk", self._processes)
        stack.callback(self._disk.close)
        self.url = self.load_url = f"sqlite:///{self._disk.folder / 'peerd.sqlite'}"
        self.node_urls = {}

    def faults(
        self, fleet: NodeFleet, rng: random.Random, rates: FaultRates, stopping: threading.Event, *, max_update: float
    ) -> FaultInjector:
        self._fleet = fleet
        return FileFaultInjector(fleet, self._disk, rng, rates, stopping)

    def words(self) -> str:
        return f"full disk by {self._disk.kind}"

    def _processes(self) -> list[int]:
        return [handle.pid for node in self._fleet.nodes for handle in node.all_processes()] if self._fleet else []


@contextmanager
def open_target_database(kind: str, names: Sequence[str]) -> Iterator[TargetDatabase]:
    """A fresh database for nodes of these names. Nothing of it is left behind.

    Args:
        kind: sqlite, one of `SERVERS`, or pooled-postgresql.
        names: each node has a way of its own to a server.

    Raises:
        ServerUnavailableError: its server is not installed.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="peerd-faults-"))  # short: its path will hold sockets
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user when we are root
        yield FileTarget(folder, stack) if kind == "sqlite" else ServerTarget(kind, names, folder, stack)
