"""The disks of this node: which of the configured folders can be used, and why the others cannot.

A folder is a disk by its identity file. Nothing is ever written to a folder without one, or with one of another
cluster: there, a file system is not mounted, or a wrong one is.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from peerd.domain.files import DiskState
from peerd.storage.disk.errors import DiskError, DiskOutOfSpace, DiskReadOnly, DiskReplaced, WrongDisk
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.held_folder import HeldFolder, Marker, mark_nothing
from peerd.storage.disk.identity import read_disk_identity
from peerd.store.connection.database import Database
from peerd.store.files.disks import DiskReport, DiskRow, cluster_identity, report_disk, report_disk_problem

SLOW_AFTER: Final = 2.0
"""Seconds that the check of a disk may take; a slower one gets no new contents until it is faster."""
PAUSE_AFTER_ERROR: Final = 60.0
"""Seconds without new contents for a disk on which a write has failed."""


MAX_PROBLEM: Final = 500
"""Characters."""


class LocalDisk(msgspec.Struct, kw_only=True):
    """A disk of this node that is open.

    Attributes:
        number: in the catalogue.
        folder: its contents.
        row: as the catalogue had it at the last report.
    """

    number: int
    folder: DiskFolder
    row: DiskRow


class DiskStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What was found at a configured path."""

    path: str
    number: int | None = None
    problem: str | None = None


class LocalDisks:
    """The disks of a node; thread-safe.

    Args:
        database: with the catalogue.
        paths: of the configured folders.
        node_id: of this node.
        url: where this node serves contents.
        reserve: share of a disk, from 0 to 1, that stays free.
        grace: seconds of silence after which a disk is missing.
        at: called before and after each step that changes a disk, for tests of interruptions.
    """

    def __init__(
        self,
        database: Database,
        paths: Iterable[Path],
        *,
        node_id: int,
        url: str | None,
        reserve: float,
        grace: float,
        at: Marker = mark_nothing,
    ) -> None:
        self._database = database
        self._paths = list(paths)
        self._node_id = node_id
        self._url = url
        self._reserve = reserve
        self._grace = grace
        self._at = at
        self._open: dict[Path, LocalDisk] = {}
        self._failed: dict[int, tuple[float, str]] = {}
        self._lock = Lock()

    def refresh(self) -> list[DiskStatus]:
        """Examine all configured folders, and report them to the catalogue.

        Raises:
            DatabaseUnavailable: the database does not answer.
        """
        cluster = self._database.run(cluster_identity)
        return [self._refresh(path, cluster) for path in self._paths]

    def usable(self) -> list[LocalDisk]:
        """The disks that can be read."""
        with self._lock:
            return list(self._open.values())

    def find(self, number: int) -> LocalDisk | None:
        """The disk of this number, if it is of this node and can be read."""
        return next((disk for disk in self.usable() if disk.number == number), None)

    def for_new(self, size: int) -> list[LocalDisk]:
        """The disks that take new contents of so many bytes, those with the most room first."""
        with_room: list[tuple[int, LocalDisk]] = []
        for disk in self.usable():
            if disk.row.state != DiskState.ACTIVE.value or self._write_problem(disk.number) is not None:
                continue
            try:
                usage = disk.folder.usage()
            except DiskError as error:
                self.failed(disk.number, error)
                continue
            room = usage.free - int(usage.total * self._reserve)
            if room >= size:
                with_room.append((room, disk))
        return [disk for _, disk in sorted(with_room, key=lambda pair: -pair[0])]

    def failed(self, number: int, error: DiskError) -> None:
        """A write to a disk has failed: it gets no new contents for a while; the next report says why."""
        with self._lock:
            self._failed[number] = (time.monotonic() + PAUSE_AFTER_ERROR, str(error))

    def _write_problem(self, number: int) -> str | None:
        with self._lock:
            until, problem = self._failed.get(number, (0.0, ""))
        return problem if until > time.monotonic() else None

    def _refresh(self, path: Path, cluster: str) -> DiskStatus:
        began = time.monotonic()
        try:
            folder = self._folder_at(path, cluster)
        except DiskError as error:
            self._database.run(report_disk_problem, self._node_id, str(path), str(error)[:MAX_PROBLEM])
            return DiskStatus(path=str(path), problem=str(error))
        problem = self._problem_of(folder, began)
        row = self._report(folder, problem)
        if row is None:
            self._forget(path)
            return DiskStatus(path=str(path), problem=f"the catalogue does not know it: peerd files disks add {path}")
        if row.state == DiskState.LOST.value:
            self._forget(path)
            lost = f"disk {row.id} was declared lost; empty the folder, and make a new disk of it"
            return DiskStatus(path=str(path), number=row.id, problem=lost)
        with self._lock:
            self._open[path] = LocalDisk(number=row.id, folder=folder, row=row)
        return DiskStatus(path=str(path), number=row.id, problem=row.problem)

    def _folder_at(self, path: Path, cluster: str) -> DiskFolder:
        """The disk at a path, opened if it is not open, or if another one is mounted there now."""
        opened = self._open.get(path)
        if opened is not None:
            try:
                opened.folder.check()
            except (DiskReplaced, WrongDisk):
                self._forget(path)
            except DiskError:
                self._forget(path)
                raise
            else:
                return opened.folder
        identity = read_disk_identity(path)
        if identity.cluster != cluster:
            raise WrongDisk(str(path), f"a disk of cluster {cluster}", str(identity))
        folder = DiskFolder.open(path, identity, at=self._at)
        held = (folder.contents.folder, folder.parts, folder.quarantine_folder, folder.root)
        weakref.finalize(folder, _close_all, held)
        return folder

    def _forget(self, path: Path) -> None:
        """Use a disk no more; its descriptors are closed when no transfer uses them any more."""
        with self._lock:
            self._open.pop(path, None)

    def _problem_of(self, folder: DiskFolder, began: float) -> str | None:
        """Why nothing can be written to a disk now."""
        try:
            folder.check(writable=True)
        except (DiskReadOnly, DiskOutOfSpace) as error:
            return str(error)
        seconds = time.monotonic() - began
        if seconds > SLOW_AFTER:
            return f"it is slow: its check took {seconds:.1f} s"
        opened = next((disk for disk in self.usable() if disk.folder is folder), None)
        return None if opened is None else self._write_problem(opened.number)

    def _report(self, folder: DiskFolder, problem: str | None) -> DiskRow | None:
        usage = folder.usage()
        report = DiskReport(
            identity=folder.identity.disk,
            path=str(folder.path),
            url=self._url,
            size=usage.total,
            free=usage.free,
            reserve=int(usage.total * self._reserve),
            problem=None if problem is None else problem[:MAX_PROBLEM],
        )
        return self._database.run(report_disk, self._node_id, report, self._grace)


def _close_all(folders: Iterable[HeldFolder]) -> None:
    for folder in folders:
        folder.close()


def absolute(paths: Sequence[str], base: Path) -> list[Path]:
    """Paths as given, relative ones below a folder; links in them are followed when they are used."""
    return [Path(os.path.normpath(base / path)) for path in paths]
