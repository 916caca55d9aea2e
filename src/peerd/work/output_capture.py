"""What code says while it belongs to an attempt: prints, records of `logging`, and lines of structlog.

Installed once in a process. What is printed or logged still reaches its stream or handler. What programs write that
handlers start, and what C code writes, goes to the descriptors and not through `sys.stdout`, so it is not captured.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final, TextIO, cast

import structlog

from peerd.domain.log_line import LOG_LEVELS, name_of_level
from peerd.runtime.process.uncaught_exceptions import exception_text, format_traceback
from peerd.work.attempt_log import AttemptLog, current_attempt

STREAM_LEVELS: Final[Mapping[str, str]] = {"stdout": "info", "stderr": "warning"}
"""Levels of printed lines."""
CONTEXT_LOGGER: Final = "ctx.log"
"""The name of the logger of lines by ``ctx.log``."""
_OF_THE_TASK: Final = frozenset({"event", "task", "queue", "handler", "attempt", "exc_info", "stack_info", "logger"})
"""What every line of a task has by itself, or has in its message."""
_LEVEL_OF_METHOD: Final = {level: level for level in LOG_LEVELS} | {"exception": "error"}
"""The levels of structlog's methods."""
_OF_A_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_LOGGER_CLASS: Final[Any] = structlog.make_filtering_bound_logger(LOG_LEVELS["debug"])


class _Captured(threading.local):
    """Whether what the thread prints is the output of a line that was captured."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


_captured: Final = _Captured()


class CapturedStream:
    """Takes the place of `sys.stdout` or `sys.stderr`; everything but writing is done by the stream behind it."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._level = STREAM_LEVELS[name]

    def write(self, text: str) -> int:
        """Write a text, and add its lines to the attempt that the code belongs to."""
        try:
            return self._stream.write(text)
        finally:
            attempt = current_attempt.get()
            if attempt is not None and LOG_LEVELS[self._level] >= attempt.least and not _captured.depth:
                attempt.print(self._name, self._level, str(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """What the stream behind it has: `flush`, `fileno`, `isatty`, `buffer`, `encoding`, …."""
        return getattr(self._stream, name)


def capture_output(log_level: str) -> None:
    """Begin to capture in this process; once.

    Code that configures structlog afterwards is captured by what its lines are written to.

    Args:
        log_level: the level of the log of the process, below which lines of structlog go to attempts only.
    """
    printed_to = sys.stdout
    sys.stdout = cast("TextIO", CapturedStream(sys.stdout, "stdout"))
    sys.stderr = cast("TextIO", CapturedStream(sys.stderr, "stderr"))
    # A handler of the root logger would be lost at basicConfig or dictConfig, or keep them from working.
    logging.Logger.callHandlers = _capturing(logging.Logger.callHandlers)  # type: ignore[method-assign]
    changed = {
        "processors": [StructlogTap(LOG_LEVELS[log_level]), *structlog.get_config()["processors"]],
        "wrapper_class": _LOGGER_CLASS,
    }
    if not structlog.is_configured():  # it would print to the stream that is captured
        changed["logger_factory"] = structlog.PrintLoggerFactory(printed_to)
    structlog.configure(**structlog.get_config() | changed)


def _capturing(call_handlers: Any) -> Any:
    def call_and_capture(logger: logging.Logger, record: logging.LogRecord) -> None:
        attempt = current_attempt.get()
        if attempt is None or _captured.depth:
            call_handlers(logger, record)
            return
        if record.levelno >= attempt.least:
            _capture_record(attempt, record)
        with _captured:
            call_handlers(logger, record)

    return call_and_capture


def _capture_record(attempt: AttemptLog, record: logging.LogRecord) -> None:
    try:
        message = record.getMessage()
    except Exception as error:  # noqa: BLE001 - wrong arguments of the user, which logging itself reports
        message = f"{exception_text(record.msg)} ({type(error).__name__} in its arguments)"
    if record.exc_info:
        message += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
    if record.stack_info:
        message += "\n" + record.stack_info
    extra = {name: value for name, value in vars(record).items() if name not in _OF_A_RECORD}
    attempt.add(name_of_level(record.levelno), str(record.name), message, extra)


class StructlogTap:
    """A processor that gives entries to the attempt that the code belongs to, and drops those below the log's level."""

    def __init__(self, log_least: int, attempt: AttemptLog | None = None) -> None:
        self.log_least = log_least
        self._attempt = attempt

    def __call__(self, _: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Process an entry."""
        attempt = self._attempt or current_attempt.get()
        level = _LEVEL_OF_METHOD.get(method, "info")
        number = LOG_LEVELS[level]
        if attempt is not None and number >= attempt.least:
            fields = {name: value for name, value in entry.items() if name not in _OF_THE_TASK}
            logger = str(entry.get("logger", "structlog")) if self._attempt is None else CONTEXT_LOGGER
            message = exception_text(entry.get("event", "")) + _traceback_of(entry.get("exc_info"))
            attempt.add(level, logger, message, fields)
        if number < self.log_least:
            raise structlog.DropEvent
        return entry


class AttemptLoggers:
    """Makes structlog loggers whose lines belong to an attempt, in any thread and with any configuration of structlog.

    Each attempt that logs has one, so what all loggers of a configuration share is made once.
    """

    def __init__(self) -> None:
        self._configured: tuple[list[Any], Any] | None = None

    def make(self, attempt: AttemptLog, /, **bound: Any) -> Any:
        """The logger of an attempt, with values of all of its lines."""
        config = structlog.get_config()
        configured = config["processors"], config["logger_factory"]
        if configured != self._configured:
            self._configured = [*configured[0]], configured[1]
            self._use(*configured)
        processors = [StructlogTap(self._log_least, attempt), *self._others]
        return _LOGGER_CLASS(self._logger, processors, config["context_class"](bound))

    def _use(self, processors: list[Any], logger_factory: Any) -> None:
        self._others = [one for one in processors if not isinstance(one, StructlogTap)]
        installed = [one for one in processors if isinstance(one, StructlogTap)]
        self._log_least = installed[0].log_least if installed else LOG_LEVELS["debug"]
        self._logger = _QuietLogger(logger_factory("peerd.task"))


class _QuietLogger:
    """The logger to which structlog gives finished lines; what it prints is captured already."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._logger, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            with _captured:
                return found(*args, **kwargs)

        return call


def _traceback_of(given: Any) -> str:
    """The traceback for what was given as ``exc_info``."""
    error = given if isinstance(given, BaseException) else None
    if isinstance(given, tuple) and len(given) == 3:
        error = given[1]
    elif given and error is None:
        error = sys.exception()
    return "" if error is None else "\n" + format_traceback(error).rstrip("\n")


attempt_loggers: Final = AttemptLoggers()
"""The loggers of this process, which has one configuration of structlog."""
