"""The folder contents/ of a disk: two levels of folders, and how a name in them becomes durable.

A folder of the second level is removed with its last content, so a publisher may find it gone between opening it and
linking into it, and makes it again. Folders of the first level stay: there is one for each 70 minutes in which a
content was made.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final, Self

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.held_folder import HeldFolder

_STAYS: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
"""Why a folder is not removed: it has another content (two numbers, by file system), or another thread removed it."""


class ContentsFolder:
    """The contents of a disk. Several threads may use it."""

    def __init__(self, folder: HeldFolder) -> None:
        self.folder = folder
        self._durable_folders: set[str] = set()

    def folder_of(self, content: ContentId) -> HeldFolder | None:
        """Hold the folder in which a content is; None when there is none."""
        first_name, second_name = content.folders
        with self.folder.enter(first_name) or contextlib.nullcontext() as first:
            return first.enter(second_name) if first else None

    def status(self, content: ContentId) -> os.stat_result | None:
        """The status of a content; None when there is none. Raises UnexpectedEntry if it is no regular file."""
        with self.folder_of(content) or contextlib.nullcontext() as folder:
            return folder.file_status(str(content)) if folder else None

    def open(self, content: ContentId) -> int | None:
        """A descriptor for reading; None when there is none. Raises UnexpectedEntry if it is no regular file."""
        with self.folder_of(content) or contextlib.nullcontext() as folder:
            return folder.open(str(content)) if folder else None

    def link(self, fd: int, content: ContentId) -> bool:
        """Give an open file its name among the contents; whether there was nothing of that name. It is not durable yet.

        The file is linked by its descriptor: it is the one that was written, also if another has its name in parts/.
        """
        with self.last_folder() as last:
            return last.link(fd, content)

    def last_folder(self) -> LastFolder:
        """Holds one folder of contents after another, closed at the end of ``with``."""
        return LastFolder(self)

    def sync(self, contents: Iterable[ContentId]) -> None:
        """Make the names of contents durable: one fsync for each folder."""
        folders = sorted(one.folders for one in {content.folder_number: content for content in contents}.values())
        for first_name in sorted({first_name for first_name, _ in folders}):
            with self.folder.enter(first_name) or contextlib.nullcontext() as first:
                if first is None:
                    continue
                for second_name in (second for of, second in folders if of == first_name):
                    with first.enter(second_name) or contextlib.nullcontext() as second:
                        if second:
                            second.sync()
                # Always: another process may have made the folder of the second level, and was killed before its fsync.
                first.sync()
        new = {first_name for first_name, _ in folders} - self._durable_folders
        if new:
            self.folder.sync()
            self._durable_folders |= new

    def remove_if_empty(self, content: ContentId) -> None:
        """Remove the folder in which a content was, if it was the last."""
        first_name, second_name = content.folders
        with self.folder.enter(first_name) or contextlib.nullcontext() as first:
            if first:
                with first.steps.change("remove folder", first.path_of(second_name)), _unless_it_stays():
                    os.rmdir(second_name, dir_fd=first.fd)

    def folder_to_fill(self, content: ContentId) -> HeldFolder:
        """Hold the folder in which a content is to be; it is made if there is none."""
        first_name, second_name = content.folders
        with closing(self.folder.enter_or_make(first_name)) as first:
            return first.enter_or_make(second_name)


class LastFolder:
    """Holds the folder of the content that was asked for last: contents in the order of their ids share one.

    What is held may have been removed since, with its last content. For one thread.
    """

    def __init__(self, contents: ContentsFolder) -> None:
        self._contents = contents
        self._number = -1
        self._held: HeldFolder | None = None

    def status(self, content: ContentId) -> os.stat_result | None:
        """See the method of `ContentsFolder`."""
        folder = self._find(content)
        return folder.file_status(str(content)) if folder else None

    def open(self, content: ContentId) -> int | None:
        """See the method of `ContentsFolder`."""
        folder = self._find(content)
        return folder.open(str(content)) if folder else None

    def link(self, fd: int, content: ContentId) -> bool:
        """See the method of `ContentsFolder`."""
        source, name = f"/proc/self/fd/{fd}", str(content)
        while True:
            folder = self._find_or_make(content)
            with folder.steps.change("link", folder.path_of(name)):
                try:
                    os.link(source, name, dst_dir_fd=folder.fd)
                    return True
                except FileExistsError:
                    return False
                except FileNotFoundError:
                    # The folder was removed with its last content since it was opened: unless the file has no name.
                    if os.stat(source).st_nlink == 0:  # noqa: PTH116 - no path but a descriptor
                        raise
                    self.close()

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
        self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, content: ContentId) -> HeldFolder | None:
        if self._held is None or self._number != content.folder_number:
            self.close()
            self._number, self._held = content.folder_number, self._contents.folder_of(content)
        return self._held

    def _find_or_make(self, content: ContentId) -> HeldFolder:
        folder = self._find(content)
        if folder is None:
            folder = self._held = self._contents.folder_to_fill(content)
        return folder


@contextlib.contextmanager
def _unless_it_stays() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _STAYS:
            raise
