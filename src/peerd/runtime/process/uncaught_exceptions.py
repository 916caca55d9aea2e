"""Exceptions as text and in the log, and SystemExit where it does not end the process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from peerd.domain.errors import PeerdError
from peerd.domain.quoting import escape_and_indent, escape_line

T = TypeVar("T")


def describe_exception(error: BaseException) -> str:
    """An exception as one line."""
    text = " ".join(exception_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def exception_text(value: object) -> str:
    """The text of an exception, or of any object of the user, even if its `__str__` raises.

    >>> exception_text(ValueError("no video"))
    'no video'
    """
    try:
        return str(value)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - `__str__` may be the user's code
        return f"(its __str__ raised {type(error).__name__})"


def format_traceback(error: BaseException) -> str:
    """An exception with its traceback."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as failure:  # noqa: BLE001 - as in `exception_text`
        return f"{type(error).__name__} (its traceback cannot be formatted: {type(failure).__name__})\n"


class SystemExitRaised(RuntimeError):
    """Code raised SystemExit or KeyboardInterrupt where it does not end the process."""


async def guard_against_exit(coroutine: Coroutine[Any, Any, T], place: str = "a task") -> T:
    """Turn SystemExit, which would end the event loop when raised in a task, into an ordinary exception."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise SystemExitRaised(f"{place} raised {describe_exception(error)}") from error


def guard_tasks_against_exit(loop: asyncio.AbstractEventLoop) -> None:
    """Apply `guard_against_exit` to every task of a loop."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(guard_against_exit(coroutine), loop=loop, **more)

    loop.set_task_factory(make)


def log_exception(error: BaseException) -> None:
    """Write an exception with its traceback to the log."""
    log_error(describe_exception(error), error)


def log_boot_failure(error: BaseException) -> None:
    """Call `log_exception`, but skip an error of peerd's without user code in its traceback: its text is enough."""
    if not isinstance(error, PeerdError) or any(user_frames(one) for one in _chain(error)):
        log_exception(error)


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of a traceback in code that is neither peerd's, nor Python's, nor of an installed package."""
    import sysconfig  # noqa: PLC0415 - needed after a failure only

    folders = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    libraries = (str(Path(__file__).parents[2]), "<frozen ", *folders)
    return [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def log_error(text: str, error: BaseException | None = None) -> None:
    """Write a line, and the traceback of an exception, to the log of this process; before it is set up, to stderr."""
    import structlog  # noqa: PLC0415 - how it is loaded is decided in the first lines of a process

    with contextlib.suppress(OSError, ValueError):  # the log is closed
        if structlog.is_configured():
            structlog.get_logger().error(text, exc_info=error)
            return
        lines = [escape_line(text)]
        if error is not None:
            lines.append(escape_and_indent(format_traceback(error)))
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
