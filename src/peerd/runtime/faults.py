"""Exceptions that nobody caught: in Python they end up in four places, and all four taint the process.

An exception inside a task's handler is that task's failure and never comes here.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from peerd.runtime.link import Link


T = TypeVar("T")


def taint_on_uncaught(loop: asyncio.AbstractEventLoop, link: Link) -> None:
    """Report uncaught exceptions of tasks and callbacks, of threads, and of finalizers to the link.

    (The fourth place is the main coroutine, whose exception ends the process: see `peerd.runtime.life`.)
    """
    loop.set_exception_handler(lambda loop, context: _of_the_loop(loop, context, link))
    threading.excepthook = lambda failed: _of_a_thread(failed, link)
    sys.unraisablehook = lambda failed: _of_a_finalizer(failed, link)


def words(error: BaseException) -> str:
    """Return an exception as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _of_the_loop(loop: asyncio.AbstractEventLoop, context: dict[str, object], link: Link) -> None:
    loop.default_exception_handler(context)
    error = context.get("exception")
    if isinstance(error, BaseException):
        link.tainted(f"{context.get('message')}: {words(error)}")


def _of_a_thread(failed: threading.ExceptHookArgs, link: Link) -> None:
    threading.__excepthook__(failed)
    if failed.exc_type is not SystemExit:
        name = failed.thread.name if failed.thread else "?"
        link.tainted(f"uncaught in thread {name}: {_words(failed.exc_value, failed.exc_type)}")


def _of_a_finalizer(failed: sys.UnraisableHookArgs, link: Link) -> None:
    sys.__unraisablehook__(failed)
    name = getattr(failed.object, "__qualname__", type(failed.object).__name__)
    link.tainted(f"uncaught in the finalizer {name}: {_words(failed.exc_value, failed.exc_type)}")


def _words(error: BaseException | None, kind: type[BaseException]) -> str:
    return words(error) if error is not None else kind.__name__


class ExitRaised(RuntimeError):
    """Code raised SystemExit or KeyboardInterrupt where nobody has asked the process to leave."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{words(error)} was raised, which ends nothing here")


async def contained(doing: Coroutine[Any, Any, T]) -> T:
    """Make SystemExit an exception like others; raised out of a task it would end the whole loop."""
    try:
        return await doing
    except (SystemExit, KeyboardInterrupt) as error:
        raise ExitRaised(error) from error


def contain_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let no task of a loop end the loop by SystemExit: it becomes the task's own exception, `ExitRaised`."""

    def make(loop: asyncio.AbstractEventLoop, doing: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(contained(doing), loop=loop, **more)

    loop.set_task_factory(make)


def show(error: BaseException) -> None:
    """Write an exception with its traceback to stderr."""
    traceback.print_exception(error)
