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
    """A line of an attempt; ``at`` is monotonic seconds, ``fields`` JSON."""

    sequence: int
    at: float
    level: str
    logger: str
    message: str
    fields: str | None

    @property
    def size(self) -> int:
        """Its bytes, as the limits count them; of texts that are not ASCII, about as many."""
        return len(self.message) + len(self.fields or "") + len(self.logger)


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

    __slots__ = (
        "_end_of_first",
        "_first",
        "_first_bytes",
        "_latest",
        "_latest_bytes",
        "_next",
        "_superseded",
        "_waiting",
    )

    def __init__(self) -> None:
        self._next = 0
        self._first: deque[KeptLine] = deque()
        """Those of the first lines that were not taken yet."""
        self._first_bytes = 0
        self._end_of_first: int | None = None
        """The number after the last of the first lines, once there are enough of them."""
        self._waiting: deque[KeptLine] = deque()
        """Those of the latest lines that were not taken yet."""
        self._latest: deque[tuple[int, int]] = deque()
        """Number and size of all the latest lines, taken or not."""
        self._latest_bytes = 0
        self._superseded: tuple[int, int] | None = None

    def __len__(self) -> int:
        """How many lines wait to be taken."""
        return len(self._first) + len(self._waiting)

    def skip(self, lines: int) -> None:
        """Count lines that were dropped before they came here."""
        self._next += lines

    def add(self, at: float, level: str, logger: str, message: str, fields: str | None) -> int:
        """Add a line; returns by how many bytes those that wait to be taken have grown, which may be negative."""
        line = KeptLine(self._next, at, level, logger, message, fields)
        self._next += 1
        size = line.size
        if self._end_of_first is None:
            if line.sequence < FIRST_LINES and self._first_bytes + size <= FIRST_BYTES:
                self._first.append(line)
                self._first_bytes += size
                return size
            self._end_of_first = line.sequence
        self._waiting.append(line)
        self._latest.append((line.sequence, size))
        self._latest_bytes += size
        return size - self._drop_beyond_limits()

    def drop_oldest(self) -> int:
        """Drop the oldest line that waits to be taken; returns its bytes."""
        return (self._first or self._waiting).popleft().size

    def take(self, most: int) -> tuple[list[KeptLine], tuple[int, int] | None]:
        """Take up to so many lines, in their order, and the numbers of lines taken before that are superseded."""
        taken = [(self._first or self._waiting).popleft() for _ in range(min(most, len(self)))]
        superseded, self._superseded = self._superseded, None
        return taken, superseded

    def _drop_beyond_limits(self) -> int:
        freed = 0
        while len(self._latest) > LATEST_LINES or self._latest_bytes > LATEST_BYTES:
            number, size = self._latest.popleft()
            self._latest_bytes -= size
            if self._waiting and self._waiting[0].sequence == number:
                self._waiting.popleft()
                freed += size
            else:  # it was taken, or dropped
                first = number if self._superseded is None else self._superseded[0]
                self._superseded = (first, number)
        return freed
