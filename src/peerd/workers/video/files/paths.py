"""Resolves the names in tasks to files below the media directory, never outside it.

A name is followed from the root part by part, each by the descriptor of the folder before it. Links are followed only
below the root; exchanging a folder for a link meanwhile leads nowhere else. ffmpeg never gets these names but the open
file, so ``-x.mp4``, ``%d.mp4``, ``http:x.mp4`` or a playlist's sibling mean nothing to it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Self

from peerd.workers.video.errors import (
    DiskFull,
    OutputExists,
    PathRefused,
    PublishFailed,
    SourceEmpty,
    SourceMissing,
    SourceUnavailable,
)
from peerd.workers.video.files.descriptors import FileDescriptor, FolderDescriptor, identity_of

_MAX_NAME_BYTES = 255  # bytes; NAME_MAX of Linux's file systems
_MAX_PATH_BYTES = 1024  # bytes; less than PATH_MAX, so that errors can quote it
_MAX_LINKS = 40  # as Linux itself has it
_OUTSIDE_ROOT = "a link leads out of the media directory"
_BELOW_ROOT = "name a file below the media directory"
_READABLE = "name a regular file that the worker's user may read"
_REFUSED_BY_SYSTEM = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.ENODEV}
"""Permanent errors of the operating system; others may go away."""


class LinkRefused(Exception):
    pass


class NamedEntry:
    """A name in a folder that is held, whether it exists or not; ``parts`` lead to it from the root without links."""

    def __init__(self, directory: MediaDirectory, folder: FolderDescriptor, parts: Sequence[str], name: str) -> None:
        self.folder = folder
        self.name = name
        self.parts = [*parts, *([name] if name else [])]
        self._directory = directory

    @property
    def relative(self) -> str:
        """The name from the root, as tasks and results write it."""
        return "/".join(self.parts)

    def look_up(self) -> os.stat_result:
        """Return its status. Raises FileNotFoundError."""
        status = self.folder.look_up(self.name) if self.name else self.folder.status
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name)
        return status

    def folder_is_in_place(self) -> bool:
        """Whether the names above it still lead to the folder that is held."""
        try:
            with self._directory.follow(self.parts, to_the_end=False) as now:
                return now.folder.identity == self.folder.identity
        except (OSError, LinkRefused):
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.close()


class SourceFile(FileDescriptor):
    """An open source, and the name that it was opened by."""

    def __init__(self, fd: int, directory: MediaDirectory, parts: Sequence[str]) -> None:
        super().__init__(fd)
        self._directory = directory
        self._parts = parts
        self._opened = self.status

    @property
    def has_changed(self) -> bool:
        """Whether it was written since it was opened, or its name leads to another file."""
        opened, now = self._opened, self.status
        was_written = (now.st_size, now.st_mtime_ns) != (opened.st_size, opened.st_mtime_ns)
        return was_written or not self._directory.leads_to(self._parts, identity_of(now))


class MediaDirectory:
    """The media root. ``root`` must be a resolved, existing directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open_source(self, name: str) -> SourceFile:
        """Open an existing, regular, non-empty file below the root.

        Raises PathRefused, SourceEmpty, SourceMissing, SourceUnavailable.
        """
        parts = self._parts_below_root(name, role="source")
        try:
            source = self._open(parts, name)
        except (FileNotFoundError, NotADirectoryError):
            raise SourceMissing(source=name, directory=self.root) from None
        except LinkRefused as error:
            raise PathRefused(name=name, role="source", reason=str(error), remedy=_BELOW_ROOT) from None
        except OSError as error:
            if error.errno not in _REFUSED_BY_SYSTEM:
                raise SourceUnavailable(source=name, reason=error.strerror) from error
            reason = f"it cannot be opened ({error.strerror})"
            raise PathRefused(name=name, role="source", reason=reason, remedy=_READABLE) from error
        if source.status.st_size == 0:
            source.close()
            raise SourceEmpty(source=name)
        return source

    def resolve_output(self, name: str | None, source: str, ending: str) -> NamedEntry:
        """Return where an output may be written, and make its folder.

        ``name``: by default the source's with ``ending``; it must have the suffix of ``ending``.

        Raises PathRefused, DiskFull, PublishFailed.
        """
        suffix = PurePath(ending).suffix
        if name:
            return self._resolve_output(name, suffix)
        try:
            return self._resolve_output(default_output(source, ending), suffix)
        except PathRefused as error:
            raise PathRefused(**error.data | {"role": "default output", "remedy": "name one with output="}) from error

    def check_output(self, target: NamedEntry, source: SourceFile, *, may_exist: bool) -> None:
        """Refuse the source itself as output, and another file of its name unless ``may_exist``.

        Raises PathRefused, OutputExists.
        """
        if self.leads_to(target.parts, source.identity):
            reason, remedy = "it is the source itself", "name another output"
            raise PathRefused(name=target.relative, role="output", reason=reason, remedy=remedy)
        if not may_exist and target.folder.look_up(target.name) is not None:
            raise OutputExists(output=target.relative)

    def follow(self, parts: Sequence[str], *, to_the_end: bool = True, make: bool = False) -> NamedEntry:
        """Follow a name from the root, and return its last part with the folder that it lies in.

        ``to_the_end``: a link of the last part is followed too. ``make``: folders on the way are made.

        Raises OSError, LinkRefused.
        """
        todo, done, links = deque(parts), list[str](), 0
        folder = FolderDescriptor.at(self.root)
        try:
            while todo:
                part = todo.popleft()
                if part == "..":
                    if not done:
                        raise LinkRefused(_OUTSIDE_ROOT)
                    done.pop()
                    folder = _replace_folder(folder, self._reopen(done))
                elif (todo or to_the_end) and (target := folder.link_target(part)) is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise LinkRefused("it goes through too many links")
                    if target.startswith("/"):
                        target, done = self._from_root(target), []
                        folder = _replace_folder(folder, FolderDescriptor.at(self.root))
                    todo.extendleft(reversed([each for each in target.split("/") if each not in ("", ".")]))
                elif todo:
                    folder = _replace_folder(folder, folder.enter(part, make=0o777 if make else None))
                    done.append(part)
                else:
                    return NamedEntry(self, folder, done, part)
        except BaseException:
            folder.close()
            raise
        return NamedEntry(self, folder, done, "")

    def leads_to(self, parts: Sequence[str], identity: tuple[int, int]) -> bool:
        """Whether a name leads to this file, by links too."""
        try:
            with self.follow(parts) as entry:
                return identity_of(entry.look_up()) == identity
        except (OSError, LinkRefused):
            return False

    def _resolve_output(self, name: str, suffix: str) -> NamedEntry:
        parts = self._parts_below_root(name, role="output")
        refused = partial(PathRefused, name=name, role="output")
        if PurePath(parts[-1]).suffix.lower() != suffix:
            raise refused(reason=f"its name does not end in {suffix}", remedy=f"end it in {suffix}")
        if any(part.startswith(".") for part in parts):
            raise refused(reason="hidden names are kept for work in progress", remedy="use names without a leading dot")
        if len(os.fsencode(parts[-1])) > _MAX_NAME_BYTES:
            raise refused(reason=f"its name has more than {_MAX_NAME_BYTES} bytes", remedy="use a shorter name")
        try:
            target = self.follow(parts, to_the_end=False, make=True)
        except LinkRefused as error:
            raise refused(reason=str(error), remedy=_BELOW_ROOT) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(directory=self.root) from error
            reason = f"its folder cannot be made ({error.strerror})"
            if error.errno in _REFUSED_BY_SYSTEM | {errno.ENOTDIR}:
                raise refused(reason=reason, remedy="name a folder in which the worker's user may write") from error
            raise PublishFailed(output=name, reason=reason) from error
        status = target.folder.look_up(target.name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            target.folder.close()
            raise refused(reason="it is a folder", remedy="name a file in it")
        return target

    def _open(self, parts: Sequence[str], name: str) -> SourceFile:
        with self.follow(parts) as entry:
            if not stat.S_ISREG(entry.look_up().st_mode):  # opening a device can have effects
                raise PathRefused(name=name, role="source", reason="it is not a regular file", remedy=_READABLE)
            source = SourceFile(entry.folder.open(entry.name).fd, self, parts)
        if not stat.S_ISREG(source.status.st_mode):
            source.close()
            raise PathRefused(name=name, role="source", reason="it is not a regular file", remedy=_READABLE)
        return source

    def _reopen(self, parts: Sequence[str]) -> FolderDescriptor:
        """Hold a folder that was found before; a part that is a link by now was exchanged, and is refused."""
        folder = FolderDescriptor.at(self.root)
        for part in parts:
            with folder:
                folder = folder.enter(part)
        return folder

    def _from_root(self, target: str) -> str:
        """Return a link's absolute target relative to the root, as text: each of its parts is followed and checked."""
        real = Path(os.path.realpath(target))
        if not real.is_relative_to(self.root):
            raise LinkRefused(_OUTSIDE_ROOT)
        return str(real.relative_to(self.root))

    def _parts_below_root(self, name: str, role: str) -> list[str]:
        fault = _find_fault(name, role)
        if fault is not None:
            shown = name if len(name) <= _MAX_NAME_BYTES else f"{name[:_MAX_NAME_BYTES]}…"
            raise PathRefused(name=shown, role=role, reason=fault[0], remedy=fault[1])
        path = Path(os.path.normpath(self.root / name))
        if path == self.root or not path.is_relative_to(self.root):
            raise PathRefused(name=name, role=role, reason="it is outside the media directory", remedy=_BELOW_ROOT)
        return list(path.relative_to(self.root).parts)


def default_output(source: str, ending: str) -> str:
    """Name the output after its source, beside it.

    >>> default_output("in/clip.mov", "-720p.mp4")
    'in/clip.mov-720p.mp4'
    """
    path = PurePath(source)
    return str(path.with_name(path.name.lstrip(".") + ending))


def _replace_folder(before: FolderDescriptor, after: FolderDescriptor) -> FolderDescriptor:
    before.close()
    return after


def _find_fault(name: str, role: str) -> tuple[str, str] | None:
    """Return why a name cannot be used, and the remedy. A source may be called what its user's system allows."""
    if not name.strip():
        return "it is empty", _BELOW_ROOT
    if "\0" in name or (role == "output" and any(ord(each) < 32 or 127 <= ord(each) < 160 for each in name)):
        return "it has control characters", "use a name without them"
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        return "it is not text that can be a file name", "rename it in UTF-8"
    if size > _MAX_PATH_BYTES:
        return f"it has {size} bytes, more than {_MAX_PATH_BYTES}", "use a shorter name"
    if ".." in PurePath(name).parts:
        return "it has '..' in it", _BELOW_ROOT
    return None
