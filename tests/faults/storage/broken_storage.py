"""Storage with one of its guarantees taken out: what the audit must catch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from peerd.domain.files import Copy, CopyState, StoredFile
from peerd.storage import duties, receiving
from peerd.storage.awaiting import AwaitedCopies, CopiesWanted, Steps
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import ContentVerifier, Digest
from peerd.storage.disk.errors import ContentMissing
from peerd.storage.disk.folder_disk import FileContent
from peerd.storage.disk.open_disk import LocalRange, Piece
from peerd.storage.disk.part_file import PartFile
from peerd.storage.local_disks import LocalDisk
from peerd.storage.placement import decision
from peerd.storage.placement.brake import DiskView
from peerd.storage.placement.decision import Decision, FileHealth
from peerd.storage.put_groups import EnteredPut
from peerd.storage.receiving import Received, Receiving
from peerd.store.files.buckets import get_bucket_and_class
from peerd.store.files.copies import Content
from peerd.store.files.publishing import FilePut

SetAttribute = Callable[[Any, str, Any], None]
"""`setattr`, or that of a monkeypatch."""


def enter_before_publishing(patch: SetAttribute) -> None:
    """The row of a file is written before its content is published."""

    def finish(self: Receiving, received: Received, also: Callable[[Any], object] | None = None) -> Steps[StoredFile]:
        yield from ()
        bucket, kept = self._node.database.read(get_bucket_and_class, received.bucket, received.class_name)
        digest = self._part.checked_digest(None)
        new = receiving._new_file(self._part, self._disk, digest, received, kept.name)
        put = FilePut(bucket, new, received.condition)
        file = self._node.puts.publish(EnteredPut(put=put, file_class=kept, also=also))
        self._part.publish()
        self._is_content = True
        return file

    patch(Receiving, "finish", finish)


def copy_unverified(patch: SetAttribute) -> None:
    """A copy is stored if it has the size that it should have."""

    def checked_digest(self: PartFile, expected: Digest | None) -> Digest:
        if expected is not None:
            assert expected.size == self.position
            return expected
        if isinstance(self._hasher, ContentVerifier):
            assert self._hasher.expected.size == self.position
            return self._hasher.expected
        digest = self._hasher.digest()
        assert digest is not None
        return digest

    patch(PartFile, "checked_digest", checked_digest)


def remove_unchecked(patch: SetAttribute) -> None:
    """A copy counts as soon as its row says that it is stored, although its disk was away meanwhile."""

    def counts(copy: Copy, view: DiskView) -> bool:
        return copy.state is CopyState.STORED and copy.disk_id in view.disks

    patch(decision, "counts", counts)


def delete_tombstones_first(patch: SetAttribute) -> None:
    """The row of a deleted file is deleted before its copies are."""

    def decide_removal(copies: Sequence[Copy], view: DiskView) -> Decision:
        return Decision(health=FileHealth.GONE, forget=tuple(copy.disk_id for copy in copies), is_settled=True)

    patch(decision, "_decide_removal", decide_removal)


def trust_times(patch: SetAttribute) -> None:
    """A verification reads no content whose size and time have not changed."""
    original = duties.Duties._is_whole
    seen: dict[tuple[int, int], tuple[int, int]] = {}

    def is_whole(self: duties.Duties, local: LocalDisk, content: Content, stop: Any) -> bool:
        try:
            with local.opened.open(ContentId(content.id)) as opened:
                assert isinstance(opened, FileContent)
                status = os.fstat(opened.fd)
        except ContentMissing:
            return False
        now = status.st_size, status.st_mtime_ns
        if seen.setdefault((local.number, content.id), now) == now and status.st_size == content.size:
            return True
        return original(self, local, content, stop)

    patch(duties.Duties, "_is_whole", is_whole)


def send_unverified(patch: SetAttribute) -> None:
    """A chunk of a disk is sent as it is."""

    def verified_piece(self: FileContent, expected: Digest, index: int, start: int, stop: int) -> Piece:
        return LocalRange(self.fd, start, stop - start)

    patch(FileContent, "verified_piece", verified_piece)


def acknowledge_early(patch: SetAttribute) -> None:
    """A put is acknowledged when one copy is stored, although its class wants more."""

    async def wait(self: AwaitedCopies, wanted: CopiesWanted) -> None:
        """Wait for nothing."""

    patch(AwaitedCopies, "_wait", wait)


VARIANTS: Final[Mapping[str, Callable[[SetAttribute], None]]] = {
    "row before file": enter_before_publishing,
    "copy without verification": copy_unverified,
    "removal without a look at the others": remove_unchecked,
    "tombstones first": delete_tombstones_first,
    "verification by time": trust_times,
    "reading without verification": send_unverified,
    "acknowledged too early": acknowledge_early,
}
