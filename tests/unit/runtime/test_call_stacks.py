from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from peerd.domain.task_stack import CallStack
from peerd.runtime.observability.call_stacks import is_idle_loop, make_frame, stack_of_thread, stacks_of_task
from tests.support.rows import rows

ENDLESS = 3600.0


async def innermost() -> None:
    await asyncio.sleep(ENDLESS)


async def items() -> AsyncIterator[int]:
    await innermost()
    yield 1


class Custom:
    def __await__(self) -> Generator[Any, None, None]:
        return (yield from innermost().__await__())


async def over_generator() -> None:
    async for _ in items():
        pass


async def over_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(innermost())


async def over_task() -> None:
    await asyncio.create_task(innermost())


WAYS: dict[str, Callable[[], Awaitable[Any]]] = {
    one.__name__: one for one in (over_generator, over_group, over_task)
} | {
    "custom": Custom, "wait_for": lambda: asyncio.wait_for(innermost(), ENDLESS),
    "wait": lambda: asyncio.wait([asyncio.ensure_future(innermost())]), "shield": lambda: asyncio.shield(innermost()),
    "gather": lambda: asyncio.gather(asyncio.shield(innermost()), asyncio.sleep(ENDLESS)),
}  # fmt: skip


async def stacks_of(function: Callable[[], Awaitable[Any]]) -> list[CallStack]:
    async def run() -> None:
        await function()

    task = asyncio.create_task(run())
    for _ in range(5):
        await asyncio.sleep(0)
    try:
        return await asyncio.to_thread(lambda: list(stacks_of_task(task, "coroutine")))
    finally:
        task.cancel()
        await asyncio.wait([task])


@rows("way, function", WAYS.items())
async def test_what_a_task_waits_for_is_followed_to_the_innermost(
    way: str, function: Callable[[], Awaitable[Any]]
) -> None:
    names = [frame.function for stack in await stacks_of(function) for frame in stack.frames]
    outer = way if way.startswith("over_") else "stacks_of.<locals>.run"
    assert (names.count(outer), names.count("innermost")) == (1, 1), names
    assert names.index(outer) < names.index("innermost")


async def test_tasks_that_wait_for_each_other_are_shown_once() -> None:
    async def wait_for_both(tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.sleep(0)
        await asyncio.wait(tasks)

    tasks: list[asyncio.Task[None]] = []
    tasks += [asyncio.create_task(wait_for_both(tasks), name=f"number {n}") for n in range(2)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert [stack.name for stack in stacks_of_task(tasks[0], "first")] == ["first", "awaited task number 1"]
    for task in tasks:
        task.cancel()


def test_a_frame_is_bounded_and_escaped_and_a_thread_that_has_ended_has_none() -> None:
    frame = make_frame("/tmp/\x1b[31mred" + "x" * 1000, 3, "f\n" * 500)
    assert ("\x1b" in frame.file, "\n" in frame.function) == (False, False)
    assert (len(frame.file), len(frame.function), frame.source) == (300, 180, "")
    assert stack_of_thread("gone", 12345) is None
    assert is_idle_loop(12345)
