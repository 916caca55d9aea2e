"""Reads the node's log: its last lines, new lines over rotations, and the lines of given processes."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from peerd.runtime.observability.log_file import rotated_path

BLOCK: Final = 64 * 1024
ROTATION_LINGER: Final = 5.0
"""Seconds that a rotated file is still read: a process may not have opened the new one yet."""
_ENTRY_START: Final = re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+ |\{|peerd ")
"""The start of an entry; other lines, such as those of a traceback, belong to the entry before."""


class LineFilter:
    """Selects the lines of slots. Call it with one line after the other: an entry may have several.

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
        """Whether the next line is selected."""
        named = self._names.search(line) is not None
        if _ENTRY_START.match(line):
            self._shown = named
        return self._shown or named


def last_lines(path: Path, count: int, line_filter: LineFilter, end: int) -> list[str]:
    """The last selected lines of the first `end` bytes of a log, and of its rotated files."""
    found: deque[str] = deque()
    for entry in _entries_newest_first(path, end):
        found.extendleft(reversed([line for line in entry if line_filter(line)]))
        if len(found) >= count:
            break
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
    """Reads the lines that are appended to a log after the offset `begin`, over its rotations."""

    def __init__(self, path: Path, begin: int) -> None:
        self._path = path
        self._files = [_OpenLogFile(path.open("rb"))]
        self._files[0].file.seek(begin)

    def read(self, now: float) -> Iterator[str]:
        """The complete lines since the last call; `now` is a time in seconds."""
        self._open_new_file(now)
        for log in list(self._files):
            while data := log.file.read(BLOCK):
                *lines, log.rest = (log.rest + data).split(b"\n")
                yield from map(_decode, lines)
            if log.until is not None and now >= log.until:
                log.file.close()
                self._files.remove(log)

    def close(self) -> None:
        """Close the files."""
        for log in self._files:
            log.file.close()

    def _open_new_file(self, now: float) -> None:
        current = self._files[-1]
        try:
            if os.path.samestat(self._path.stat(), os.fstat(current.file.fileno())):
                return
            self._files.append(_OpenLogFile(self._path.open("rb")))
        except FileNotFoundError:  # between its rotation and the creation of the new one
            return
        current.until = now + ROTATION_LINGER


def _entries_newest_first(path: Path, end: int) -> Iterator[Iterable[str]]:
    file, number = path, 0
    while file.exists():
        entry: deque[str] = deque()
        for line in _read_backwards(file, end_of_lines(file) if number else end):
            entry.appendleft(line)
            if _ENTRY_START.match(line):
                yield entry
                entry = deque()
        yield entry
        number += 1
        file = rotated_path(path, number)


def _read_backwards(path: Path, end: int) -> Iterator[str]:
    """The lines of the first `end` bytes, which are complete lines, from the last to the first."""
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
