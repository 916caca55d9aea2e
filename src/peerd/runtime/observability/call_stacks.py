"""Reads the stacks of threads and of asyncio tasks, also of a thread that runs meanwhile.

A suspended coroutine has no stack: its frames are found by following what it awaits, coroutine by coroutine, to the
innermost. What waits for other asyncio tasks (``gather``, ``wait``, ``shield``, a ``TaskGroup``) is followed into them.
asyncio shows the outermost frame only, up to Python 3.13.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import selectors
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Final

from peerd.domain.quoting import escape_line
from peerd.domain.task_stack import MAX_CALLS, MAX_FILE, MAX_FRAMES, MAX_FUNCTION, MAX_SOURCE, CallFrame, CallStack
from peerd.runtime.concurrency import thread_started_by

OUR_CODE: Final = str(Path(__file__).parents[2])
"""The folder of peerd, whose frames around a handler's are left out."""
READY_WORKERS: Final = str(Path(OUR_CODE) / "workers")
"""Handlers that are part of peerd."""
MAX_DEPTH: Final = 2_000
"""Awaits of one asyncio task that are followed."""
MAX_TASKS_SEARCHED: Final = 10_000
"""asyncio tasks of a loop that are searched for members of a TaskGroup."""
# functions of asyncio that wait for futures, and their variables with them
_AWAITED_BY_LOCAL: Final = {"_wait": "fs", "wait_for": "fut", "_cancel_and_wait": "fut"}


def stack_of_thread(name: str, ident: int | None) -> CallStack | None:
    """The stack of a thread; None when it has ended, or has run no Python code yet."""
    frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - it has no public name
    if frame is None:
        return None
    return CallStack(name=name, frames=list(map(_as_frame, _own_frames(_outer_first(frame)))))


def stacks_of_task(task: asyncio.Task[Any], name: str) -> Iterator[CallStack]:
    """The frames of an asyncio task, then of the tasks that it waits for, and so on.

    One that runs at this moment has the frames of the thread of its event loop, which the caller adds.
    """
    seen: set[int] = set()
    waiting = [(task, name)]
    while waiting and len(seen) < MAX_CALLS:
        current, title = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        frames, innermost = _follow(current.get_coro())
        yield CallStack(name=title, frames=list(map(_as_frame, _own_frames(frames))))
        children = _awaited_tasks(current, frames, innermost)
        waiting += [(child, f"awaited task {child.get_name()}") for child in children]


def current_stack(task: asyncio.Task[Any]) -> str:
    """The stack of an asyncio task, as in a traceback: of its thread, or of its coroutines on the event loop."""
    thread = thread_started_by(task)
    if thread is not None:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - it has no public name
        return "" if frame is None else "".join(traceback.format_stack(frame))
    frames, _ = _follow(task.get_coro())
    return "".join(line for frame, _ in frames for line in traceback.format_stack(frame, limit=1))


def is_idle_loop(ident: int | None) -> bool:
    """Whether the event loop of a thread waits for events, so that it runs no code."""
    frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - it has no public name
    return frame is None or frame.f_code.co_filename == selectors.__file__


def make_frame(file: str, line: int, function: str) -> CallFrame:
    """A frame, with its source line, bounded and escaped."""
    linecache.checkcache(file)
    source = linecache.getline(file, line).strip()
    return CallFrame(
        file=escape_line(file[-MAX_FILE:]),
        line=line,
        function=escape_line(function[:MAX_FUNCTION]),
        source=escape_line(source[:MAX_SOURCE]),
    )


def without_our_code(frames: list[CallFrame]) -> list[CallFrame]:
    """Frames without the outer ones of peerd itself; all of them if there are no others."""
    first = next((index for index, frame in enumerate(frames) if not _is_surrounding(frame.file)), 0)
    return frames[first:]


def _as_frame(found: tuple[FrameType, int]) -> CallFrame:
    frame, line = found
    code = frame.f_code
    return make_frame(code.co_filename, line, getattr(code, "co_qualname", code.co_name))


def _is_surrounding(file: str) -> bool:
    return file.startswith(_SURROUNDING) and not file.startswith(READY_WORKERS)


def _outer_first(frame: FrameType) -> list[tuple[FrameType, int]]:
    found: list[tuple[FrameType, int]] = []
    current: FrameType | None = frame
    while current is not None and len(found) < MAX_DEPTH:
        found.append((current, current.f_lineno or 0))
        current = current.f_back
    return found[::-1]


def _own_frames(frames: list[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """The innermost frames, without the outer ones of peerd, of threading and of asyncio around the handler's."""
    is_ours = [_is_surrounding(frame.f_code.co_filename) for frame, _ in frames]
    first = is_ours.index(False) if False in is_ours else 0
    return frames[first:][-MAX_FRAMES - 1 :]  # with one more than a stack holds, so that it is seen to be cut


def _follow(coroutine: object) -> tuple[list[tuple[FrameType, int]], object]:
    """The frames of a coroutine and of each that it awaits, and what the innermost awaits."""
    frames: list[tuple[FrameType, int]] = []
    current: object = coroutine
    for _ in range(MAX_DEPTH):
        match current:
            case CoroutineType():
                frame, awaited = current.cr_frame, current.cr_await
            case GeneratorType():
                frame, awaited = current.gi_frame, current.gi_yieldfrom
            case AsyncGeneratorType():
                frame, awaited = current.ag_frame, current.ag_await
            case asyncio.Future() | None:
                break
            case _:
                current = _inside(current)
                continue
        if frame is None:
            break
        frames.append((frame, frame.f_lineno or 0))
        current = awaited
    return frames, current


def _inside(awaited: object) -> object:
    """What an awaitable of the interpreter stands for: the step of an async generator, or the iterator of a future."""
    wanted = (CoroutineType, GeneratorType, AsyncGeneratorType, asyncio.Future)
    return next((found for found in gc.get_referents(awaited) if isinstance(found, wanted)), None)


def _awaited_tasks(
    task: asyncio.Task[Any], frames: list[tuple[FrameType, int]], innermost: object
) -> Iterator[asyncio.Task[Any]]:
    """The asyncio tasks for which a task waits."""
    groups: list[Iterable[object]] = [_behind(innermost)]
    for frame, _ in frames[-3:]:
        code = frame.f_code
        if code.co_filename == asyncio.taskgroups.__file__:
            groups.append(_tasks_of_group(task))
        elif code.co_filename == asyncio.tasks.__file__ and code.co_name in _AWAITED_BY_LOCAL:
            awaited = frame.f_locals.get(_AWAITED_BY_LOCAL[code.co_name])
            every = list(awaited) if isinstance(awaited, set | list | tuple) else [awaited]
            groups += map(_behind, every)
    for group in groups:
        yield from (one for one in group if isinstance(one, asyncio.Task) and one is not task and not one.done())


def _behind(future: object) -> list[object]:
    """A task itself; the children of ``gather``; the future that ``shield`` protects; of several, all."""
    found: list[object] = []
    waiting, seen = [future], set[int]()
    while waiting and len(seen) < MAX_TASKS_SEARCHED:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, asyncio.Task):
            found.append(current)
            continue
        waiting += list(getattr(current, "_children", ()))
        for callback, _ in getattr(current, "_callbacks", None) or ():
            cells = getattr(callback, "__closure__", None) or ()
            waiting += [cell.cell_contents for cell in cells if _is_filled(cell)]
    return found


def _is_filled(cell: Any) -> bool:
    try:
        return isinstance(cell.cell_contents, asyncio.Future)
    except ValueError:
        return False


def _tasks_of_group(parent: asyncio.Task[Any]) -> list[object]:
    """The tasks whose end a TaskGroup of this task waits for: they call a method of the group when they end."""
    every = asyncio.all_tasks(parent.get_loop())
    if len(every) > MAX_TASKS_SEARCHED:
        return []
    found: list[object] = []
    for one in every:
        for callback, _ in getattr(one, "_callbacks", None) or ():
            group = getattr(callback, "__self__", None)
            if isinstance(group, asyncio.TaskGroup) and getattr(group, "_parent_task", None) is parent:
                found.append(one)
    return found


_SURROUNDING: Final = (
    OUR_CODE,
    "<frozen runpy>",
    threading.__file__,
    asyncio.events.__file__,
    asyncio.base_events.__file__,
    asyncio.runners.__file__,
)
