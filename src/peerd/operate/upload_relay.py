"""What a server does for a client that puts a content in parts: it asks the node that has the disk, for the actor.

Each call needs the right `write-files`, for the bucket and the key of the upload. An upload of other files is answered
as one that never began.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from peerd.domain.access import Right
from peerd.domain.file_errors import ContentDiffers, UploadGone
from peerd.domain.files import StoredFile
from peerd.operate.file_admission import FileAdmission
from peerd.operate.file_names import parse_file_path
from peerd.operate.operations import BlockingMode, Query
from peerd.storage.file_headers import PutOptions
from peerd.store.files.uploads import find_completed_version, get_resumable

if TYPE_CHECKING:
    from peerd.storage.client import FilesTransfer
    from peerd.storage.uploading.node_uploads import NodeUploads
    from peerd.storage.uploading.upload_requests import FoundUpload, OpenUpload


@dataclass(frozen=True, slots=True)
class RelayedUpload:
    """An upload as its client sees it.

    Attributes:
        id: of it.
        received: bytes that are durable.
        file: that it has become.
    """

    id: str
    received: int
    file: StoredFile | None = None


class UploadRelay(FileAdmission[BlockingMode]):
    """Uploads of the files of an actor, for clients that reach no node. Each call blocks until a node has answered."""

    subject = "files.uploads"

    def of_key(self, path: str) -> Sequence[FoundUpload]:
        """The uploads of a key that have not ended, the one with the most bytes first.

        Args:
            path: of the file: bucket/key.

        Raises:
            NotPermitted: the actor may not write the file.
            InvalidFile, BucketNotFound: there can be none.
        """
        bucket, key = parse_file_path(path)
        self._admit("files.uploads.of_key", Right.WRITE_FILES, bucket, key)
        with self._uploads(bucket, key, PutOptions()) as uploads:
            return uploads.of_key()

    def begin(
        self, path: str, options: PutOptions, *, size: int | None, source: str | None, instead_of: str | None
    ) -> RelayedUpload:
        """Begin an upload.

        Args:
            path: of the file: bucket/key.
            options: what is stored with it.
            size: bytes of the whole, if they are known.
            source: by which its client finds it again.
            instead_of: an upload of the key whose node is not asked, because it does not answer.

        Raises:
            NotPermitted: the actor may not write the file.
            UploadGone: there is no upload to begin this one in the place of.
            PeerdError: it cannot be stored so, or no node takes it.
        """
        bucket, key = parse_file_path(path)
        self._admit("files.uploads.begin", Right.WRITE_FILES, bucket, key)
        with self._uploads(bucket, key, options) as uploads:
            uploads.check(size)
            replaced = None if instead_of is None else uploads.open(instead_of)
            begun = uploads.begin(size, source, replaced)
            return RelayedUpload(begun.id, begun.received)

    def show(self, upload_id: str) -> RelayedUpload:
        """How many bytes of an upload are durable, by the node that has them; or the file that it has become.

        Args:
            upload_id: of the upload.

        Raises:
            NotPermitted: the actor may write no files.
            UploadGone: there is no such upload.
            SourceFailed: its node does not answer.
        """
        self._admit_right("files.uploads.show", Right.WRITE_FILES, {"upload_id": upload_id})
        try:
            with self._opened(upload_id) as (uploads, upload):
                return RelayedUpload(upload_id, uploads.received(upload))
        except UploadGone:
            stored = self._completed(upload_id)
            return RelayedUpload(upload_id, stored.size, stored)

    def send(self, upload_id: str, offset: int, count: int, body: Iterator[bytes]) -> RelayedUpload:
        """Append a part.

        Args:
            upload_id: of the upload.
            offset: where the part begins.
            count: its bytes.
            body: these, and the 32 bytes of their BLAKE3, which the node compares.

        Raises:
            NotPermitted: the actor may write no files.
            UploadGone, UploadPositionDiffers, DiskTakesNoMore, QuotaExceeded, PutRefused: it was refused.
            ContentDiffers: it has another BLAKE3.
            SourceFailed: the node of the upload does not answer.
        """
        self._admit_right("files.uploads.send", Right.WRITE_FILES, {"upload_id": upload_id})
        with self._opened(upload_id) as (uploads, upload):
            return RelayedUpload(upload_id, uploads.send(upload, offset, count, body))

    def complete(self, upload_id: str, size: int, digest: str) -> RelayedUpload:
        """Make a file of an upload; without one in the result, that still runs, and this is called again.

        Args:
            upload_id: of the upload.
            size: bytes of the whole.
            digest: its BLAKE3, in hex.

        Raises:
            NotPermitted: the actor may write no files.
            UploadGone, UploadPositionDiffers, QuotaExceeded, FileConditionFailed, PutRefused: it was refused.
            ContentDiffers: the bytes have another BLAKE3; the upload is aborted.
            SourceFailed: the node of the upload does not answer.
        """
        self._admit_right("files.uploads.complete", Right.WRITE_FILES, {"upload_id": upload_id})
        try:
            with self._opened(upload_id) as (uploads, upload):
                return RelayedUpload(upload_id, size, uploads.complete(upload, size, digest))
        except UploadGone:
            stored = self._completed(upload_id)
        if (stored.size, stored.blake3) != (size, digest):
            problem = f"the upload was completed with {stored.size:,} bytes of BLAKE3 {stored.blake3}"
            raise ContentDiffers(f"{stored.bucket}/{stored.key}", problem)
        return RelayedUpload(upload_id, size, stored)

    def _completed(self, upload_id: str) -> StoredFile:
        """The version that an upload has become. Raises UploadGone if it has become none of the actor's files."""
        stored = self.mode.execute(Query("read", find_completed_version, upload_id))
        if stored is None or not self._actor.covers_files(stored.bucket, stored.key):
            raise UploadGone(upload_id)
        return stored

    @contextmanager
    def _opened(self, upload_id: str) -> Iterator[tuple[NodeUploads, OpenUpload]]:
        """An upload of the actor's files. Raises UploadGone; bytes that differ are an error of their file."""
        found = self.mode.execute(Query("read", get_resumable, upload_id))
        if not self._actor.covers_files(found.bucket, found.key):
            raise UploadGone(upload_id)
        with self._uploads(found.bucket, found.key, PutOptions()) as uploads:
            yield uploads, uploads.open(upload_id)

    @contextmanager
    def _uploads(self, bucket: str, key: str, options: PutOptions) -> Iterator[NodeUploads]:
        self.mode.require_database("files.uploads")
        with cast("FilesTransfer", self._transfer()) as transfer:
            from peerd.storage.uploading.outcomes import BytesDiffer  # noqa: PLC0415 - with the extra `storage` only

            try:
                yield transfer.uploads(bucket, key, options)
            except BytesDiffer as error:
                raise ContentDiffers(f"{bucket}/{key}", str(error)) from error
