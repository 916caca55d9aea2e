"""The disks of this node: which of the configured places can be used, and why the others cannot.

A place is a disk by its identity. Nothing is ever written to one without it, or with the identity of another cluster:
there, a file system is not mounted, or a wrong one is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.files import DiskState
from peerd.storage.disk.errors import DiskBusy, DiskError, DiskOutOfSpace, DiskReadOnly, DiskReplaced, WrongDisk
from peerd.storage.disk.open_disk import DiskPlace, OpenDisk
from peerd.store.connection.database import Database
from peerd.store.files.disks import (
    MAX_PROBLEM,
    DiskReport,
    DiskRow,
    cluster_identity,
    report_disk,
    report_failure,
    report_unusable,
)

SLOW_AFTER: Final = 2.0
"""Seconds that the check of a disk may take; a slower one gets no new contents until it is faster."""
REFRESH_AGAIN_AFTER: Final = 1.0
"""Seconds after which disks are examined again for a content that none of them takes."""
PAUSE_AFTER_ERROR: Final = 60.0
"""Seconds without new contents for a disk on which a write has failed."""
PAUSE_WHILE_BUSY: Final = 15.0
"""Seconds without new contents for a disk that takes no more requests; its copies count as before."""


class LocalDisk(msgspec.Struct, kw_only=True):
    """A disk of this node that is open.

    Attributes:
        number: in the catalogue.
        opened: its contents.
        row: as the catalogue had it at the last report.
    """

    number: int
    opened: OpenDisk
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
        places: that are configured.
        node_id: of this node.
        url: where this node serves contents.
        reserve: share of a disk, from 0 to 1, that stays free.
        grace: seconds of silence after which a disk is missing.
    """

    def __init__(
        self,
        database: Database,
        places: Iterable[DiskPlace],
        *,
        node_id: int,
        url: str | None,
        reserve: float,
        grace: float,
    ) -> None:
        self._database = database
        self._places = list(places)
        self._node_id = node_id
        self._url = url
        self._reserve = reserve
        self._grace = grace
        self._open: dict[str, LocalDisk] = {}
        self._refreshed_at = 0.0
        self._failed: dict[int, tuple[float, str]] = {}
        self._lock = Lock()

    def refresh(self) -> list[DiskStatus]:
        """Examine all configured places, and report them to the catalogue.

        Raises:
            DatabaseUnavailable: the database does not answer.
        """
        self._refreshed_at = time.monotonic()
        cluster = self._database.run(cluster_identity)
        return [self._refresh(place, cluster) for place in self._places]

    def usable(self) -> list[LocalDisk]:
        """The disks that can be read."""
        with self._lock:
            return list(self._open.values())

    def find(self, number: int) -> LocalDisk | None:
        """The disk of this number, if it is of this node and can be read."""
        return next((disk for disk in self.usable() if disk.number == number), None)

    def for_new(self, size: int) -> list[LocalDisk]:
        """The disks that take new contents of so many bytes: folders first, those with the most room first.

        If there is none, the places are examined again, once a second at most: a disk may have been added, mounted, or
        emptied since.
        """
        found = self._with_room(size)
        if found or time.monotonic() - self._refreshed_at < REFRESH_AGAIN_AFTER:
            return found
        with contextlib.suppress(DatabaseUnavailable):
            self.refresh()
        return self._with_room(size)

    def _with_room(self, size: int) -> list[LocalDisk]:
        with_room: list[tuple[int, LocalDisk]] = []
        for disk in self.usable():
            if disk.row.state != DiskState.ACTIVE.value or disk.row.problem is not None:
                continue
            if self._write_problem(disk.number) is not None:
                continue
            try:
                usage = disk.opened.usage()
            except DiskError as error:
                self.failed(disk.number, error)
                continue
            room = usage.free - self._reserve_of(disk.opened, usage.total)
            if room >= size:
                with_room.append((room, disk))
        return [disk for _, disk in sorted(with_room, key=lambda pair: (pair[1].opened.is_remote, -pair[0]))]

    def failed(self, number: int, error: DiskError, *, pause: float | None = None) -> None:
        """A write to a disk has failed: it gets no new contents for a while, from no process; the catalogue has why."""
        pause = PAUSE_AFTER_ERROR if pause is None else pause
        with self._lock:
            self._failed[number] = (time.monotonic() + pause, str(error))
        with contextlib.suppress(DatabaseUnavailable):  # the next report of this process says it
            self._database.run(report_failure, number, str(error), pause)

    def _write_problem(self, number: int) -> str | None:
        with self._lock:
            until, problem = self._failed.get(number, (0.0, ""))
        return problem if until > time.monotonic() else None

    def _refresh(self, place: DiskPlace, cluster: str) -> DiskStatus:
        began = time.monotonic()
        try:
            opened = self._disk_at(place, cluster)
            problem = self._problem_of(opened, began)
            row = self._report(opened, problem)
        except DiskError as error:
            self._forget(place)
            self._database.run(report_unusable, self._node_id, place.name, str(error))
            return DiskStatus(path=place.name, problem=str(error))
        if row is None:
            self._forget(place)
            return DiskStatus(
                path=place.name, problem=f"the catalogue does not know it: peerd files disks add {place.name}"
            )
        if row.state == DiskState.LOST.value:
            self._forget(place)
            lost = f"disk {row.id} was declared lost; empty its place, and make a new disk of it"
            return DiskStatus(path=place.name, number=row.id, problem=lost)
        with self._lock:
            self._open[place.name] = LocalDisk(number=row.id, opened=opened, row=row)
        return DiskStatus(path=place.name, number=row.id, problem=row.problem)

    def _disk_at(self, place: DiskPlace, cluster: str) -> OpenDisk:
        """The disk at a place, opened if it is not open, or if another one is there now."""
        known = self._open.get(place.name)
        if known is not None:
            try:
                known.opened.check()
            except (DiskReplaced, WrongDisk):
                self._forget(place)
            except DiskBusy as error:  # it is the right one, and its copies are there
                self.failed(known.number, error, pause=PAUSE_WHILE_BUSY)
                return known.opened
            else:
                return known.opened
        return place.open(cluster)

    def _forget(self, place: DiskPlace) -> None:
        """Use a disk no more; it is closed when no transfer uses it any more."""
        with self._lock:
            self._open.pop(place.name, None)

    def _problem_of(self, opened: OpenDisk, began: float) -> str | None:
        """Why nothing can be written to a disk now."""
        try:
            opened.check(writable=True)
        except (DiskReadOnly, DiskOutOfSpace, DiskBusy) as error:
            return str(error)
        seconds = time.monotonic() - began
        if seconds > SLOW_AFTER:
            return f"it is slow: its check took {seconds:.1f} s"
        known = next((disk for disk in self.usable() if disk.opened is opened), None)
        return None if known is None else self._write_problem(known.number)

    def _report(self, opened: OpenDisk, problem: str | None) -> DiskRow | None:
        usage = opened.usage()
        report = DiskReport(
            identity=opened.identity.disk,
            path=opened.name,
            url=self._url,
            size=usage.total,
            free=usage.free,
            reserve=self._reserve_of(opened, usage.total),
            problem=None if problem is None else problem[:MAX_PROBLEM],
        )
        return self._database.run(report_disk, self._node_id, report, self._grace)

    def _reserve_of(self, opened: OpenDisk, total: int) -> int:
        return int(total * self._reserve) if opened.is_reserved else 0


def absolute(paths: Sequence[str], base: Path) -> list[Path]:
    """Paths as given, relative ones below a folder; links in them are followed when they are used."""
    return [Path(os.path.normpath(base / path)) for path in paths]
