"""The part of a content to whose end the parts of an upload are appended, in their order, each durably.

Between two of them it is closed, and perhaps its process has ended. What an upload's row names as durable is kept; what
is behind that is of a part of the upload that was interrupted, and is written anew.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Self

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import ContentHasher, ContentReading
from peerd.storage.disk.errors import ContentMismatch, DiskError
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.linux_calls import reserve_space
from peerd.storage.disk.part_file import _WRITTEN_AT_ONCE, PartFile, _close_unless_useful, _open_locked


def begin_upload_part(disk: DiskFolder, content: ContentId, size: int | None) -> None:
    """Make an empty part, durably, and reserve the space of the whole content if its bytes are known.

    Raises:
        DiskOutOfSpace: there is no space for so many bytes; nothing is left.
        DiskError: it could not be made.
    """
    with PartFile.open(disk, content, size=size) as part:
        try:
            disk.parts.sync()
        except DiskError:
            with contextlib.suppress(DiskError):
                part.discard()
            raise


class AppendedPart(PartFile):
    """A part that is open for its only writer, from the bytes on that are durable.

    Its hasher may have had fewer bytes than are written, after a restart of the process: `hash_rest` reads the others.
    Until then `checked_digest`, and so `publish`, cannot be called.
    """

    def __init__(
        self, disk: DiskFolder, content: ContentId, fd: int, hasher: ContentHasher, size: int | None, written: int
    ) -> None:
        self._written = written
        self._content_hasher = hasher
        super().__init__(disk, content, fd, hasher, size)
        self.resumed = False  # its digest is compared with the client's

    @classmethod
    def resume(
        cls,
        disk: DiskFolder,
        content: ContentId,
        *,
        size: int | None,
        state: Callable[[], tuple[int, ContentHasher | None]],
    ) -> Self:
        """Open a part that was begun.

        Args:
            disk: which has it.
            content: its id.
            size: bytes of the whole content, if they are known.
            state: called when no other writer can change it: how many bytes are durable by the catalogue, and a hasher
                that has had the first ones of them, or all, and belongs to the part from then on. What is behind is
                removed.

        Raises:
            PartInUse: another writer has it open.
            ContentExists: it was published.
            ContentMismatch: it has fewer bytes.
            DiskError: it could not be opened.
            Exception: what ``state`` raises.
        """
        fd = _open_locked(disk, content)
        try:
            durable, hasher = state()
            found = os.fstat(fd).st_size
            if found < durable:
                problem = f"{found} bytes are in the part of an upload, and {durable} were durable"
                raise ContentMismatch(problem, content=str(content))
            if found > durable:
                with disk.steps.change("truncate part", disk.parts.path_of(str(content))):
                    os.ftruncate(fd, durable)  # which releases what was reserved, too
                    reserve_space(fd, size or 0)
        except BaseException:
            _close_unless_useful(disk, content, fd)
            raise
        return cls(disk, content, fd, hasher or ContentHasher(size=size), size, durable)

    @property
    def position(self) -> int:
        """Bytes that are written."""
        return self._written

    @property
    def hasher(self) -> ContentHasher:
        """The hasher of what is written, or of its beginning."""
        return self._content_hasher

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; see `PartFile.write`."""
        if self._linked:
            raise ValueError(f"the part {self.content} may be a content already: nothing is written to it")
        view = memoryview(data).cast("B")
        while view:
            with self.disk.steps.change("write", self._entry):
                written = os.pwrite(self._open_fd(), view, self._written)
            if self._content_hasher.position == self._written:
                self._content_hasher.update(view[:written])
            self._written += written
            view = view[written:]
            if self._written - self._begun >= _WRITTEN_AT_ONCE:
                self.start_writing()

    def hash_rest(self, reading: ContentReading | None = None) -> None:
        """Read what the hasher has not had yet. Raises DiskError, HashingStopped."""
        with self.disk.steps.read("reading", self._entry):
            (reading or ContentReading()).feed(self._open_fd(), self._content_hasher)
