"""Reading the node's log: its last lines, what is added to it, and which lines are of which process."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from peerd.runtime.observability.logfile import rotated_path

BLOCK: Final = 64 * 1024
ROTATION_LINGER: Final = 5.0
"""Seconds that a file is still read after its rotation: others may not have opened the new one yet."""
_ENTRY_START: Final = re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+ |\{|peerd ")
"""How an entry begins; what follows without that, such as a traceback, belongs to the entry before."""


class LineFilter:
    """Which lines are shown: those of some slots, or all.

    Args:
        slots: names of slots, or of kinds, which stand for all of their slots; none: all lines.

    Example:
        >>> line_filter = LineFilter(["video"])
        >>> [line_filter(line) for line in ("12:00:00.1 a slot=video-1", "Traceback", "12:00:01.3 b slot=mail-1")]
        [True, True, False]
    """

    def __init__(self, slots: Sequence[str]) -> None:
        names = "|".join(rf"{re.escape(slot)}(-\d+)?" for slot in slots)
        self._names = re.compile(rf"(?<![\w.-])({names})(?![\w-]|\.\w)" if slots else "")
        self._shown = not slots

    def __call__(self, line: str) -> bool:
        """Whether a line is wanted; to be asked of one line after the other."""
        named = self._names.search(line) is not None
        if _ENTRY_START.match(line):
            self._shown = named
        return self._shown or named


def last_lines(path: Path, count: int, line_filter: LineFilter, end: int) -> list[str]:
    """The last wanted lines of a log, also of the files that it was rotated to.

    Args:
        path: of the log.
        count: how many at most.
        line_filter: which.
        end: how far to read the log; it may grow meanwhile.
    """
    found: deque[str] = deque()
    for file in _files_newest_first(path):
        entry: deque[str] = deque()
        for line in _read_backwards(file, end if file == path else end_of_lines(file)):
            entry.appendleft(line)
            if _ENTRY_START.match(line):
                found.extendleft(reversed([one for one in entry if line_filter(one)]))
                entry.clear()
            if len(found) >= count:
                return list(found)[-count:] if count else []
        found.extendleft(reversed([one for one in entry if line_filter(one)]))
    return list(found)[-count:] if count else []


def end_of_lines(path: Path) -> int:
    """Where the last whole line of a file ends."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - BLOCK)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return 0


@dataclass(slots=True)
class _OpenLogFile:
    file: IO[bytes]
    rest: bytes = b""
    until: float | None = None


class LogFollower:
    """Gives the lines that are added to a log, over its rotations.

    Args:
        path: of the log.
        begin: from where.
    """

    def __init__(self, path: Path, begin: int) -> None:
        self._path = path
        self._files = [_OpenLogFile(path.open("rb"))]
        self._files[0].file.seek(begin)

    def read(self, now: float) -> Iterator[str]:
        """The whole lines that have come since the last call.

        Args:
            now: the time, seconds.
        """
        self._open_rotated(now)
        for one in list(self._files):
            yield from _read_added(one)
            if one.until is not None and now >= one.until:
                one.file.close()
                self._files.remove(one)

    def close(self) -> None:
        """Close its files."""
        for one in self._files:
            one.file.close()

    def _open_rotated(self, now: float) -> None:
        present = self._files[-1]
        try:
            if os.path.samestat(self._path.stat(), os.fstat(present.file.fileno())):
                return
            self._files.append(_OpenLogFile(self._path.open("rb")))
        except FileNotFoundError:  # between its renaming and its opening
            return
        present.until = now + ROTATION_LINGER


def _read_added(one: _OpenLogFile) -> Iterator[str]:
    while data := one.file.read(BLOCK):
        *lines, one.rest = (one.rest + data).split(b"\n")
        yield from map(_decode, lines)


def _files_newest_first(path: Path) -> Iterable[Path]:
    yield path
    number = 1
    while rotated_path(path, number).exists():
        yield rotated_path(path, number)
        number += 1


def _read_backwards(path: Path, end: int) -> Iterator[str]:
    """The lines of the first `end` bytes, last first; they end with the end of a line."""
    if not end:
        return
    with path.open("rb") as file:
        rest, end = b"", end - 1
        while end:
            begin = max(0, end - BLOCK)
            file.seek(begin)
            rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from map(_decode, reversed(lines))
            end = begin
        yield _decode(rest)


def _decode(line: bytes) -> str:
    return line.decode(errors="replace")
