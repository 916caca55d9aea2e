"""Names in tasks → files below the media directory, and nothing outside it.

ffmpeg never sees these names: a source is handed to it as a link of our own naming inside the task's private
folder, so that ``-x.mp4``, ``%d.mp4``, ``http:x.mp4`` or a playlist's sibling mean nothing to it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePath

from peerd.workers.video.errors import PathRefused, SourceEmpty, SourceMissing

_LONGEST_NAME = 255  # bytes; NAME_MAX of Linux's file systems
_LONGEST_PATH = 1024  # bytes; less than PATH_MAX, so that errors can quote it


class MediaDirectory:
    """The media root. ``root`` must be a resolved, existing directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_source(self, name: str) -> Path:
        """Return the real path of an existing, regular, non-empty file below the root.

        Raises PathRefused, SourceEmpty, SourceMissing.
        """
        path = self._below(name, role="source")
        try:
            real = path.resolve(strict=True)
            status = real.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise SourceMissing(source=name, directory=self.root) from None
        except (OSError, RuntimeError) as error:
            raise PathRefused(name=name, role="source", reason=f"it cannot be opened ({error})") from error
        self._require_inside(real, name, role="source")
        if not stat.S_ISREG(status.st_mode):
            raise PathRefused(name=name, role="source", reason="it is not a regular file")
        if status.st_size == 0:
            raise SourceEmpty(source=name)
        return real

    def place_output(self, name: str, suffix: str) -> Path:
        """Return where an output may be written; its folder is made. ``suffix`` is the one that it must have.

        Raises PathRefused.
        """
        path = self._below(name, role="output")
        if path.suffix.lower() != suffix:
            raise PathRefused(name=name, role="output", reason=f"its name does not end in {suffix}")
        if any(part.startswith(".") for part in path.relative_to(self.root).parts):
            raise PathRefused(name=name, role="output", reason="hidden names are kept for work in progress")
        if len(os.fsencode(path.name)) > _LONGEST_NAME:
            raise PathRefused(name=name, role="output", reason=f"its name has more than {_LONGEST_NAME} bytes")
        try:
            # Checked before and after: making folders must not follow a link out of the root either.
            self._require_inside(path.parent.resolve(), name, role="output")
            path.parent.mkdir(parents=True, exist_ok=True)
            parent = path.parent.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise PathRefused(name=name, role="output", reason=f"its folder cannot be made ({error})") from error
        self._require_inside(parent, name, role="output")
        place = parent / path.name
        if place.is_dir():
            raise PathRefused(name=name, role="output", reason="it is a folder")
        return place

    def relative(self, path: Path) -> str:
        """Return the name of a file below the root, as tasks and results write it."""
        return path.relative_to(self.root).as_posix()

    def _below(self, name: str, role: str) -> Path:
        reason = _fault_of(name)
        if reason:
            shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
            raise PathRefused(name=shown, role=role, reason=reason)
        path = Path(os.path.normpath(self.root / name))
        if path == self.root or not path.is_relative_to(self.root):
            raise PathRefused(name=name, role=role, reason="it is outside the media directory")
        return path

    def _require_inside(self, real: Path, name: str, role: str) -> None:
        if not real.is_relative_to(self.root):
            raise PathRefused(name=name, role=role, reason="a link leads out of the media directory")


def default_output(source: str, ending: str) -> str:
    """Name the output after its source, beside it.

    >>> default_output("in/clip.mov", "-720p.mp4")
    'in/clip-720p.mp4'
    """
    path = PurePath(source)
    return str(path.with_name(path.stem.lstrip(".") + ending)) if path.name else ""


def _fault_of(name: str) -> str | None:
    if not name or not name.strip():
        return "it is empty"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "it has control characters"
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        return "it is not text that can be a file name"
    if size > _LONGEST_PATH:
        return f"it has {size} bytes, more than {_LONGEST_PATH}"
    if ".." in PurePath(name).parts:
        return "it has '..' in it"
    return None
