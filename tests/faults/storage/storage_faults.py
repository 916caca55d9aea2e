"""What is done to nodes with storage and to their disks.

A fault of a disk never takes the last good copy of a file: what destroys contents is done only where the catalogue has
other stored copies, and all of these were read and are whole; but for the one file that is lost at the end. Everything
else is as hard as it comes.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import sqlalchemy as sa

from peerd.domain.files import CopyState, DiskState
from peerd.store.connection.database import Database
from peerd.store.files.disks import set_disk_state
from peerd.store.schema.tables import file_checks, tasks
from peerd.store.schema.types import now
from tests.faults.fault_injector import FaultInjector, recorded_fault
from tests.faults.nodes import ProcessHandle
from tests.faults.process_faults import is_writable, kill, signal_all
from tests.faults.proxy import ProxyMode, TcpProxy
from tests.faults.storage.disk_audit import CatalogueRows, content_path, digest_of_file, read_catalogue
from tests.faults.storage.storage_fleet import StorageFleet, StorageServerNode
from tests.faults.storage.system_calls import CALLS
from tests.support.server import DatabaseServer
from tests.support.sigstop import wait_until_stopped

FREEZE_TRIES: Final = 200
REMOUNT_TRIES: Final = 20
LOSS_TRIES: Final = 15
SLOW_NETWORK: Final = 100_000.0
"""Bytes per second."""


class StorageKills(FaultInjector):
    """SIGKILL of a process, mostly of one that handles files; now and then of a whole node."""

    def __init__(self, fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__("kills", rng, every, (0.5, 1.5), stopping)
        self._fleet = fleet

    def inject(self) -> None:
        self.inject_one_of({"process": (88, self.kill_process), "node": (12, self.kill_node)})

    def kill_process(self) -> None:
        handles = self._fleet.children()
        if handles:
            weights = [4 if handle.slot.startswith("storage") else 1 for handle in handles]
            [handle] = self.rng.choices(handles, weights)
            kill(f"kill {handle.slot.rpartition('-')[0] or handle.slot}", handle.name, [handle])

    def kill_node(self) -> None:
        node = self.rng.choice(self._fleet.nodes)
        if node.is_ready and (all_processes := node.all_processes()):
            kill("kill node", node.name, all_processes)


class StorageFreezes(FaultInjector):
    """SIGSTOP for some seconds: of a process, or of a node; sometimes for longer than its grace."""

    def __init__(self, fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__("freezes", rng, every, (0.5, 1.5), stopping)
        self._fleet = fleet

    def inject(self) -> None:
        self.inject_one_of({"process": (3, self.freeze_process), "node": (1, self.freeze_node)})

    def freeze_process(self) -> None:
        handles = [handle for handle in self._fleet.children() if handle.slot.startswith("storage")]
        if handles:
            handle = self.rng.choice(handles)
            self._freeze(f"freeze {handle.slot.rpartition('-')[0]}", handle.name, [handle])

    def freeze_node(self) -> None:
        node = self.rng.choice(self._fleet.nodes)
        if all_processes := node.all_processes():
            self._freeze("freeze node", node.name, all_processes)

    def _freeze(self, kind: str, target: str, handles: list[ProcessHandle]) -> None:
        seconds = self.rng.choice((1.0, 3.0, self._fleet.timing.max_update + 3.0))
        with recorded_fault(kind, target, effect="frozen", pids=[handle.pid for handle in handles]):
            try:
                self._stop(handles)
                self.wait(seconds)
            finally:
                signal_all(handles, signal.SIGCONT)

    def _stop(self, handles: list[ProcessHandle]) -> None:
        """While none of them writes, where they write to a file: SQLite's lock would stop all others too."""
        for _ in range(FREEZE_TRIES):
            signal_all(handles, signal.SIGSTOP)
            wait_until_stopped(handle.pid for handle in handles)
            if self._fleet.sqlite is None or is_writable(self._fleet.sqlite):
                return
            signal_all(handles, signal.SIGCONT)
            time.sleep(self.rng.uniform(0.001, 0.02))


class DiskFaults(FaultInjector):
    """Damage of contents, a lost disk, a full one, and one that becomes read-only."""

    def __init__(self, fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__("disks", rng, every, (0.5, 1.5), stopping)
        self._fleet = fleet
        self._mounted = [node for node in fleet.nodes if node.mount is not None]
        self.skipped = 0
        """Faults that would have taken a last good copy."""
        self._round = 0

    def inject(self) -> None:
        """Some in turn first, so that a short campaign has them all."""
        self._round += 1
        firsts = {2: self.fill_disk, 4: self.make_read_only}
        if first := firsts.get(self._round):
            first()
        else:
            self.inject_one_of(
                {
                    "damage": (82, self.damage_contents),
                    "full": (7, self.fill_disk),
                    "read-only": (7, self.make_read_only),
                    "lost": (4, self.lose_disk),
                }
            )

    def damage_contents(self) -> None:
        """Of some files that have several copies, all of them good, one is damaged."""
        rows = self._fleet.steadily(lambda: read_catalogue(self._fleet.database))
        some = [file_id for file_id, copies in rows.copies.items() if file_id in rows.files and len(copies) > 1]
        for file_id in self.rng.sample(some, min(len(some), self.rng.randint(1, 4))):
            if not (disks := expendable_copies(rows, file_id)):
                self.skipped += 1
                continue
            disk_id = self.rng.choice(disks)
            damage = self.rng.choice([_flip_bit, _flip_bit_unseen, _truncate, _append, _remove])
            with recorded_fault(f"damage: {damage.__name__.strip('_')}", f"{file_id:016x} on disk {disk_id}"):
                damage(str(content_path(rows.paths[disk_id], file_id)), self.rng)

    def lose_disk(self) -> None:
        """A node is killed, its disk is replaced by a new one, and the old one is declared lost."""
        node = self._node_to_lose()
        with node.held_down():
            if not (all_processes := node.all_processes()):
                return
            kill("kill node", node.name, all_processes)
            for handle in all_processes:
                with suppress(Exception):
                    handle.process.wait(10)
            if (number := self._can_lose_disk(node)) is None:
                self.skipped += 1
                return
            with recorded_fault("lost disk", node.name):
                self._fleet.wipe_disk(node)
                self._fleet.steadily(lambda: self._fleet.database.run(set_disk_state, number, DiskState.LOST))
                self._fleet.make_disk(node)

    def lose_file(self) -> tuple[int, str]:
        """Remove all copies of a file; its id and its key. An empty one would be copied all the same, without a source.

        A copy may have been begun meanwhile, on a disk that has more space: such a file is made whole from it, and
        another one is lost.
        """
        while True:
            rows = self._fleet.steadily(lambda: read_catalogue(self._fleet.database))
            stored = {CopyState.STORED.value}
            whole = [
                file.id
                for file in rows.files.values()
                if file.size
                and set(rows.copies[file.id]) <= set(rows.paths)
                and set(rows.copies[file.id].values()) == stored
            ]
            file_id = self.rng.choice(whole)
            with recorded_fault("lost file", f"{file_id:016x}"):
                for disk_id in rows.copies[file_id]:
                    content_path(rows.paths[disk_id], file_id).unlink(missing_ok=True)
            now = self._fleet.steadily(lambda: read_catalogue(self._fleet.database))
            if now.copies[file_id].keys() == rows.copies[file_id].keys():
                return file_id, rows.files[file_id].file_key

    def _node_to_lose(self) -> StorageServerNode:
        """A node whose disk can be lost, as soon as there is one: files get their copies, and damage is mended."""
        nodes = self.rng.sample(self._fleet.nodes, len(self._fleet.nodes))
        for _ in range(LOSS_TRIES):
            for node in nodes:
                if self._can_lose_disk(node) is not None:
                    return node
            if self._stopping.wait(1.0):
                break
        return nodes[0]

    def _can_lose_disk(self, node: StorageServerNode) -> int | None:
        """The number of a node's disk, if each file on it has other copies, and all of these are whole."""
        rows = self._fleet.steadily(lambda: read_catalogue(self._fleet.database))
        [number] = [disk_id for disk_id, path in rows.paths.items() if path == node.disk]
        held = [file_id for file_id, copies in rows.copies.items() if number in copies]
        return number if all(can_lose(rows, file_id, number) for file_id in held) else None

    def fill_disk(self) -> None:
        if not self._mounted:
            return
        node = self.rng.choice(self._mounted)
        assert node.mount is not None
        ballast = node.mount / "ballast"
        with recorded_fault("full disk", node.name):
            try:
                with ballast.open("wb") as file, suppress(OSError):
                    free = os.statvfs(node.mount)
                    left = self.rng.choice((0, 300_000))
                    os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - left))
                self.wait(self.rng.uniform(2.0, 7.0))
            finally:
                ballast.unlink(missing_ok=True)

    def make_read_only(self) -> None:
        if not self._mounted:
            return
        node = self.rng.choice(self._mounted)
        if not _remount(node, "ro"):
            self.skipped += 1
            return
        with recorded_fault("read-only disk", node.name):
            try:
                self.wait(self.rng.uniform(2.0, 7.0))
            finally:
                assert _remount(node, "rw")


class FailingCalls(FaultInjector):
    """EIO of some reads, writes or syncs of a process that handles files, for some seconds."""

    def __init__(self, fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__("calls", rng, every, (0.5, 1.5), stopping)
        self._fleet = fleet
        self._calls = {node.name: node.calls for node in fleet.nodes if node.calls is not None}

    def inject(self) -> None:
        handles = [one for one in self._fleet.children() if one.slot.startswith("storage") and one.node in self._calls]
        if not handles:
            return
        handle, call = self.rng.choice(handles), self.rng.choice(sorted(CALLS))
        calls = self._calls[handle.node]
        with recorded_fault(f"EIO of {call}", handle.name, effect="failing calls", pids=[handle.pid]):
            try:
                calls.fail(handle.pid, call, self.rng.choice((0.05, 0.5, 1.0)))
                self.wait(self.rng.choice((1.0, 3.0)))
            finally:
                while handle.process.is_running() and not calls.heal(handle.pid, call):
                    time.sleep(0.2)


class Partitions(FaultInjector):
    """A node whose contents no other node can read, or only slowly; mostly it cannot reach the database either."""

    def __init__(self, fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__("partitions", rng, every, (0.5, 1.5), stopping)
        self._fleet = fleet

    def inject(self) -> None:
        self.inject_one_of({"cut": (5, self.cut_off), "hidden": (3, self.hide), "slow": (2, self.slow_down)})

    def cut_off(self) -> None:
        node = self.rng.choice(self._fleet.nodes)
        self._change("cut-off node", node, [node.entrance, *([node.proxy] if node.proxy else [])])

    def hide(self) -> None:
        node = self.rng.choice(self._fleet.nodes)
        self._change("unreachable contents", node, [node.entrance])

    def slow_down(self) -> None:
        node = self.rng.choice(self._fleet.nodes)
        with recorded_fault("slow contents", node.name, effect="slow"):
            node.entrance.set_mode(ProxyMode.PASS, delay=0.05, bytes_per_second=SLOW_NETWORK)
            self.wait(3.0)
            node.entrance.set_mode(ProxyMode.PASS)

    def _change(self, kind: str, node: StorageServerNode, proxies: list[TcpProxy]) -> None:
        mode = self.rng.choice((ProxyMode.DROP, ProxyMode.REFUSE))
        seconds = self.rng.choice((2.0, 5.0, self._fleet.timing.grace + 4.0))
        with recorded_fault(kind, node.name, effect=mode.value):
            try:
                for proxy in proxies:
                    proxy.set_mode(mode)
                self.wait(seconds)
            finally:
                for proxy in proxies:
                    proxy.set_mode(ProxyMode.PASS)


class DatabaseOutages(FaultInjector):
    """No process can write to the database for some seconds."""

    def __init__(self, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__("outages", rng, every, (0.5, 1.5), stopping)

    @abstractmethod
    def inject(self) -> None: ...


class LockedFile(DatabaseOutages):
    """Another program writes to SQLite's file, and does not come to its end."""

    def __init__(self, fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> None:
        super().__init__(rng, every, stopping)
        assert fleet.sqlite is not None
        self._file = fleet.sqlite

    def inject(self) -> None:
        with (
            recorded_fault("locked database", "database", effect="cut", everyone=True),
            closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as connection,
        ):
            connection.execute("BEGIN IMMEDIATE")
            self.wait(self.rng.uniform(1.0, 6.0))
            connection.execute("ROLLBACK")


class KilledServer(DatabaseOutages):
    """The database's server is killed, and comes back."""

    def __init__(
        self,
        server: DatabaseServer,
        start: Callable[[], None],
        rng: random.Random,
        every: float,
        stopping: threading.Event,
    ) -> None:
        super().__init__(rng, every, stopping)
        self._server = server
        self._start = start

    def inject(self) -> None:
        with recorded_fault("kill server", "server", effect="cut", everyone=True):
            self._server.kill()
            self.wait(self.rng.uniform(0.2, 4.0))
            self._start()


def expendable_copies(rows: CatalogueRows, file_id: int) -> list[int]:
    """The disks of those stored copies of a file of which each one may be damaged; a lost disk has none."""
    return [
        disk_id
        for disk_id, state in rows.copies[file_id].items()
        if state == CopyState.STORED.value and disk_id in rows.paths and can_lose(rows, file_id, disk_id)
    ]


def can_lose(rows: CatalogueRows, file_id: int, disk_id: int) -> bool:
    """Whether a file has other stored copies, which are all whole on their disks."""
    file = rows.files.get(file_id)
    if file is None:
        return True
    others = [
        other for other, state in rows.copies[file_id].items() if other != disk_id and state == CopyState.STORED.value
    ]
    return bool(others) and all(
        other in rows.paths and digest_of_file(content_path(rows.paths[other], file_id)) == file.blake3
        for other in others
    )


def expedite(database: Database) -> None:
    """Nothing waits for its pause any more: what an operator does who has mended everything."""

    def write(connection: sa.Connection) -> None:
        waits = tasks.c.queue == "storage", tasks.c.status.in_(["pending", "failure"]), tasks.c.start_at > now()
        connection.execute(sa.update(tasks).where(*waits).values(start_at=now()))
        connection.execute(sa.update(file_checks).where(file_checks.c.due_at > now()).values(due_at=now()))

    database.run(write)


@contextmanager
def _opened(path: str) -> Any:
    """A content for writing; nothing is done if it is there no more."""
    with suppress(FileNotFoundError), open(path, "r+b") as file:  # noqa: PTH123
        yield file
        return
    yield None


def _flip_bit(path: str, rng: random.Random) -> None:
    with _opened(path) as file:
        if file is None or not (size := os.fstat(file.fileno()).st_size):
            return
        at = rng.randrange(size)
        file.seek(at)
        value = file.read(1)[0] ^ (1 << rng.randrange(8))
        file.seek(at)
        file.write(bytes([value]))


def _flip_bit_unseen(path: str, rng: random.Random) -> None:
    """As a disk does it: size and times stay."""
    with suppress(FileNotFoundError):
        status = os.stat(path)  # noqa: PTH116
        _flip_bit(path, rng)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _truncate(path: str, rng: random.Random) -> None:
    with suppress(FileNotFoundError):
        if size := os.stat(path).st_size:  # noqa: PTH116
            os.truncate(path, rng.randrange(size))


def _append(path: str, rng: random.Random) -> None:
    with suppress(FileNotFoundError), open(path, "r+b") as file:  # noqa: PTH123
        file.seek(0, os.SEEK_END)
        file.write(b"more")


def _remove(path: str, rng: random.Random) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def _remount(node: StorageServerNode, mode: str) -> bool:
    """Whether the file system of a node's disk has the mode now; it cannot become read-only while a file is written."""
    for _ in range(REMOUNT_TRIES):
        command = ["mount", "-o", f"remount,{mode}", str(node.mount)]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            return True
        time.sleep(0.05)
    return False
