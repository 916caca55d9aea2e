"""The log of one attempt, and the lines of all attempts of a process that wait to be written.

The attempt that code belongs to is a context variable: each attempt runs in an asyncio task of its own, asyncio copies
the variables into the tasks that it starts, and peerd and `asyncio.to_thread` copy them into threads.

The first lines of an attempt say how it began, the latest how it ended; what is between them is dropped when there are
too many. Lines get consecutive numbers, so a reader sees by a gap in the numbers how many are missing. Lines are
written while the attempt runs, so lines between the first and the latest may be in the table already; `KeptLines.take`
names those that later ones have superseded, for the write to delete.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from peerd.domain.log_line import LINE_LIMIT, LOG_LEVELS, LOGGER_LIMIT, bounded_text
from peerd.domain.task import Task
from peerd.runtime.process.uncaught_exceptions import exception_text
from peerd.store.tasks.log_lines import LineRange, LoggedLine

FIRST_LINES: Final = 200
LATEST_LINES: Final = 800
FIRST_BYTES: Final = 64 * 1024
LATEST_BYTES: Final = 192 * 1024
"""Bytes of messages and fields in UTF-8; an attempt keeps 1,000 lines and 256 KiB at the most."""


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
        """The bytes of its texts in UTF-8."""
        texts = (self.message, self.logger, self.fields or "")
        return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


class KeptLines:
    """The lines of one attempt. It is not thread-safe.

    >>> lines = KeptLines()
    >>> for number in range(1500):
    ...     _ = lines.add(KeptLine(0, 0.0, "info", "app", f"line {number}", None))
    >>> waiting, superseded = lines.take(2000)
    >>> len(waiting), waiting[199].message, waiting[200].message, superseded
    (1000, 'line 199', 'line 700', None)
    >>> _ = lines.add(KeptLine(0, 0.0, "info", "app", "one more", None))
    >>> lines.take(2000)[1]
    (700, 700)
    """

    __slots__ = ("_first", "_first_bytes", "_kept", "_latest", "_latest_bytes", "_next", "_superseded")

    def __init__(self) -> None:
        self._next = 0
        self._first: list[KeptLine] = []
        """The first lines, as far as they were not taken yet."""
        self._first_bytes = 0
        self._latest: list[KeptLine] = []
        """The lines after the first ones, as far as they were not taken yet."""
        self._kept: list[tuple[int, int]] = []
        """Number and size of all lines after the first ones, taken or not."""
        self._latest_bytes = 0
        self._superseded: tuple[int, int] | None = None

    def __len__(self) -> int:
        """How many lines wait to be taken."""
        return len(self._first) + len(self._latest)

    def add(self, line: KeptLine, skipped: int = 0) -> tuple[KeptLine, int]:
        """Add a line, before which so many were dropped.

        Returns it with its number, and by how many bytes those that wait have grown, which may be negative.
        """
        line = KeptLine(self._next + skipped, *line[1:])
        self._next = line.sequence + 1
        size = line.size
        if not self._kept and line.sequence < FIRST_LINES and self._first_bytes + size <= FIRST_BYTES:
            self._first.append(line)
            self._first_bytes += size
            return line, size
        self._latest.append(line)
        self._kept.append((line.sequence, size))
        self._latest_bytes += size
        return line, size - self._drop_beyond_limits()

    def drop_oldest(self) -> int:
        """Drop the oldest line that waits to be taken; returns its bytes."""
        return (self._first or self._latest).pop(0).size

    def take(self, most: int) -> tuple[list[KeptLine], tuple[int, int] | None]:
        """Take up to so many lines, in their order.

        Returns them, and the first and the last number of those that were taken before and are not among the latest any
        more; each once.
        """
        taken, self._first = self._first[:most], self._first[most:]
        rest = most - len(taken)
        taken += self._latest[:rest]
        del self._latest[:rest]
        superseded, self._superseded = self._superseded, None
        return taken, superseded

    def _drop_beyond_limits(self) -> int:
        """Drop the oldest of the latest lines while they are too many; returns the bytes of those that waited."""
        freed = 0
        while len(self._kept) > LATEST_LINES or self._latest_bytes > LATEST_BYTES:
            number, size = self._kept.pop(0)
            self._latest_bytes -= size
            if self._latest and self._latest[0].sequence == number:
                self._latest.pop(0)
                freed += size
            else:  # it was taken, or dropped
                first = number if self._superseded is None else self._superseded[0]
                self._superseded = (first, number)
        return freed


# ---------------------------------------------------------------- the log of an attempt


MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the lines of a process that wait to be written; beyond it, in a long outage, the oldest are dropped."""
LINES_OF_A_WRITE: Final = 1000
BYTES_OF_A_WRITE: Final = 1024 * 1024
MAX_FIELDS: Final = 50
"""Fields of a line."""
LONGEST_PART: Final = LINE_LIMIT
"""Characters of a printed line without its end that are kept."""

current_attempt: ContextVar[AttemptLog | None] = ContextVar("peerd_attempt", default=None)
"""The log of the attempt that the running code belongs to."""


class LineBatch(NamedTuple):
    """Lines of a write, and the lines that they supersede."""

    lines: list[LoggedLine]
    superseded: list[LineRange]


class AttemptLog:
    """The log of one attempt; an attempt that logs nothing costs this object and no more.

    Args:
        lines: those of the process.
        task: as it was claimed.
        claimed_at: monotonic seconds at which the answer of the claim came. The claim's own time is the database's, so
            lines are dated by the database's clock, up to the duration of that answer, and their order is right even if
            the clock of the machine is set meanwhile.
    """

    __slots__ = ("_claimed_at", "_lines", "_parts", "_received", "kept", "task")

    def __init__(self, lines: LineCollector, task: Task, claimed_at: float) -> None:
        self.task = task
        self.kept: KeptLines | None = None
        """The lines of the attempt; None until there is one."""
        self._lines = lines
        self._claimed_at = claimed_at
        self._parts: dict[str, str] | None = None
        self._received = 0

    @property
    def least(self) -> int:
        """The number of the least level that is kept."""
        return LOG_LEVELS[self._lines.least_level]

    @property
    def least_level(self) -> str:
        """The name of the least level that is kept."""
        return self._lines.least_level

    def add(self, level: str, logger: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Add a line, from any thread; what is too long is cut."""
        encoded = encode_fields(fields) if fields else None
        at, named = time.monotonic(), bounded_text(logger[:LOGGER_LIMIT])
        self._lines.add(self, KeptLine(0, at, level, named, bounded_text(message), encoded))

    def add_received(self, line: KeptLine) -> None:
        """Add the next line of the process of a handler; its number says how many were dropped there before it."""
        skipped, self._received = line.sequence - self._received, line.sequence + 1
        self._lines.add(self, line, skipped)

    def print(self, stream: str, level: str, text: str) -> None:
        """Add the lines that are complete with a text that was written to a stream, and keep the begin of the next.

        As on a terminal, what follows a carriage return replaces what is before it in its line.
        """
        with self._lines.lock:
            parts = self._parts = self._parts or {}
            *complete, rest = (parts.pop(stream, "") + text).split("\n")
            for line in complete:
                self.add(level, stream, line.rstrip("\r").rpartition("\r")[2])
            if rest:
                head, _, after_return = rest.rpartition("\r")
                parts[stream] = (after_return or head.rpartition("\r")[2])[: LONGEST_PART + 1]

    def end(self, level_of: Mapping[str, str]) -> None:
        """The attempt has ended: add what was printed without an end of its line, and write the lines soon."""
        if self._parts:
            with self._lines.lock:
                parts, self._parts = self._parts, None
                for stream, part in parts.items():
                    self.add(level_of[stream], stream, part)
        if self.kept is not None:
            self._lines.attempt_ended()

    def to_rows(self, lines: Iterable[KeptLine]) -> Iterator[LoggedLine]:
        """Lines as they are written."""
        task, claimed_at = self.task, self._claimed_at
        task_id, lease, attempt = task.id, task.lease, task.attempts + 1
        began = task.worker_started_at
        for number, since, level, logger, message, fields in lines:
            at = datetime.now(UTC) if began is None else began + timedelta(seconds=since - claimed_at)
            yield LoggedLine(task_id, lease, number, attempt, at, level, logger, message, fields)


class TakenLines(NamedTuple):
    """Lines of an attempt, and the numbers of earlier ones that they supersede."""

    log: AttemptLog
    lines: list[KeptLine]
    superseded: tuple[int, int] | None


class LineCollector:
    """The lines of all attempts of a process that wait to be written. Thread-safe, and reentrant: a signal handler, a
    finalizer or the `__str__` of an argument may print while a line is added.

    Args:
        least_level: the least level that is kept.
        wake: called with False when lines begin to wait, and with True when an attempt with lines has ended.
        copy: called with each line that begins to wait, for the time after the process was killed.
    """

    def __init__(
        self,
        least_level: str = "info",
        wake: Callable[[bool], object] = lambda _: None,
        copy: Callable[[LoggedLine], object] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.least_level = least_level
        self.wake = wake
        self.dropped = 0
        """How many lines were dropped because too many waited."""
        self._copy = copy
        self._bytes = 0
        self._waiting: dict[int, AttemptLog] = {}
        """The attempts with lines that wait, in the order in which their oldest came, by `id`."""

    def __len__(self) -> int:
        """How many lines wait."""
        with self.lock:
            return sum(len(log.kept) for log in self._waiting.values() if log.kept is not None)

    def add(self, log: AttemptLog, line: KeptLine, skipped: int = 0) -> None:
        """Add a line of an attempt, before which so many were dropped."""
        with self.lock:
            if log.kept is None:
                log.kept = KeptLines()
            line, growth = log.kept.add(line, skipped)
            if self._copy is not None:
                self._copy(*log.to_rows([line]))
            self._bytes += growth
            is_first = not self._waiting
            self._waiting[id(log)] = log
            while self._bytes > MAX_WAITING_BYTES:
                self._drop_oldest()
        if is_first:
            self.wake(False)

    def attempt_ended(self) -> None:
        """An attempt with lines has ended."""
        if self._waiting:
            self.wake(True)

    def take(self) -> LineBatch:
        """The lines of the next write: those that have waited the longest; without any, an empty batch."""
        batch = LineBatch([], [])
        size = 0
        while len(batch.lines) < LINES_OF_A_WRITE and size < BYTES_OF_A_WRITE:
            taken = self.take_of_an_attempt(LINES_OF_A_WRITE - len(batch.lines))
            if taken is None:
                break
            if taken.superseded is not None:
                task = taken.log.task
                batch.superseded.append(LineRange(task.id, task.lease, *taken.superseded))
            batch.lines.extend(taken.log.to_rows(taken.lines))
            size += sum([line.size for line in taken.lines])
        return batch

    def take_of_an_attempt(self, most: int) -> TakenLines | None:
        """Up to so many lines of the attempt whose lines have waited the longest; None: none wait."""
        with self.lock:
            if not self._waiting:
                return None
            key, log = next(iter(self._waiting.items()))
            assert log.kept is not None
            lines, superseded = log.kept.take(most)
            self._bytes -= sum([line.size for line in lines])
            if not len(log.kept):
                del self._waiting[key]
        return TakenLines(log, lines, superseded)

    def _drop_oldest(self) -> None:
        key, log = next(iter(self._waiting.items()))
        assert log.kept is not None
        self._bytes -= log.kept.drop_oldest()
        self.dropped += 1
        if not len(log.kept):
            del self._waiting[key]


def encode_fields(fields: Mapping[str, Any]) -> str:
    r"""Named values as a JSON object; what JSON cannot say as text, what is too long cut.

    >>> encode_fields({"size": 3, "path": object})
    '{"size":3,"path":"<class \'object\'>"}'
    """
    try:
        text = msgspec.json.encode(dict(fields), enc_hook=exception_text).decode()
    except Exception:  # noqa: BLE001 - the values are the user's, and may be nested without end
        text = None
    if text is None or len(text) > LINE_LIMIT:
        named = list(fields.items())[:MAX_FIELDS]
        most = LINE_LIMIT // (4 * max(len(named), 1))
        shown = {bounded_text(exception_text(key), 100): bounded_text(exception_text(one), most) for key, one in named}
        text = msgspec.json.encode(shown).decode()
    return text
