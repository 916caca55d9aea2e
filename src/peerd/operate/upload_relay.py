"""What a server does for a client that puts a content in parts: it asks the node that has the disk, for the actor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.engine import Connection

from peerd.domain.access import Right
from peerd.domain.file_errors import UploadGone
from peerd.operate.file_admission import FileAdmission
from peerd.operate.file_names import parse_file_path
from peerd.operate.operations import BlockingMode, Query
from peerd.storage.file_headers import PutOptions, PutTarget
from peerd.store.files.uploads import find_completed_version, get_resumable

if TYPE_CHECKING:
    from peerd.storage.upstream import Upstream

T = TypeVar("T")


class UploadRelay(FileAdmission[BlockingMode]):
    """Uploads of the files of an actor, for clients that reach no node. Requests block until a node has answered.

    Each use needs the right `write-files`, for the bucket and the key of the upload.
    """

    subject = "files.uploads"

    def ask_of_path(self, use: str, path: str, options: PutOptions, ask: Callable[[Upstream, PutTarget], T]) -> T:
        """Ask the nodes about uploads of a file.

        Args:
            use: what for; in entries of the audit log.
            path: of the file: bucket/key.
            options: what is stored with it.
            ask: called with the nodes, and with where uploads of the file are put.

        Raises:
            NotPermitted: the actor may not write the file.
            InvalidFile: there can be none.
        """
        bucket, key = parse_file_path(path)
        self._admit(f"files.uploads.{use}", Right.WRITE_FILES, bucket, key)
        return self._ask(PutTarget(bucket, key, options), ask)

    def ask_of_upload(self, use: str, upload_id: str, ask: Callable[[Upstream, PutTarget], T]) -> T:
        """Ask the nodes about an upload.

        Args:
            use: what for; in entries of the audit log.
            upload_id: of the upload.
            ask: called with the nodes, and with where the upload is put.

        Raises:
            NotPermitted: the actor may write no files.
            UploadGone: there is no such upload; that of a file of others is answered as one that never began.
        """
        self._admit_right(f"files.uploads.{use}", Right.WRITE_FILES, {"upload_id": upload_id})
        bucket, key = self.mode.execute(Query("read", _place_of, upload_id))
        if not self._actor.covers_files(bucket, key):
            raise UploadGone(upload_id)
        return self._ask(PutTarget(bucket, key), ask)

    def _ask(self, target: PutTarget, ask: Callable[[Upstream, PutTarget], T]) -> T:
        self.mode.require_database("files.uploads")
        with self._transfer() as transfer:
            return ask(transfer.upstream, target)


def _place_of(connection: Connection, upload_id: str) -> tuple[str, str]:
    """The bucket and the key of an upload, also of one that was completed. Raises UploadGone."""
    try:
        upload = get_resumable(connection, upload_id)
    except UploadGone:
        stored = find_completed_version(connection, upload_id)
        if stored is None:
            raise
        return stored.bucket, stored.key
    return upload.bucket, upload.key
