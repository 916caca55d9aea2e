"""What sending a content in parts asks for, whatever answers: the nodes themselves, or a server that relays to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from peerd.domain.files import StoredFile
from peerd.storage.file_headers import PutOptions


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload that has begun.

    Attributes:
        id: 32 hex digits.
        received: bytes that were durable when it was begun or found.
    """

    id: str
    received: int = 0


@dataclass(frozen=True, slots=True)
class FoundUpload:
    """An upload of a key that has not ended.

    Attributes:
        id: 32 hex digits.
        source: by which its client finds it again.
        received: bytes that are durable.
        is_lost: whether its disk was declared lost, so that nothing can be added to it.
    """

    id: str
    source: str | None
    received: int
    is_lost: bool = False


class UploadRequests(Protocol):
    """Requests about the uploads of one key.

    Where a request fails because the node of the upload does, `SourceFailed` is raised; where the database, or the
    server before the nodes, does not answer, `DatabaseUnavailable`. After both it can be sent again, when it is known
    how many bytes are durable.
    """

    @property
    def path(self) -> str:
        """The bucket and the key."""

    @property
    def options(self) -> PutOptions:
        """What is stored with the content."""

    def check(self, size: int | None) -> None:
        """Refuse what would be refused anyway, before anything is sent.

        Raises:
            InvalidFile, BucketNotFound, FileClassNotFound, QuotaExceeded, FileConditionFailed: it cannot be stored so.
        """

    def of_key(self) -> Sequence[FoundUpload]:
        """The uploads of the key that have not ended, the one with the most bytes first."""

    def begin(self, size: int | None, source: str | None, instead_of: OpenUpload | None = None) -> OpenUpload:
        """Begin an upload on a node that takes it.

        Args:
            size: bytes of the whole, if they are known.
            source: by which it is found again.
            instead_of: an upload whose node is not asked.

        Raises:
            NoNodeTakes: no node does.
            InvalidFile, BucketNotFound, FileClassNotFound, QuotaExceeded, FileConditionFailed: it cannot be stored so.
            PutRefused: a node has refused it for another reason.
        """

    def received(self, upload: OpenUpload) -> int:
        """How many bytes of an upload are durable, by its node. Raises SourceFailed, UploadGone."""

    def send(self, upload: OpenUpload, offset: int, count: int, body: Iterator[bytes]) -> int:
        """Send a part: its bytes, and their BLAKE3; return how many bytes are durable now.

        Args:
            upload: of the part.
            offset: where it begins.
            count: its bytes.
            body: these, and the 32 bytes of their BLAKE3.

        Raises:
            SourceFailed: it can be sent again.
            UploadGone, UploadPositionDiffers, QuotaExceeded, PutRefused: it was refused.
            BytesDiffer: it was damaged on its way.
            DiskTakesNoMore: the disk is full, or has failed.
        """

    def complete(self, upload: OpenUpload, size: int, digest: str) -> StoredFile | None:
        """Make a file of an upload; None: that still runs.

        Args:
            upload: all of whose bytes are durable.
            size: how many these are.
            digest: their BLAKE3, in hex.

        Raises:
            SourceFailed, UploadGone, UploadPositionDiffers, QuotaExceeded, PutRefused, DiskTakesNoMore: as `send`.
            FileConditionFailed: there is a file of the key.
            BytesDiffer: the bytes have another BLAKE3; the upload is aborted.
        """

    def completed(self, upload: OpenUpload) -> StoredFile | None:
        """The version that an upload has become, if another put of the same source has completed it."""

    def abort(self, upload_id: str) -> None:
        """Abort an upload, if it has not ended; its node removes the bytes."""
