"""The log of a process: structlog, the listener that writes events to it, and the rotation of its file.

Successes beyond a few in a second are one line, and failures of a component one a minute. At ten thousand tasks a
second their lines would be gigabytes in an hour, and a third of the processor time.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TextIO

import msgspec
import structlog

from peerd.domain.quoting import escape_and_indent, escape_line, escape_text
from peerd.runtime.observability import events, log_file
from peerd.runtime.observability.events import Event, EventBus, EventListener
from peerd.runtime.observability.log_file import is_regular_file
from peerd.runtime.observability.log_messages import log_message_of

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
MAX_EACH_SPAN: Final = 25
"""Successes in a second that are events of their own."""
SPAN_SECONDS: Final = 1.0
FAILURES_EVERY: Final = 60.0  # seconds


def configure_logging(
    level: str, form: Literal["console", "json"], *, stream: TextIO | None = None, **bound: str
) -> structlog.stdlib.BoundLogger:
    """Set up the log of this process.

    Args:
        level: debug, info, warning or error.
        form: lines for people, or a JSON object a line.
        stream: standard error when None.
        bound: names and values for each line, such as slot and node.
    """
    out = stream or sys.stderr
    console = structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=28, sort_keys=False)
    renderers = [structlog.processors.JSONRenderer()] if form == "json" else [_escape, console]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _, __, entry: {**bound, **entry},  # in every thread, which contextvars are not
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=_time_format(form, out), utc=form == "json"),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log


def _time_format(form: str, stream: TextIO) -> str:
    """With the date in a file; on a terminal and in the journal the date is known."""
    if form == "json":
        return "iso"
    with contextlib.suppress(OSError):  # it has no descriptor
        if is_regular_file(stream.fileno()):
            return "%Y-%m-%d %H:%M:%S.%f"
    return "%H:%M:%S.%f"


def _escape(_: object, __: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape the texts of an entry, so that none looks like another entry; JSON does so by itself."""
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = escape_and_indent(value) if name in {"exception", "stack"} else escape_text(value)
    entry["event"] = escape_line(str(entry.get("event", "")))
    return entry


def log_events(bus: EventBus, log: structlog.stdlib.BoundLogger) -> None:
    """Write the events of a bus to a log; where its level is not debug, many successes in a line."""
    is_debug = log.is_enabled_for(logging.DEBUG)
    listener: EventListener = FailureAggregator(LogEventListener(log))
    if not is_debug:
        listener = aggregator = SuccessAggregator(listener)
        atexit.register(aggregator.flush)
    bus.listen(listener, debug=is_debug)


class LogEventListener:
    """Writes events to a log; for `EventBus.listen`. `bound` are names and values for each line."""

    def __init__(self, log: structlog.stdlib.BoundLogger, **bound: str) -> None:
        self._log = log.bind(**bound)

    def __call__(self, event: Event) -> None:
        level, sentence, figures = log_message_of(event)
        getattr(self._log, level)(sentence, **figures)


class SuccessAggregator:
    """Passes events to a listener, successes beyond `MAX_EACH_SPAN` in a second as one `TasksDone`.

    Without an event loop, which would end the second, all are passed on.

    >>> seen = []
    >>> aggregator = SuccessAggregator(seen.append)
    >>> async def end_many():
    ...     for number in range(100):
    ...         aggregator(events.AttemptEnded(task_id=number, queue="mail", name="send", outcome="done", seconds=0.01))
    ...     aggregator.flush()
    >>> asyncio.run(end_many())
    >>> len(seen), seen[-1].count, seen[-1].by_handler
    (26, 75, {'mail.send': 75})
    """

    def __init__(self, listener: EventListener) -> None:
        self._listener = listener
        self._span_timer: asyncio.TimerHandle | None = None
        self._passed_on = 0
        self._aggregated: Counter[tuple[str, str]] = Counter()
        self._seconds = 0.0

    def __call__(self, event: Event) -> None:
        """Pass an event on, or count it until the end of the span."""
        if (
            type(event) is not events.AttemptEnded
            or event.outcome != "done"
            or (self._span_timer is None and not self._begin_span())
        ):
            self._listener(event)
        elif self._passed_on < MAX_EACH_SPAN:
            self._passed_on += 1
            self._listener(event)
        else:
            self._aggregated[event.queue, event.name] += 1
            self._seconds += event.seconds

    def flush(self) -> None:
        """End the span: pass the counted successes on."""
        if self._span_timer is not None:
            self._span_timer.cancel()
            self._span_timer = None
        aggregated, self._aggregated = self._aggregated, Counter()
        seconds, self._seconds = self._seconds, 0.0
        self._passed_on = 0
        if aggregated:
            by_handler = {f"{queue}.{name}" if name else queue: count for (queue, name), count in aggregated.items()}
            self._listener(events.TasksDone(count=aggregated.total(), seconds=seconds, by_handler=by_handler))

    def _begin_span(self) -> bool:
        """Begin a span; return False without an event loop."""
        try:
            self._span_timer = asyncio.get_running_loop().call_later(SPAN_SECONDS, self.flush)
        except RuntimeError:
            return False
        return True


class FailureAggregator:
    """Passes events to a listener; of the failures of one component one a minute, with how many there were.

    >>> seen, moments = [], iter(range(0, 100, 10))
    >>> aggregator = FailureAggregator(seen.append, lambda: next(moments))
    >>> for _ in range(8):
    ...     aggregator(events.ComponentFailed(component="chore expire", error="ValueError: no", again_in=10))
    >>> [event.failures for event in seen]
    [1, 6]
    """

    def __init__(self, listener: EventListener, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener = listener
        self._clock = clock
        self._next_report: dict[str, float] = {}
        # since the last report of each component
        self._failures: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """Pass an event on, or count it."""
        if type(event) is events.ComponentFailed:
            now = self._clock()
            self._failures[event.component] += 1
            if now < self._next_report.get(event.component, -math.inf):
                return
            self._next_report[event.component] = now + FAILURES_EVERY
            event = msgspec.structs.replace(event, failures=max(event.failures, self._failures.pop(event.component)))
        self._listener(event)


# ---------------------------------------------------------------- rotation


CHECK_INTERVAL: Final = 2.0
"""The longest time between two checks of the file, seconds."""
MIN_CHECK_INTERVAL: Final = 0.05
MAX_WRITE_RATE: Final = 200_000_000
"""Bytes per second of a burst: the next check comes before the file could be full at this rate."""


async def keep_rotated(path: Path, max_size: int, keep: int, ask_to_reopen: Callable[[], object]) -> None:
    """Call `rotate_if_full`, the sooner the fuller the log is, until cancelled."""
    while True:
        rotate_if_full(path, max_size, keep, ask_to_reopen)
        await asyncio.sleep(_check_interval(path, max_size))


def rotate_if_full(path: Path, max_size: int, keep: int, ask_to_reopen: Callable[[], object]) -> None:
    """Rotate the log if it is full, and notice that another program has renamed or deleted it.

    The master then has every process reopen it; until then they write to the old file, and no line is lost.

    Args:
        path: of the log.
        max_size: bytes at which it is rotated; 0: never, because logrotate does it.
        keep: the maximum number of rotated files.
        ask_to_reopen: sends the request to the master.

    Raises:
        OSError: it cannot be renamed.
    """
    if not log_file.is_written_by(path):
        ask_to_reopen()
    elif 0 < max_size <= path.stat().st_size:
        log_file.rotate(path, keep)
        ask_to_reopen()


def _check_interval(path: Path, max_size: int) -> float:
    """A nearly full file is checked often: at fixed intervals, a burst writes five times the maximum size."""
    if not max_size:
        return CHECK_INTERVAL
    try:
        free_bytes = max_size - path.stat().st_size
    except FileNotFoundError:  # the master is about to open it
        free_bytes = max_size
    return min(CHECK_INTERVAL, max(MIN_CHECK_INTERVAL, free_bytes / MAX_WRITE_RATE))
