"""Nodes with storage inside a test: real disks, real servers on sockets of this machine, and tasks that a test runs."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import sqlalchemy as sa

from peerd.config.settings import WebSettings
from peerd.runtime.observability.events import Event, EventBus
from peerd.storage.awaiting import Steps
from peerd.storage.checking import SHARED
from peerd.storage.disk.identity import create_disk
from peerd.storage.duties import Duties
from peerd.storage.maintenance import StorageMaintenance
from peerd.storage.node import StorageNode, StorageOptions
from peerd.storage.server.app import StorageApp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.store.files.disks import cluster_identity, register_disk
from peerd.store.schema.tables import file_checks, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.web_server.server import WebServer
from tests.store.file_steps import Catalogue

T = TypeVar("T")
SECRET = "the secret of the nodes of a test"


def carry_out(node: StorageNode, steps: Steps[T]) -> T:
    """Carry a put out, as the server does."""
    return asyncio.run(node.awaited.carry_out(steps))


class NoRings:
    def ring(self, *queues: str) -> None:
        """Nothing sleeps: tests run tasks themselves."""


class ServedNode:
    """A node: one or more disks below a folder, and a server, with a certificate and its key if there is TLS."""

    def __init__(
        self,
        name: str,
        folder: Path,
        catalogue: Catalogue,
        *,
        disks: int = 1,
        tls: tuple[Path, Path] | None = None,
        **more: Any,
    ) -> None:
        self.name = name
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(100)
        self.tls = tls
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"
        self.paths = [folder / f"{name}-{number}" for number in range(1, disks + 1)]
        store = catalogue.store
        node_id = catalogue.node(name)
        self.numbers = []
        for path in self.paths:
            path.mkdir()
            identity = create_disk(path, store.run(cluster_identity))
            self.numbers.append(store.run(register_disk, identity.disk, path=str(path), node_id=node_id))
        values = {"disks": tuple(map(str, self.paths)), "url": self.url, "reserve": 0.0, "durable_within": 20.0, **more}
        self.node = StorageNode(store, name, StorageOptions(**values), folder, SECRET, NoRings())
        self.duties = Duties(self.node)
        self.events: list[Event] = []

    @property
    def disk(self) -> int:
        return self.numbers[0]

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve it from a thread."""
        loop = asyncio.new_event_loop()
        settings = WebSettings(
            app="peerd.storage.server.app:app",
            bind=("127.0.0.1:0",),
            tls_certificate=None if self.tls is None else self.tls[0],
            tls_key=None if self.tls is None else self.tls[1],
        )
        server = WebServer(StorageApp(self.node), settings, {}, EventBus(self.events.append))
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        asyncio.run_coroutine_threadsafe(server.start([self.socket], self.events.append), loop).result(30)
        try:
            yield
        finally:
            server_ends = asyncio.run_coroutine_threadsafe(_end(server), loop)
            server_ends.result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            self.node.http.close()
            self.socket.close()

    def contents(self, disk: int = 0) -> list[str]:
        """The names of the contents on a disk."""
        return sorted(path.name for path in (self.paths[disk] / "contents").rglob("*") if path.is_file())

    def content_path(self, file_id: int, disk: int = 0) -> Path:
        text = f"{file_id:016x}"
        return self.paths[disk] / "contents" / text[:4] / text[4:7] / text


async def _end(server: WebServer) -> None:
    server.stop_accepting(close_listeners=False)
    await server.drain(0.0)
    await server.shut_down(5.0)


class StorageCluster:
    """Served nodes that share a catalogue."""

    def __init__(self, catalogue: Catalogue, nodes: list[ServedNode]) -> None:
        self.catalogue = catalogue
        self.nodes = {node.name: node for node in nodes}
        self._managers: dict[str, StorageMaintenance] = {}

    def run_tasks(self, *, rounds: int = 20) -> list[tuple[str, str, dict[str, int] | str]]:
        """Run the tasks of all nodes until there are none, and make checks due in between; what each has done."""
        done: list[tuple[str, str, dict[str, int] | str]] = []
        for _ in range(rounds):
            self.refresh()
            found = self._pending()
            if not found and not self._check():
                return done
            done += [self._run(row) for row in found]
        raise AssertionError(f"tasks without an end: {done}")

    def keep(self, *names: str) -> list[tuple[str, str, dict[str, int] | str]]:
        """Let nodes, or these, do their rounds and tasks until nothing is to be done; what was done."""
        kept = [self.nodes[name] for name in names or self.nodes]
        done = []
        for _ in range(6):
            for node in kept:
                manager = self._managers.setdefault(node.name, StorageMaintenance(node.node))
                manager._report_at = manager._tidy_at = 0.0
                node.node.view(fresh=True)
                manager.run()
            done += [self._run(row) for row in self._pending() if not names or self._node_for(row) in kept]
            self.catalogue.change(file_checks, sa.true(), due_at=seconds_from_now(-1))
        return done

    def refresh(self) -> None:
        for node in self.nodes.values():
            node.node.disks.refresh()
            node.node.view(fresh=True)

    def _pending(self) -> list[Any]:
        columns = tasks.c.id, tasks.c.name, tasks.c.body, tasks.c.node_id
        pending = (
            sa.select(*columns).where(tasks.c.queue == "storage", tasks.c.status == "pending").order_by(tasks.c.id)
        )
        return list(self.catalogue.store.read(lambda connection: connection.execute(pending).mappings().all()))

    def _run(self, row: Any) -> tuple[str, str, dict[str, int] | str]:
        node = self._node_for(row)
        body = json.loads(row["body"])
        stop = threading.Event()
        duties = {
            "copy": lambda: node.duties.copy(body["disk"], body["files"], stop, lambda *_: None),
            "remove": lambda: node.duties.remove(body["disk"], body["files"]),
            "verify": lambda: node.duties.verify(body["disk"], body["files"], stop, lambda *_: None),
            "sweep": lambda: node.duties.sweep(body["disk"], stop),
        }
        outcome: dict[str, int] | str
        try:
            outcome, status = duties[row["name"].removesuffix(SHARED)](), "done"
        except Exception as error:  # noqa: BLE001 - as a task that fails
            outcome, status = f"{type(error).__name__}: {error}", "dead"
        self.catalogue.change(tasks, tasks.c.id == row["id"], status=status)
        return node.name, row["name"], outcome

    def _node_for(self, row: Any) -> ServedNode:
        """The node that a task is pinned to; one for a shared disk is run by any node that has object stores."""
        if row["name"].endswith(SHARED):
            assert row["node_id"] is None
            return next(node for node in self.nodes.values() if node.node.options.object_stores)
        return next(node for node in self.nodes.values() if node.node.node_id == row["node_id"])

    def _check(self) -> bool:
        """Check all files that have a check; whether something was planned."""
        due = sa.select(file_checks.c.file_id)
        store = self.catalogue.store
        ids = list(store.read(lambda connection: connection.execute(due).scalars().all()))
        node = next(iter(self.nodes.values())).node
        view = node.view(fresh=True)
        return bool(store.run(lambda connection: node.check(connection, ids, view)).tasks)


def ask_node(node: ServedNode, method: str, target: str, body: bytes = b"", **headers: str) -> httpx.Response:
    """Ask a node, with the signature of a node."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    signature = node_signature(node, method, target, names)
    return httpx.request(method, node.url + target, content=body, headers={**names, **signature}, timeout=60)


def node_signature(
    node: ServedNode, method: str, target: str, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    return NodeSigner(SECRET, node.node.clock).headers(method, node.node.verifier.url, target, headers or {})
