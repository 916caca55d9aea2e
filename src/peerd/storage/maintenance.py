"""What every node does again and again: report its disks, decide what files need, and have copies verified.

All nodes do it, and any of them may stop: the state is in the catalogue, and what is locked by one is left by others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.task import NewTask
from peerd.runtime.observability.events import ComponentFailed
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.storage.checking import (
    LONGEST_PAUSE,
    LOW_PRIORITY,
    MAX_FILES_OF_TASK,
    QUEUE,
    VERIFY,
    Checked,
    storage_task,
    task_name,
)
from peerd.storage.local_disks import LocalDisk
from peerd.storage.node import StorageNode
from peerd.storage.placement.brake import DiskView
from peerd.storage.rebalancing import FILES_OF_STEP, move_on, pass_over
from peerd.storage.uploads import abort_stale, remove_aborted
from peerd.store.enqueue import enqueue
from peerd.store.files.checks import DANGER_OF_TOMBSTONE, DANGERS, MOST_ENDANGERED, lock_due_checks, set_check_aside
from peerd.store.files.versions import delete_expired
from peerd.store.files.walks import begin_walks_of_missing, next_to_verify, scrub_goes_on, walk_again, walk_on

REPORT_EVERY: Final = 5.0
"""Seconds between two reports of the disks; `ONLINE_WITHIN` is four of them."""
TIDY_EVERY: Final = 10.0
PAUSE: Final = 0.5
"""Seconds between two rounds."""
REPORT_FAILURE_EVERY: Final = 60.0
"""Seconds between two reports of a step that fails again and again."""
CHECK_BATCH: Final = 250
MAX_BATCHES: Final = 8
"""Batches of one round, so that disks are reported in time."""
MAX_PLANNED: Final = 20_000
"""Copies that may be planned on all disks together; until some are made, only files with one copy are decided about, up
to twice as many. So the files of a lost disk are not all planned at once: those that become more endangered meanwhile
need not wait behind them, and what is promised to planned copies is summed quickly."""
WALK_BATCH: Final = 1000
EXPIRE_BATCH: Final = 500
SWEEP: Final = "sweep"
SWEEP_EVERY: Final = 86_400.0


class StorageMaintenance:
    """The periodic work of a node.

    Args:
        node: the storage of the node.
    """

    def __init__(self, node: StorageNode) -> None:
        self._node = node
        self._report_at = 0.0
        self._tidy_at = 0.0
        self._moved_at_once = FILES_OF_STEP
        self._failures: dict[str, tuple[int, float | None]] = {}
        """How often in a row a step has failed, and when that was reported, by step."""

    def run(self) -> None:
        """Do one round. A step that fails is reported, and the others are done; in the next round it is tried again.

        Raises:
            DatabaseUnavailable: no other step could do anything either.
        """
        present = time.monotonic()
        if present >= self._report_at:
            self._report_at = present + REPORT_EVERY
            self._step("report of disks", self._node.disks.refresh)
        self._step("walks", lambda: self._walk(self._node.view()))
        self._step("checks", lambda: self._check(self._node.view()))
        self._step("rebalancing", lambda: self._rebalance(self._node.view()))
        if present >= self._tidy_at:
            self._tidy_at = present + TIDY_EVERY
            self._step("expiry", lambda: self._node.database.run(delete_expired, EXPIRE_BATCH))
            self._step("walks again", lambda: self._node.database.run(walk_again))
            self._step("stale uploads", lambda: abort_stale(self._node))
            self._step("aborted uploads", lambda: remove_aborted(self._node))
            for disk in self._node.disks.usable():
                self._step(f"verification of disk {disk.number}", partial(self._scrub, disk))
                enqueue_sweep = partial(self._node.database.run, self._enqueue_sweep, disk)
                self._step(f"sweep of disk {disk.number}", enqueue_sweep)

    def _step(self, name: str, do: Callable[[], object]) -> None:
        try:
            do()
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - the other steps are done all the same
            self._report(name, describe_exception(error))
        else:
            self._failures.pop(name, None)

    def _report(self, step: str, error: str) -> None:
        """Report that a step has failed, at most once a minute."""
        count, reported_at = self._failures.get(step, (0, None))
        if reported_at is None or time.monotonic() - reported_at >= REPORT_FAILURE_EVERY:
            reported_at = time.monotonic()
            component = f"storage: {step}"
            failed = ComponentFailed(component=component, error=error, again_in=PAUSE, failures=count + 1)
            self._node.events.emit(failed)
        self._failures[step] = count + 1, reported_at

    def _walk(self, view: DiskView) -> None:
        """Have the files of disks checked that have become missing, or are used otherwise."""
        is_walked = False
        if view.missing:
            self._node.database.run(begin_walks_of_missing, view.missing)
        for _ in range(MAX_BATCHES):
            if self._node.database.run(walk_on, WALK_BATCH, view.missing) is None:
                break
            is_walked = True
        if is_walked:
            self._node.view(fresh=True)  # what was read before the walk settles nothing

    def _check(self, view: DiskView) -> None:
        """Decide what files need whose check is due."""

        def check(connection: Connection) -> Checked:
            due[:] = lock_due_checks(connection, CHECK_BATCH, dangers, read_at=view.present)
            return self._node.decide(connection, due, view)

        due: list[int] = []
        for _ in range(MAX_BATCHES):
            dangers = dangers_to_check(sum(disk.planned for disk in view.disks.values()))
            try:
                tasks = self._node.database.run(check).tasks
            except PeerdError:
                raise
            except Exception:  # noqa: BLE001 - of one of them: it is set aside
                tasks = sum(self._check_alone(file_id, view) for file_id in due)
            if tasks:
                self._node.ring()
                view = self._node.view(fresh=True)
            if len(due) < CHECK_BATCH:
                return

    def _check_alone(self, file_id: int, view: DiskView) -> int:
        """Decide what a file needs, or set its check aside, if that fails; return how many tasks were enqueued."""
        try:
            return self._node.database.run(lambda connection: self._node.check(connection, [file_id], view)).tasks
        except PeerdError:
            raise
        except Exception as error:  # noqa: BLE001 - the other files are checked all the same
            described = describe_exception(error)
            self._node.database.run(set_check_aside, file_id, LONGEST_PAUSE, f"its check fails: {described}")
            self._report("a check", f"of file {file_id:016x}: {described}; see peerd files at-risk")
            return 0

    def _rebalance(self, view: DiskView) -> None:
        """Move copies from a disk that is to be rebalanced.

        After a failure half as many files are tried, and so on; one that fails alone is passed over.
        """
        try:
            moved = self._node.database.run(move_on, view, self._node.random, self._moved_at_once)
        except PeerdError:
            raise
        except Exception:
            if self._moved_at_once == 1:
                self._node.database.run(pass_over)
            self._moved_at_once = self._moved_at_once // 2 or FILES_OF_STEP
            raise
        if moved is not None and moved.files:
            self._moved_at_once = FILES_OF_STEP
            self._node.ring()

    def _scrub(self, disk: LocalDisk) -> None:
        """Have the next copies of a disk verified, unless a task still verifies the last ones."""
        every = self._node.options.scrub_every if disk.opened.verify_every is None else disk.opened.verify_every
        if not every:
            return
        due = self._node.database.read(next_to_verify, disk.number, every, MAX_FILES_OF_TASK)
        if self._node.database.run(self._enqueue_scrub, disk, due.file_ids, due.next_after) and due.file_ids:
            self._node.ring()

    def _enqueue_sweep(self, connection: Connection, disk: LocalDisk) -> None:
        """Have a disk swept once a day."""
        known = self._node.view().disks.get(disk.number)
        if known is None:
            return
        body = msgspec.json.encode({"disk": disk.number}).decode()
        key = f"sweep {disk.number}"
        new = NewTask(
            queue=QUEUE,
            name=task_name(SWEEP, known),
            body=body,
            node=known.node,
            priority=LOW_PRIORITY - 5,
            unique_key=key,
            unique_for=SWEEP_EVERY,
        )
        enqueue(connection, new)

    def _enqueue_scrub(
        self, connection: Connection, disk: LocalDisk, file_ids: Sequence[int], after: int | None
    ) -> bool:
        """Enqueue the verification, and go on behind it; whether that was possible."""
        if file_ids:
            known = self._node.view().disks.get(disk.number)
            if known is None:
                return False
            new = storage_task(VERIFY, known, file_ids, LOW_PRIORITY - 5, f"scrub {disk.number}")
            if not enqueue(connection, new).created:
                return False
        scrub_goes_on(connection, disk.number, after)
        return True


def dangers_to_check(planned: int) -> Sequence[int]:
    """Which files are decided about, by their danger, while so many copies are planned.

    >>> list(dangers_to_check(MAX_PLANNED)), list(dangers_to_check(2 * MAX_PLANNED))
    ([1, 9], [9])
    """
    if planned < MAX_PLANNED:
        return DANGERS
    return (MOST_ENDANGERED, DANGER_OF_TOMBSTONE) if planned < 2 * MAX_PLANNED else (DANGER_OF_TOMBSTONE,)
