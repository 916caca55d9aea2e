"""Group commit of puts: versions that wait at the same time become current in one transaction.

A thread that finds no group under way makes one of all that wait, and its own is always among them. So a put alone
waits for no other. The commit of the database, which waits for its disk, is shared by many small ones. In its group
each put has a savepoint, so that it succeeds or fails alone. Where a statement of one fails in another way than by a
deadlock, after which the whole transaction is repeated, each put of the group gets a transaction of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from peerd.domain.errors import DatabaseBusy
from peerd.domain.files import StoredFile
from peerd.storage.placement.brake import DiskView
from peerd.store.connection.database import Database
from peerd.store.files.buckets import Bucket
from peerd.store.files.versions import PUBLISH_TRIES, Condition, NewFile, PublishConflict, Published, publish


@dataclass(slots=True, eq=False)
class WaitingPut:
    """A version whose content is durable, and what became of it: the file or an error."""

    bucket: Bucket
    new: NewFile
    condition: Condition
    published: Published | None
    outcome: StoredFile | BaseException | None = None


class PutGroups:
    """Makes versions current; thread-safe.

    Args:
        database: with the catalogue.
        view: the disks as decisions see them.
        check: decides what files need now, in the transaction.
    """

    def __init__(
        self,
        database: Database,
        view: Callable[[], DiskView],
        check: Callable[[Connection, Sequence[int], DiskView], object],
    ) -> None:
        self._database = database
        self._view = view
        self._check = check
        self._waiting: list[WaitingPut] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def publish(
        self, bucket: Bucket, new: NewFile, condition: Condition, published: Published | None = None
    ) -> StoredFile:
        """Make a version current, and have it checked. Again with the same id, it does nothing.

        Args:
            bucket: of the file.
            new: the version, whose content is stored.
            condition: that must hold.
            published: called in the transaction when the version becomes current; its errors are raised.

        Raises:
            InvalidFile, BucketNotFound, QuotaExceeded, FileConditionFailed: as `peerd.store.files.versions.publish`.
            DatabaseBusy: other puts of the same new key were faster again and again.
        """
        for _ in range(PUBLISH_TRIES):
            put = WaitingPut(bucket, new, condition, published)
            with self._lock:
                self._waiting.append(put)
            with self._turn:
                if put.outcome is None:
                    self._publish_waiting()
            if isinstance(put.outcome, StoredFile):
                return put.outcome
            assert put.outcome is not None
            if not isinstance(put.outcome, PublishConflict):
                raise put.outcome
        raise DatabaseBusy("other puts of the same key were faster", 0.0)

    def _publish_waiting(self) -> None:
        with self._lock:
            # In the order of keys: two nodes lock those that both of them put in the same order.
            group = sorted(self._waiting, key=lambda put: (put.bucket.id, put.new.key, put.new.id))
            self._waiting.clear()
        try:
            view = self._view()
            try:
                self._publish_together(group, view)
            except SQLAlchemyError:
                for put in group:
                    self._publish_alone(put, view)
        except BaseException as error:
            for put in group:
                put.outcome = put.outcome or error
            raise

    def _publish_together(self, group: Sequence[WaitingPut], view: DiskView) -> None:
        for put, outcome in zip(group, self._database.run(self._publish_group, group, view), strict=True):
            put.outcome = outcome

    def _publish_alone(self, put: WaitingPut, view: DiskView) -> None:
        try:
            self._publish_together([put], view)
        except Exception as error:  # noqa: BLE001 - it is raised by the put that it is of
            put.outcome = error

    def _publish_group(
        self, connection: Connection, group: Sequence[WaitingPut], view: DiskView
    ) -> list[StoredFile | Exception]:
        outcomes: list[StoredFile | Exception] = []
        for put in group:
            savepoint = connection.begin_nested()
            try:
                outcomes.append(publish(connection, put.bucket, put.new, put.condition, put.published))
            except SQLAlchemyError:
                raise  # the whole transaction is repeated, or each put gets one of its own
            except Exception as error:  # noqa: BLE001 - it is raised by the put that it is of
                savepoint.rollback()
                outcomes.append(error)
            else:
                savepoint.commit()
        self._check(connection, [one.id for one in outcomes if isinstance(one, StoredFile)], view)
        return outcomes
