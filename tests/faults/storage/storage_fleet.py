"""Nodes with storage, as real processes: each has a disk of its own, and is started again when it has ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
from sqlalchemy.engine import make_url

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.files import FileClass
from peerd.storage.disk.identity import create_disk
from peerd.store.connection.database import Database
from peerd.store.files.buckets import create_bucket
from peerd.store.files.classes import set_class
from peerd.store.files.disks import cluster_identity, register_disk
from tests.cluster.cluster import Cluster
from tests.faults.nodes import CHECK_EVERY, ROOT, STARTS_WITHIN, ProcessHandle, RestartingNode, free_ports
from tests.faults.proxy import ProxyThread
from tests.faults.storage.system_calls import SystemCalls

T = TypeVar("T")

ANSWERS_WITHIN: Final = 90.0
SECRET: Final = "the secret of the nodes of a campaign"
MOUNT_SIZE: Final = 48 * 1024 * 1024
CLASSES: Final = (
    FileClass(name="default", copies=2, durable=1),
    FileClass(name="safe", copies=2, durable=2),
    FileClass(name="wide", copies=3, durable=2),
)
BUCKET: Final = "films"


class ClientAddress(NamedTuple):
    """Where a client reaches a node, and the URL by which the other nodes know it, for which requests are signed."""

    port: int
    url: str


class StorageTiming(msgspec.Struct, frozen=True):
    """Of the nodes, in seconds."""

    max_update: float = 8.0
    grace: float = 14.0
    scrub_every: float = 5.0
    durable_within: float = 8.0


class StorageServerNode(RestartingNode):
    """A node with one disk, that can be held down.

    Attributes:
        port: of its storage server.
        disk: the folder of its disk.
        mount: the small file system on which the disk is, if it has one.
        calls: the control of its calls of the system that fail, if they can.
        entrance: through which other nodes reach its storage server.
        proxy: through which it reaches the database, if that is a server.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        port: int,
        timing: StorageTiming,
        proxies: ProxyThread,
        *,
        with_mount: bool,
        can_fail: bool,
    ) -> None:
        self.mount = _mount(cluster.folder / f"mount-{name}") if with_mount else None
        self.disk = (self.mount or cluster.folder) / f"disk-{name}"
        self.disk.mkdir()
        self._may_start = threading.Lock()
        self.entrance = proxies.proxy(port)
        self.client_address = ClientAddress(port, f"http://127.0.0.1:{self.entrance.port}")
        url = make_url(cluster.url)
        database = None if url.port is None else proxies.proxy(url.port)
        if database is not None:
            url = url.set(host="127.0.0.1", port=database.port)
        storage = {
            "disks": [str(self.disk)],
            "bind": f"127.0.0.1:{port}",
            "address": f"127.0.0.1:{self.entrance.port}",
            "reserve": 0.0,
            "grace": timing.grace,
            "scrub_every": timing.scrub_every,
            "durable_within": timing.durable_within,
        }
        node = cluster.node(
            name,
            node={"heartbeat_every": "1s", "grace": "4s"},
            manager={"every": "1s", "max_update": timing.max_update, "inactive_after": "3s"},
            workers={},
            database={"url": url.render_as_string(hide_password=False)},
            sections={"cluster": {"secret": SECRET}, "storage": storage},
        )
        self.calls = SystemCalls(cluster.folder / f"calls-{name}") if can_fail else None
        if self.calls is not None:
            node.environment = self.calls.environment
        super().__init__(node, database)

    def _start(self) -> None:
        with self._may_start:
            super()._start()

    @contextmanager
    def held_down(self) -> Iterator[None]:
        """It is not started again meanwhile."""
        with self._may_start:
            yield

    def close(self) -> None:
        """Unmount its disk."""
        if self.mount is not None:
            subprocess.run(["umount", "--lazy", str(self.mount)], check=True, capture_output=True)


class StorageFleet:
    """The nodes of a campaign.

    Args:
        folder: of the project.
        url: of the database.
        names: of the nodes.
        timing: of the nodes.
        mounted: the nodes whose disk is a small file system of its own; only root can mount one.
        proxies: between the nodes, and between them and the database.
        can_fail: whether their calls of the system can fail.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        names: Sequence[str],
        timing: StorageTiming,
        mounted: Sequence[str],
        proxies: ProxyThread,
        *,
        can_fail: bool = False,
    ) -> None:
        self.timing = timing
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.cluster = Cluster(folder, url, {"PYTHONPATH": path})
        self.nodes = [
            StorageServerNode(self.cluster, name, port, timing, proxies, with_mount=name in mounted, can_fail=can_fail)
            for name, port in zip(names, free_ports(len(names)), strict=True)
        ]
        for node in self.nodes:
            self.make_disk(node)
        for one in CLASSES:
            self.database.run(set_class, one)
        self.database.run(create_bucket, BUCKET)

    @property
    def database(self) -> Database:
        """As the test reaches it."""
        return self.cluster.client.database

    @property
    def sqlite(self) -> Path | None:
        """The file of the database, where it is one."""
        url = self.database.url
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    def make_disk(self, node: StorageServerNode) -> int:
        """Make a new disk of the empty folder of a node; return its number."""
        identity = create_disk(node.disk, self.steadily(lambda: self.database.run(cluster_identity)))
        path = str(node.disk)
        return self.steadily(lambda: self.database.run(register_disk, identity.disk, path=path, node_id=None))

    def steadily(self, step: Callable[[], T]) -> T:
        """Do a step again until the database answers; it can be repeated."""
        deadline = time.monotonic() + ANSWERS_WITHIN
        while True:
            try:
                return step()
            except DatabaseUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(CHECK_EVERY)

    def wipe_disk(self, node: StorageServerNode) -> None:
        """Remove all that is on the disk of a node that is down."""
        for path in node.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def start(self) -> None:
        """Start one after the other: on a machine with few cores, twenty processes that boot at once take too long."""
        for node in self.nodes:
            node.start()
            self.wait_until_ready([node])

    def wait_until_ready(self, nodes: Sequence[StorageServerNode]) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        while not all(node.is_ready for node in nodes):
            if time.monotonic() > deadline:
                raise AssertionError(f"not all nodes were ready within {STARTS_WITHIN:g} s:\n{self.log_text()}")
            time.sleep(CHECK_EVERY)

    def children(self) -> list[ProcessHandle]:
        """The processes that run in the slots of nodes that are up."""
        return [handle for node in self.nodes if node.is_ready for handle in node.children()]

    def stop(self) -> list[int]:
        """Stop all; return the processes that were left behind, which are ended now."""
        for node in self.nodes:
            with suppress(AssertionError):
                node.stop()
        left = self.cluster.clean_up()
        for node in self.nodes:
            node.close()
        return left

    def log_text(self) -> str:
        return "\n".join(node.node.log_text() for node in self.nodes)


def can_mount() -> bool:
    """Whether file systems can be mounted here."""
    return os.geteuid() == 0


def _mount(folder: Path) -> Path:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_SIZE}", "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder
