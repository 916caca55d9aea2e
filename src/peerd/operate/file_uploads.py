"""Uploads that have not ended: listed and aborted."""

from __future__ import annotations

from typing import Final

from sqlalchemy.engine import Connection

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted
from peerd.domain.file_errors import InvalidFile, UploadGone
from peerd.domain.quoting import quoted
from peerd.operate import validation
from peerd.operate.file_names import key_text
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.store.audit import upload_state
from peerd.store.files import listing, uploads
from peerd.store.files.buckets import get_bucket
from peerd.store.files.listing import UnfinishedUploads

MAX_PAGE: Final = 1000


class FileUploadOperations(OperationGroup[Mode]):
    """``client.files.uploads``: files of which a part is there, of clients of peerd and of S3."""

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
