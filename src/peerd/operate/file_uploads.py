"""Uploads that have not ended: listed and aborted; and asked about at the nodes, for clients that reach none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy.engine import Connection

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted
from peerd.domain.file_errors import InvalidFile, UploadGone
from peerd.domain.quoting import quoted
from peerd.operate import validation
from peerd.operate.file_admission import FileAdmission
from peerd.operate.file_names import key_text, parse_file_path
from peerd.operate.operations import BlockingMode, Mode, OperationGroup, Query, operation
from peerd.storage.file_headers import PutOptions, PutTarget
from peerd.store.audit import upload_state
from peerd.store.files import listing, uploads
from peerd.store.files.buckets import get_bucket
from peerd.store.files.listing import UnfinishedUploads

if TYPE_CHECKING:
    from peerd.storage.upstream import Upstream

T = TypeVar("T")
MAX_PAGE: Final = 1000


class FileUploadOperations(OperationGroup[Mode]):
    """``client.files.uploads``: files that were put in part, by clients of peerd and of S3."""

    subject = "files.uploads"

    @operation(needs=Right.READ_FILES, in_queues=True)
    def list(
        self, bucket: str | None = None, prefix: str = "", *, after: str = "", limit: int = 100
    ) -> Query[UnfinishedUploads]:
        """A page of the uploads that have not ended, in the order of their ids.

        Args:
            bucket: only its uploads; by default those of all.
            prefix: what the keys begin with, in a bucket.
            after: ``next_after`` of the page before.
            limit: uploads at the most, 1 to 1,000.

        Raises:
            BucketNotFound: there is no such bucket.
        """
        name, begin = validation.text_or_none("bucket", bucket), key_text("prefix", prefix)
        if name is None and begin:
            raise InvalidFile("prefix", "it is of keys in a bucket, and no bucket is given")
        if name is None and self._actor.file_scopes is not None:
            raise NotPermitted(self._actor.name, "files.uploads.list", "the actor is restricted to some files")
        if name is not None and not self._actor.covers_files(name, begin):
            problem = f"{quoted(f'{name}/{begin}')} is none of its files"
            raise NotPermitted(self._actor.name, "files.uploads.list", problem)
        most = validation.number("limit", limit, 1, MAX_PAGE)
        return Query("read", _list, name, begin, key_text("after", after), most)

    @operation(needs=Right.WRITE_FILES, in_queues=True)
    def abort(self, upload_id: str) -> Query[None]:
        """Abort an upload; its node removes what it has of it, soon.

        Args:
            upload_id: of the upload, as `list` has it.

        Raises:
            UploadGone: it was completed or aborted, or is none of the actor's files.
        """
        text = validation.text("upload_id", upload_id)
        return Query("run", _abort, self._actor, text).acting_on("upload", text, upload_state, text)


def _list(connection: Connection, name: str | None, prefix: str, after: str, limit: int) -> UnfinishedUploads:
    bucket = None if name is None else get_bucket(connection, name)
    return listing.list_unfinished(connection, bucket, prefix, after, limit)


def _abort(connection: Connection, actor: Actor, upload_id: str) -> None:
    found = listing.find_unfinished(connection, upload_id)
    if found is None or not actor.covers_files(*found):
        raise UploadGone(upload_id)
    uploads.mark_aborted(connection, upload_id)


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
            UploadGone: there is no such upload, or its file is not one of the actor's.
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
        upload = uploads.get_resumable(connection, upload_id)
    except UploadGone:
        stored = uploads.find_completed_version(connection, upload_id)
        if stored is None:
            raise
        return stored.bucket, stored.key
    return upload.bucket, upload.key
