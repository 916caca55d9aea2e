"""Group commit of puts: versions that wait at the same time become current in one transaction.

A thread that finds no group under way makes one of those that wait, up to `MAX_PUTS`, and again until its own was
among them. So a put alone waits for no other. The statements and the commit, which waits for the disk of the database,
are shared by many. Where a statement fails in another way than by a deadlock, after which the whole transaction is
repeated, each put of the group gets a transaction of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import DatabaseBusy, PeerdError
from peerd.domain.files import FileClass, StoredFile
from peerd.storage.checking import NewFileToCheck
from peerd.storage.placement.brake import DiskView
from peerd.store.audit import NewAuditEntry, write_entries
from peerd.store.connection.database import Database
from peerd.store.files.publishing import MAX_PUTS, FilePut, PublishedPut, publish_many
from peerd.store.files.versions import PUBLISH_TRIES

Entry = Callable[[StoredFile | None, StoredFile], NewAuditEntry]
"""Makes the entry of the audit log from the version that was current before, if there was one, and the one that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredPut:
    """A version whose content is durable, and what is entered with it.

    Attributes:
        put: the version.
        file_class: how it is kept.
        entry: of the audit log; not called for a repetition after a commit whose reply was lost.
        also: called in the transaction, which is then of this put alone; its errors are raised.
    """

    put: FilePut
    file_class: FileClass
    entry: Entry | None = None
    also: Callable[[Connection], object] | None = None


@dataclass(slots=True, eq=False)
class WaitingPut:
    """A put, and what became of it: the file or an error."""

    entered: EnteredPut
    outcome: StoredFile | BaseException | None = None


class PutConflict(Exception):
    """A put of the same new key by another node was faster: this one is done again."""


class PutGroups:
    """Makes versions current; thread-safe. A put waits for the transaction of the group before its own.

    Args:
        database: with the catalogue.
        view: the disks as decisions see them.
        check: decides what files with checks need now, in the transaction.
        check_new: the same of new files.
    """

    def __init__(
        self,
        database: Database,
        view: Callable[[], DiskView],
        check: Callable[[Connection, Sequence[int], DiskView], object],
        check_new: Callable[[Connection, Sequence[NewFileToCheck], DiskView], object],
    ) -> None:
        self._database = database
        self._view = view
        self._check = check
        self._check_new = check_new
        self._waiting: list[WaitingPut] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def publish(self, entered: EnteredPut) -> StoredFile:
        """Make a version current, and have it checked. Again with the same id, it does nothing.

        Raises:
            InvalidFile, FileMissing, QuotaExceeded, FileConditionFailed: as `peerd.store.files.publishing`.
            DatabaseBusy: other puts of the same new key were faster again and again.
        """
        for _ in range(PUBLISH_TRIES):
            put = WaitingPut(entered)
            with self._lock:
                self._waiting.append(put)
            with self._turn:
                while put.outcome is None:
                    self._publish_waiting()
            if isinstance(put.outcome, StoredFile):
                return put.outcome
            assert put.outcome is not None
            if not isinstance(put.outcome, PutConflict):
                raise put.outcome
        raise DatabaseBusy("other puts of the same key were faster", 0.0)

    def _publish_waiting(self) -> None:
        with self._lock:
            # In the order of keys: two nodes lock those that both of them put in the same order.
            group = sorted(self._waiting[:MAX_PUTS], key=_order)
            del self._waiting[:MAX_PUTS]
        try:
            view = self._view()
            together = [put for put in group if put.entered.also is None]
            alone = [put for put in group if put.entered.also is not None]
            try:
                if together:
                    self._publish_together(together, view)
            except PeerdError:
                raise  # of the database, for all of them
            except Exception:  # noqa: BLE001 - of one of them: it is raised by the put that it is of
                alone += together
            for put in alone:
                self._publish_alone(put, view)
        except BaseException as error:  # noqa: BLE001 - each put of the group raises it
            for put in group:
                put.outcome = put.outcome or error

    def _publish_together(self, group: Sequence[WaitingPut], view: DiskView) -> None:
        entered = [put.entered for put in group]
        for put, outcome in zip(group, self._database.run(self._publish_group, entered, view), strict=True):
            put.outcome = outcome

    def _publish_alone(self, put: WaitingPut, view: DiskView) -> None:
        try:
            self._publish_together([put], view)
        except IntegrityError as error:
            put.outcome = PutConflict(str(error))
        except Exception as error:  # noqa: BLE001 - it is raised by the put that it is of
            put.outcome = error

    def _publish_group(
        self, connection: Connection, group: Sequence[EnteredPut], view: DiskView
    ) -> list[StoredFile | PeerdError]:
        outcomes = publish_many(connection, [entered.put for entered in group])
        pairs = zip(group, outcomes, strict=True)
        done = [(one, outcome) for one, outcome in pairs if isinstance(outcome, PublishedPut) and outcome.is_done]
        write_entries(
            connection,
            [one.entry(outcome.replaced, outcome.current) for one, outcome in done if one.entry is not None],
        )
        for one, _ in done:
            if one.also is not None:
                one.also(connection)
        new_files = [_to_check(one, outcome.current) for one, outcome in done if not outcome.was_staged]
        if new_files:
            self._check_new(connection, new_files, view)
        staged = [outcome.current.id for _, outcome in done if outcome.was_staged]
        if staged:
            self._check(connection, staged, view)
        return [outcome.current if isinstance(outcome, PublishedPut) else outcome for outcome in outcomes]


def _order(put: WaitingPut) -> tuple[int, str, int]:
    new = put.entered.put.new
    return put.entered.put.bucket.id, new.key, new.id


def _to_check(entered: EnteredPut, current: StoredFile) -> NewFileToCheck:
    needs = entered.file_class.needs(current.size)
    disk_id = entered.put.new.disk_id
    return NewFileToCheck(id=current.id, needs=needs, disk_id=disk_id, entered_at=current.created_at)
