"""What a node's worker processes run for storage: the queue of its tasks, and the manager, a periodic worker."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any, Final

from peerd import Context, Queue, Worker
from peerd.storage.checking import QUEUE, SHARED
from peerd.storage.duties import Duties
from peerd.storage.maintenance import PAUSE, StorageMaintenance
from peerd.storage.node import StorageNode

REPORT_EVERY: Final = 0.5
"""Seconds between two reports of progress."""

storage = Queue(QUEUE)
"""The tasks of [storage], which the catalogue enqueues; each is pinned to the node that has the disk."""


storage_with_shared_disks = Queue(QUEUE)
"""The same, and the tasks of shared disks: of nodes that have [storage.object_stores]."""


@cache
def _node_of(process: Any) -> StorageNode:
    """The storage of the node, once for each process."""
    return StorageNode.of_process(process)


class _Stop(threading.Event):
    """Set when a task is cancelled.

    Args:
        ctx: of the task.
    """

    def __init__(self, ctx: Context) -> None:
        super().__init__()
        self._ctx = ctx

    def is_set(self) -> bool:
        return self._ctx.cancelled

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for so many seconds, in short steps."""
        until = time.monotonic() + (timeout or 0.0)
        while not self._ctx.cancelled and (left := until - time.monotonic()) > 0:
            time.sleep(min(0.2, left))
        return self._ctx.cancelled


class _Progress:
    """Reports progress twice a second.

    Args:
        ctx: of the task.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._next = 0.0

    def __call__(self, fraction: float, note: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REPORT_EVERY
            self._ctx.progress(fraction, note)


def copy(ctx: Context, disk: int, files: list[str]) -> dict[str, int]:
    """Pull contents from other nodes onto a disk of this one."""
    return Duties(_node_of(ctx.process)).copy(disk, files, _Stop(ctx), _Progress(ctx))


def remove(ctx: Context, disk: int, files: list[str]) -> dict[str, int]:
    """Remove contents from a disk of this node."""
    return Duties(_node_of(ctx.process)).remove(disk, files)


def verify(ctx: Context, disk: int, files: list[str]) -> dict[str, int]:
    """Read contents on a disk of this node, and compare them with the catalogue."""
    return Duties(_node_of(ctx.process)).verify(disk, files, _Stop(ctx), _Progress(ctx))


def sweep(ctx: Context, disk: int) -> dict[str, int]:
    """Move contents that the catalogue does not know to quarantine."""
    return Duties(_node_of(ctx.process)).sweep(disk, _Stop(ctx))


def _backoff(attempts: int) -> float:
    return float(min(600.0, 5.0 * 2.0**attempts))


def _declare(queue: Queue, suffix: str) -> None:
    """Declare the tasks of one kind of disks."""
    queue.task(name=f"copy{suffix}", timeout="24h", max_attempts=10, backoff=_backoff)(copy)
    queue.task(name=f"remove{suffix}", timeout="1h", max_attempts=10, backoff=_backoff)(remove)
    queue.task(name=f"verify{suffix}", timeout="24h", max_attempts=5, backoff=_backoff)(verify)
    queue.task(name=f"sweep{suffix}", timeout="24h", max_attempts=2)(sweep)


_declare(storage, "")
_declare(storage_with_shared_disks, "")
_declare(storage_with_shared_disks, SHARED)


class StorageManager(Worker):
    """Reports the disks of this node, checks files that are due, and has copies verified that were not for long."""

    sleep = PAUSE

    def __init__(self) -> None:
        super().__init__()
        self._maintenance: StorageMaintenance | None = None

    def loop(self) -> None:
        """Do what is due."""
        if self._maintenance is None:
            self._maintenance = StorageMaintenance(_node_of(self.process))
        self._maintenance.run()
