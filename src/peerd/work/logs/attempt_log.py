"""The log of one attempt, and the lines of all attempts of a process that wait to be written.

The attempt that code belongs to is a context variable: each attempt runs in an asyncio task of its own, asyncio copies
the variables into the tasks that it starts, and peerd and `asyncio.to_thread` copy them into threads.
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
from peerd.work.logs.kept_lines import KeptLine, KeptLines
from peerd.work.logs.line_journal import LineJournal

MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
"""Of the lines of a process that wait to be written; beyond it, as in a long outage, the oldest are dropped."""
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

    __slots__ = ("_claimed_at", "_lines", "_parts", "kept", "task")

    def __init__(self, lines: LineCollector, task: Task, claimed_at: float) -> None:
        self.task = task
        self.kept: KeptLines | None = None
        """Its lines; None until there is one."""
        self._lines = lines
        self._claimed_at = claimed_at
        self._parts: dict[str, str] | None = None

    @property
    def least(self) -> int:
        """The number of the least level that is kept."""
        return LOG_LEVELS[self._lines.least_level]

    @property
    def least_level(self) -> str:
        """Its name."""
        return self._lines.least_level

    def add(self, level: str, logger: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Add a line, from any thread; what is too long is cut."""
        encoded = encode_fields(fields) if fields else None
        at, named = time.monotonic(), bounded_text(logger[:LOGGER_LIMIT])
        self._lines.add(self, at, level, named, bounded_text(message), encoded)

    def add_received(self, line: KeptLine, skipped: int) -> None:
        """Add a line of the process of a handler, before which it has dropped so many."""
        self._lines.add(self, line.at, line.level, line.logger, line.message, line.fields, skipped=skipped)

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
        for number, since, level, logger, message, fields, _ in lines:
            at = datetime.now(UTC) if began is None else began + timedelta(seconds=since - claimed_at)
            yield LoggedLine(task_id, lease, number, attempt, at, level, logger, message, fields)


class TakenLines(NamedTuple):
    """Lines of an attempt, and the numbers of earlier ones that they supersede."""

    log: AttemptLog
    lines: list[KeptLine]
    size: int
    """Of the lines, in bytes."""
    superseded: tuple[int, int] | None


class LineCollector:
    """The lines of all attempts of a process that wait to be written. Thread-safe, and reentrant: a signal handler, a
    finalizer or the `__str__` of an argument may print while a line is added.

    Args:
        least_level: the least level that is kept.
        wake: called with False when lines begin to wait, and with True when an attempt with lines has ended.
        journal: has a copy of the lines that wait, for the time after the process was killed.
    """

    def __init__(
        self,
        least_level: str = "info",
        wake: Callable[[bool], object] = lambda _: None,
        journal: LineJournal | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.least_level = least_level
        self.wake = wake
        self.dropped = 0
        """How many lines were dropped because too many waited."""
        self._journal = journal
        self._bytes = 0
        self._waiting: dict[int, AttemptLog] = {}
        """The attempts with lines that wait, in the order in which their oldest came, by `id`."""

    def __len__(self) -> int:
        """How many lines wait."""
        with self.lock:
            return sum(len(log.kept) for log in self._waiting.values() if log.kept is not None)

    def add(
        self,
        log: AttemptLog,
        at: float,
        level: str,
        logger: str,
        message: str,
        fields: str | None,
        *,
        skipped: int = 0,
    ) -> None:
        """Add a line of an attempt, before which so many were dropped."""
        with self.lock:
            if log.kept is None:
                log.kept = KeptLines()
            kept = log.kept
            kept.skip(skipped)
            line, growth = kept.add(at, level, logger, message, fields)
            if self._journal is not None:
                self._journal.append(*log.to_rows([line]))
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

    def written(self) -> None:
        """What was taken is written; what has come meanwhile waits for the next time."""
        with self.lock:
            if self._journal is not None and not self._waiting:
                self._journal.clear()

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
            size += taken.size
        return batch

    def take_of_an_attempt(self, most: int) -> TakenLines | None:
        """Up to so many lines of the attempt whose lines have waited the longest; None: none wait."""
        with self.lock:
            if not self._waiting:
                return None
            key, log = next(iter(self._waiting.items()))
            assert log.kept is not None
            lines, superseded = log.kept.take(most)
            size = sum([line.size for line in lines])
            self._bytes -= size
            if not len(log.kept):
                del self._waiting[key]
        return TakenLines(log, lines, size, superseded)

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
