"""Which lines of an attempt are kept: the first ones, and the latest ones.

The first lines say how an attempt began, the latest how it ended; what is between them is dropped when there are too
many. Lines get consecutive numbers, so a reader sees by a gap in the numbers how many are missing. Lines are written
while the attempt runs, so lines between the first and the latest may be in the table already; `take` names those that
later ones have superseded, for the write to delete.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

FIRST_LINES: Final = 200
LATEST_LINES: Final = 800
FIRST_BYTES: Final = 64 * 1024
LATEST_BYTES: Final = 192 * 1024
"""Of messages and fields in UTF-8; an attempt keeps 1,000 lines and 256 KiB at the most."""


class KeptLine(NamedTuple):
    """A line of an attempt.

    ``at`` is monotonic seconds, ``fields`` JSON; ``size`` is its bytes, as the limits count them: of texts that are not
    ASCII, about as many.
    """

    sequence: int
    at: float
    level: str
    logger: str
    message: str
    fields: str | None
    size: int


class KeptLines:
    """The lines of one attempt. It is not thread-safe.

    >>> lines = KeptLines()
    >>> for number in range(1500):
    ...     _ = lines.add(0.0, "info", "app", f"line {number}", None)
    >>> waiting, superseded = lines.take(2000)
    >>> len(waiting), waiting[199].message, waiting[200].message, superseded
    (1000, 'line 199', 'line 700', None)
    >>> _ = lines.add(0.0, "info", "app", "one more", None)
    >>> lines.take(2000)[1]
    (700, 700)
    """

    __slots__ = ("_first", "_first_bytes", "_latest", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._first: list[KeptLine] = []
        """Those of the first lines that were not taken yet."""
        self._first_bytes = 0
        self._latest: LatestLines | None = None
        """Those after the first ones, once there are enough of these: most attempts log a few lines."""

    def __len__(self) -> int:
        """How many lines wait to be taken."""
        return len(self._first) + (0 if self._latest is None else len(self._latest.waiting))

    def skip(self, lines: int) -> None:
        """Count lines that were dropped before they came here."""
        self._next += lines

    def add(self, at: float, level: str, logger: str, message: str, fields: str | None) -> tuple[KeptLine, int]:
        """Add a line; returns it, and by how many bytes those that wait have grown, which may be negative."""
        number = self._next
        self._next = number + 1
        size = len(message) + len(logger) + (0 if fields is None else len(fields))
        line = KeptLine(number, at, level, logger, message, fields, size)
        if self._latest is None:
            if number < FIRST_LINES and self._first_bytes + size <= FIRST_BYTES:
                self._first.append(line)
                self._first_bytes += size
                return line, size
            self._latest = LatestLines()
        return line, self._latest.add(line)

    def drop_oldest(self) -> int:
        """Drop the oldest line that waits to be taken; returns its bytes."""
        if self._first:
            return self._first.pop(0).size
        assert self._latest is not None
        return self._latest.waiting.popleft().size

    def take(self, most: int) -> tuple[list[KeptLine], tuple[int, int] | None]:
        """Take up to so many lines, in their order, and the numbers of lines taken before that are superseded."""
        taken, self._first = self._first[:most], self._first[most:]
        if self._latest is None:
            return taken, None
        waiting = self._latest.waiting
        taken += [waiting.popleft() for _ in range(min(most - len(taken), len(waiting)))]
        return taken, self._latest.take_superseded()


class LatestLines:
    """The lines of one attempt after its first ones; when they are too many, the oldest of them are dropped."""

    __slots__ = ("_bytes", "_kept", "_superseded", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[KeptLine] = deque()
        """Those that were not taken yet."""
        self._kept: deque[tuple[int, int]] = deque()
        """Number and size of all of them, taken or not."""
        self._bytes = 0
        self._superseded: tuple[int, int] | None = None

    def add(self, line: KeptLine) -> int:
        """Add a line; returns by how many bytes those that wait have grown."""
        self.waiting.append(line)
        self._kept.append((line.sequence, line.size))
        self._bytes += line.size
        return line.size - self._drop_beyond_limits()

    def take_superseded(self) -> tuple[int, int] | None:
        """The numbers of lines, taken before, that are not among the latest any more; each once."""
        superseded, self._superseded = self._superseded, None
        return superseded

    def _drop_beyond_limits(self) -> int:
        freed = 0
        while len(self._kept) > LATEST_LINES or self._bytes > LATEST_BYTES:
            number, size = self._kept.popleft()
            self._bytes -= size
            if self.waiting and self.waiting[0].sequence == number:
                self.waiting.popleft()
                freed += size
            else:  # it was taken, or dropped
                first = number if self._superseded is None else self._superseded[0]
                self._superseded = (first, number)
        return freed
