"""Small contents that are written as parts, and published together."""

from __future__ import annotations

import contextlib
import os

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import Digest
from peerd.storage.disk.errors import DiskError
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.held_folder import FOLDER
from peerd.storage.disk.open_disk import SmallContents
from peerd.storage.disk.part_file import PartFile, publish_many


class SmallParts(SmallContents):
    """Small contents of a folder of this node, each an open part.

    Args:
        disk: where they are written.
    """

    def __init__(self, disk: DiskFolder) -> None:
        self._disk = disk
        self._parts: list[PartFile] = []
        self._last = disk.contents.last_folder()
        with disk.steps.read("opening", disk.parts.entry):
            # Before the first part is written: what fails from now on is reported to this descriptor.
            self._opened_before = os.open(".", FOLDER, dir_fd=disk.parts.fd)

    def write(self, content: ContentId, data: bytes | memoryview, expected: Digest) -> None:
        part = PartFile.open_new(self._disk, content, expected, self._last)
        try:
            part.write(data)
            part.checked_digest(None)
        except BaseException:
            with contextlib.suppress(DiskError):
                part.discard()
            raise
        self._parts.append(part)

    def publish(self) -> list[ContentId]:
        publish_many([(part, None) for part in self._parts], opened_before=self._opened_before)
        published = [part.content for part in self._parts]
        self._parts.clear()
        return published

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._parts.clear()
        self._last.close()
        if self._opened_before >= 0:
            os.close(self._opened_before)
            self._opened_before = -1
