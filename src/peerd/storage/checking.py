"""Checks of files: what each of them needs is decided, and written as planned copies, removals and tasks.

All of it is one transaction, in which the checks of the files are locked. So of two nodes that check the same file at
the same moment, one waits, and then sees what the other has planned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.files import Copy, CopyState, Disk, FileNeeds, FileState
from peerd.domain.pacing import exponential_backoff
from peerd.domain.task import NewTask
from peerd.storage.placement.brake import GRACE, DiskView, view_disks
from peerd.storage.placement.decision import Decision, FileHealth, Settled
from peerd.store.enqueue import enqueue_many
from peerd.store.files.checks import (
    DANGER_OF_TOMBSTONE,
    DANGER_WITHOUT_COPY,
    CopyRow,
    FileToCheck,
    NewCheck,
    delete_tombstones,
    end_checks,
    enter_checks,
    postpone_check,
    read_copies,
    read_files_to_check,
)
from peerd.store.files.copies import forget_copies, plan_copies, plan_removals
from peerd.store.files.disks import read_disks
from peerd.store.files.versions import discard_staged
from peerd.store.tasks.counts import unfinished_among

QUEUE: Final = "storage"
COPY: Final = "copy"
REMOVE: Final = "remove"
VERIFY: Final = "verify"
MAX_FILES_OF_TASK: Final = 500
MAX_BYTES_OF_TASK: Final = 64 * 1024 * 1024
"""Small files are copied many by one task; a larger one has a task of its own."""
FIRST_PAUSE: Final = 15.0
"""Seconds until a file that is not settled is checked again; doubled each time."""
LONGEST_PAUSE: Final = 3600.0
PRIORITIES: Final = {1: 30, 2: 20}
"""Priorities of tasks for files with so many good copies; larger is more urgent."""
LOW_PRIORITY: Final = 10


SHARED: Final = "-shared"
"""Behind the name of a task for a shared disk: it is pinned to no node, and only nodes with such disks know it."""


class TaskBody(msgspec.Struct, frozen=True):
    """The body of a task: the disk, and the ids of the files in hex."""

    disk: int
    files: list[str]


class Checked(msgspec.Struct, frozen=True):
    """What was decided.

    Attributes:
        decisions: by file.
        tasks: how many tasks were enqueued.
    """

    decisions: dict[int, Decision]
    tasks: int


def storage_task(
    name: str, disk: Disk, file_ids: Sequence[int], priority: int, unique_key: str | None = None
) -> NewTask:
    """A task for files on a disk, for the node that has the disk, or for any that uses it.

    Args:
        name: COPY, REMOVE or VERIFY.
        disk: whose contents it reads or changes.
        file_ids: the files.
        priority: larger is more urgent.
        unique_key: see `NewTask`.
    """
    body = msgspec.json.encode(TaskBody(disk.id, [f"{file_id:016x}" for file_id in file_ids])).decode()
    return NewTask(
        queue=QUEUE, name=task_name(name, disk), body=body, node=disk.node, priority=priority, unique_key=unique_key
    )


def task_name(name: str, disk: Disk) -> str:
    """The name of a task for a disk.

    >>> from peerd.domain.files import DiskKind
    >>> task_name(COPY, Disk(id=1, node="a")), task_name(COPY, Disk(id=2, node=None, kind=DiskKind.S3))
    ('copy', 'copy-shared')
    """
    return f"{name}{SHARED}" if disk.is_shared else name


def read_disk_view(connection: Connection, grace: float | None = None) -> DiskView:
    """The disks as decisions see them.

    Args:
        connection: of a read.
        grace: seconds of silence after which a disk is missing; None: as the nodes with disks have it.
    """
    disks, present, reported = read_disks(connection)
    return view_disks(disks, grace or reported or GRACE, present)


def check_files(
    connection: Connection, file_ids: Sequence[int], view: DiskView, random: Random, grace: float | None = None
) -> Checked:
    """Decide what files need, and plan it.

    A file may have a copy on a disk that was added after the disks were read; then they are read again.

    Args:
        connection: in a transaction that has locked the checks of the files.
        file_ids: the files.
        view: the disks.
        random: decides among disks.
        grace: see `read_disk_view`.
    """
    found = read_files_to_check(connection, file_ids)
    copies = read_copies(connection, [file.id for file in found])
    if any(row.copy.disk_id not in view.disks for rows in copies.values() for row in rows):
        view = read_disk_view(connection, grace)
    return _Check(connection, view, random).run(file_ids, found, copies)


class NewFileToCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was entered in this transaction, with its first copy.

    Attributes:
        entered_at: when, by the database's clock.
    """

    id: int
    needs: FileNeeds
    disk_id: int
    entered_at: datetime


def check_new_files(
    connection: Connection,
    new_files: Sequence[NewFileToCheck],
    view: DiskView,
    random: Random,
    grace: float | None = None,
) -> Checked:
    """Decide what new files need; see `check_files`. Nothing of them has to be read, and their checks are entered.

    One that needs nothing is checked again soon: a disk may be lost between the view and this transaction.
    """
    if any(file.disk_id not in view.disks for file in new_files):
        view = read_disk_view(connection, grace)
    return _Check(connection, view, random).run_new(new_files)


class _Check:
    """The check of some files.

    Args:
        connection: see `check_files`.
        view: as it was read; room that is promised meanwhile is taken off.
        random: see `check_files`.
    """

    def __init__(self, connection: Connection, view: DiskView, random: Random) -> None:
        self._connection = connection
        self._view = DiskView(dict(view.disks), view.missing, view.braked, view.present)
        self._random = random
        self._settled = Settled(self._view)
        self._copies: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        """By disk and danger, the sizes of the files to copy to it."""
        self._verifications: dict[int, list[int]] = defaultdict(list)
        self._removals: dict[int, list[int]] = defaultdict(list)
        self._tasks = 0

    def run(
        self, file_ids: Sequence[int], found: Sequence[FileToCheck], copies: Mapping[int, Sequence[CopyRow]]
    ) -> Checked:
        """Decide and write.

        Args:
            file_ids: the files.
            found: those of them that have a row.
            copies: of these.
        """
        abandoned = [file.id for file in found if file.is_abandoned]
        for file_id in abandoned:
            discard_staged(self._connection, file_id)
        found = [file for file in found if not file.is_abandoned]
        file_ids = [file_id for file_id in file_ids if file_id not in abandoned]
        tasks = {row.task_id for file in found for row in copies[file.id] if row.task_id is not None}
        unfinished = unfinished_among(self._connection, tasks)
        decisions = {file.id: self._decide(file, copies[file.id], unfinished) for file in found}
        self._enqueue_all()
        self._write(found, decisions)
        gone = [file_id for file_id in file_ids if file_id not in decisions]
        end_checks(self._connection, gone, read_at=self._view.present)
        return Checked(decisions, self._tasks)

    def run_new(self, new_files: Sequence[NewFileToCheck]) -> Checked:
        """Decide and write, of files without checks."""
        checks: list[NewCheck] = []
        decisions: dict[int, Decision] = {}
        for new in new_files:
            file = FileToCheck(new.id, new.needs, FileState.STORED, tries=0, is_abandoned=False)
            first = CopyRow(copy=Copy(new.disk_id, CopyState.STORED, new.entered_at), task_id=None)
            decision = decisions[new.id] = self._decide(file, [first], set())
            check = NewCheck(file_id=new.id, danger=_danger(decision), due_at=new.entered_at)
            if not decision.is_settled:
                due_at = new.entered_at + timedelta(seconds=_pause_after(1))
                check = msgspec.structs.replace(
                    check, due_at=due_at, tries=1, health=decision.health.value, blocked=decision.blocked
                )
            checks.append(check)
        self._enqueue_all()
        enter_checks(self._connection, checks)
        return Checked(decisions, self._tasks)

    def _decide(self, file: FileToCheck, rows: Sequence[CopyRow], unfinished: set[int]) -> Decision:
        decision = self._settled.decide(file.needs, [row.copy for row in rows], self._random)
        if decision.is_settled and not decision.forget:
            return decision
        if decision.forget:
            forget_copies(self._connection, file.id, decision.forget)
        danger = _danger(decision)
        orphaned = {row.copy.disk_id for row in rows if row.task_id not in unfinished}
        planned = {row.copy.disk_id for row in rows if row.copy.state is CopyState.PLANNED}
        again = planned & orphaned - set(decision.forget) if decision.good else ()  # else there is nothing to copy
        for disk_id in [*decision.copy_to, *sorted(again)]:
            self._promise(disk_id, file.needs.size)
            self._copies[disk_id, danger][file.id] = file.needs.size
        for disk_id in decision.verify:
            self._verifications[disk_id].append(file.id)
        removing = {row.copy.disk_id for row in rows if row.copy.state is CopyState.REMOVING}
        for disk_id in decision.remove_from:
            if disk_id not in removing or disk_id in orphaned:
                self._removals[disk_id].append(file.id)
                self._promise(disk_id, -file.needs.size)
        return decision

    def _promise(self, disk_id: int, size: int) -> None:
        """Take off room, or add it, so that the files of one check do not all go to one disk, or leave it."""
        disk = self._view.disks[disk_id]
        self._view.disks[disk_id] = msgspec.structs.replace(disk, free=max(0, disk.free - size))

    def _enqueue_all(self) -> None:
        self._enqueue_copies()
        self._enqueue_removals()
        self._enqueue_verifications()

    def _enqueue_copies(self) -> None:
        by_priority: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for (disk_id, danger), sizes in self._copies.items():
            by_priority[disk_id, PRIORITIES.get(danger, LOW_PRIORITY)] |= sizes
        self._tasks += enqueue_copies(self._connection, self._view, by_priority)

    def _enqueue_removals(self) -> None:
        for disk_id, file_ids in sorted(self._removals.items()):
            for first in range(0, len(file_ids), MAX_FILES_OF_TASK):
                group = file_ids[first : first + MAX_FILES_OF_TASK]
                task_id = self._enqueue(REMOVE, self._view.disks[disk_id], group, LOW_PRIORITY)
                plan_removals(self._connection, disk_id, group, task_id)

    def _enqueue_verifications(self) -> None:
        """Verify copies before others are removed; while a task verifies the same ones, none is enqueued again."""
        for disk_id, file_ids in sorted(self._verifications.items()):
            for first in range(0, len(file_ids), MAX_FILES_OF_TASK):
                group = file_ids[first : first + MAX_FILES_OF_TASK]
                key = f"trim {disk_id} {group[0]:016x} {len(group)}"
                new = storage_task(VERIFY, self._view.disks[disk_id], group, LOW_PRIORITY, key)
                self._tasks += enqueue_many(self._connection, [new])[0].created

    def _enqueue(self, name: str, disk: Disk, file_ids: Sequence[int], priority: int) -> int:
        self._tasks += 1
        return enqueue_many(self._connection, [storage_task(name, disk, file_ids, priority)])[0].id

    def _write(self, found: Iterable[FileToCheck], decisions: Mapping[int, Decision]) -> None:
        settled, gone = [], []
        for file in found:
            decision = decisions[file.id]
            if decision.health is FileHealth.GONE:
                gone.append(file.id)
            elif decision.is_settled and file.state is not FileState.STAGED:
                settled.append(file.id)
            else:
                pause = _pause_after(file.tries + 1)
                # A put that is not acknowledged has promised nothing: its version is neither at risk nor lost.
                health = None if file.state is FileState.STAGED else decision.health.value
                danger = _danger(decision)
                postpone_check(self._connection, file.id, pause, danger=danger, health=health, blocked=decision.blocked)
        delete_tombstones(self._connection, gone)
        end_checks(self._connection, [*settled, *gone], read_at=self._view.present)


def enqueue_copies(
    connection: Connection, view: DiskView, sizes_of: Mapping[tuple[int, int], Mapping[int, int]]
) -> int:
    """Plan copies, and enqueue the tasks that make them; return how many.

    Args:
        connection: in a transaction.
        view: the disks.
        sizes_of: by disk and priority, the sizes of the files to copy to it.
    """
    count = 0
    for (disk_id, priority), sizes in sorted(sizes_of.items()):
        for group in group_by_size(sizes):
            new = storage_task(COPY, view.disks[disk_id], group, priority)
            task_id = enqueue_many(connection, [new])[0].id
            plan_copies(connection, disk_id, {file_id: sizes[file_id] for file_id in group}, task_id)
            count += 1
    return count


def group_by_size(sizes: Mapping[int, int]) -> list[list[int]]:
    """Groups of files, each the work of one task: many small ones, or one large one.

    >>> group_by_size({1: 10, 2: 64 * 1024 * 1024, 3: 0})
    [[3, 1], [2]]
    """
    groups: list[list[int]] = []
    size_of_last = MAX_BYTES_OF_TASK + 1
    for file_id, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        if size_of_last + size > MAX_BYTES_OF_TASK or len(groups[-1]) >= MAX_FILES_OF_TASK:
            groups.append([])
            size_of_last = 0
        groups[-1].append(file_id)
        size_of_last += size
    return groups


def _pause_after(tries: int) -> float:
    return min(LONGEST_PAUSE, exponential_backoff(tries, base=FIRST_PAUSE, jitter=0.2))


def _danger(decision: Decision) -> int:
    if decision.health is FileHealth.DELETED:
        return DANGER_OF_TOMBSTONE
    return min(decision.good, DANGER_WITHOUT_COPY - 1) or DANGER_WITHOUT_COPY
