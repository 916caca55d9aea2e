"""Exceptions that nobody caught: in Python they end up in four places, and all four taint the process.

An exception inside a task's handler is that task's failure and never comes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from peerd.domain.errors import PeerdError
from peerd.runtime.observability.escaping import escape_and_indent, escape_line

if TYPE_CHECKING:
    from peerd.runtime.process.link import Link


T = TypeVar("T")


def taint_on_uncaught(loop: asyncio.AbstractEventLoop, link: Link) -> None:
    """Report uncaught exceptions of tasks and callbacks, of threads, and of finalizers to the link.

    (The fourth place is the main coroutine, whose exception ends the process: see
    `peerd.runtime.process.service_runner`.)
    """
    loop.set_exception_handler(lambda _, context: _of_the_loop(context, link))
    threading.excepthook = lambda failed: _of_a_thread(failed, link)
    sys.unraisablehook = lambda failed: _of_a_finalizer(failed, link)


def describe_exception(error: BaseException) -> str:
    """Return an exception as one line."""
    text = " ".join(exception_text(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def exception_text(value: object) -> str:
    """Return what an exception, or what a user has given in the place of a text, says of itself.

    >>> exception_text(ValueError("no video"))
    'no video'

    Its `__str__` is the user's code too: if it raises, that is what is said.
    """
    try:
        return str(value)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - wording a fault must not be one
        return f"(its __str__ raised {type(error).__name__})"


def format_traceback(error: BaseException) -> str:
    """Return an exception with file and line of each call that led to it."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception as failure:  # noqa: BLE001 - as in `exception_text`
        return f"{type(error).__name__} (its traceback cannot be told: {type(failure).__name__})\n"


def _of_the_loop(context: dict[str, object], link: Link) -> None:
    error = context.get("exception")
    if not isinstance(error, BaseException):
        more = [f"{name}={value!r}" for name, value in context.items() if name != "message"]
        log_error(" ".join([str(context.get("message")), *more]))
    else:
        log_error(str(context.get("message")), error)
        link.tainted(f"{context.get('message')}: {describe_exception(error)}")


def _of_a_thread(failed: threading.ExceptHookArgs, link: Link) -> None:
    if failed.exc_type is not SystemExit:
        name = failed.thread.name if failed.thread else "?"
        log_error(f"uncaught in thread {name}", failed.exc_value)
        link.tainted(f"uncaught in thread {name}: {_words(failed.exc_value, failed.exc_type)}")


def _of_a_finalizer(failed: sys.UnraisableHookArgs, link: Link) -> None:
    name = getattr(failed.object, "__qualname__", type(failed.object).__name__)
    log_error(f"uncaught in the finalizer {name}", failed.exc_value)
    link.tainted(f"uncaught in the finalizer {name}: {_words(failed.exc_value, failed.exc_type)}")


def _words(error: BaseException | None, kind: type[BaseException]) -> str:
    return describe_exception(error) if error is not None else kind.__name__


class SystemExitRaised(RuntimeError):
    """Code raised SystemExit or KeyboardInterrupt where nobody has asked the process to leave."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{describe_exception(error)} was raised, which ends nothing here")


async def guard_against_exit(coroutine: Coroutine[Any, Any, T]) -> T:
    """Make SystemExit an exception like others; raised out of a task it would end the whole loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise SystemExitRaised(error) from error


def guard_tasks_against_exit(loop: asyncio.AbstractEventLoop) -> None:
    """Let no task of a loop end the loop by SystemExit: it becomes the task's own exception, `SystemExitRaised`."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(guard_against_exit(coroutine), loop=loop, **more)

    loop.set_task_factory(make)


def log_exception(error: BaseException) -> None:
    """Write an exception with its traceback to the log."""
    log_error(describe_exception(error), error)


def log_boot_failure(error: BaseException) -> None:
    """The same, for what has ended a boot; but of an error of peerd's that no user code has led to, its words do."""
    if not isinstance(error, PeerdError) or any(user_frames(one) for one in _chain(error)):
        log_exception(error)


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Where an exception has passed through code that is neither peerd's, nor Python's, nor that of a package."""
    libraries = _libraries()
    return [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(libraries)]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _libraries() -> tuple[str, ...]:
    import sysconfig  # noqa: PLC0415 - only what has failed needs it

    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return (str(Path(__file__).parents[2]), "<frozen ", *places)


def log_error(text: str, error: BaseException | None = None) -> None:
    """Write an entry to the log of this process, if anybody still reads it; to stderr while there is no log yet.

    Args:
        text: what is wrong.
        error: whose traceback follows.
    """
    import structlog  # noqa: PLC0415 - a process decides in its first lines how this is loaded

    with contextlib.suppress(OSError, ValueError):
        if structlog.is_configured():
            structlog.get_logger().error(text, exc_info=error)
            return
        lines = [escape_line(text)]
        if error is not None:
            lines.append(escape_and_indent(format_traceback(error)))
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
