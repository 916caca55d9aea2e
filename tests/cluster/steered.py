"""Handlers whose stacks tests read: each stops in a function of its own name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from peerd import Context, Queue

steered = Queue("steered")
SECRET = "hunter" + "2"
"""A value of variables, which no stack may show."""


def gate(ctx: Context) -> Path:
    return Path(ctx.options["gates"]) / str(ctx.task.id)


async def innermost(ctx: Context, secret: str) -> None:
    while not gate(ctx).exists():  # noqa: ASYNC110 - it is a file
        await asyncio.sleep(0.05)


async def numbers(ctx: Context) -> AsyncIterator[int]:
    await innermost(ctx, SECRET)
    yield 1


async def deeper(ctx: Context, levels: int) -> None:
    if levels:
        await deeper(ctx, levels - 1)
        return
    async for _ in numbers(ctx):
        pass


@steered.task
async def awaits_deeply(ctx: Context) -> None:
    await deeper(ctx, 5)


def busy_loop(ctx: Context) -> None:
    while not gate(ctx).exists():
        time.sleep(0.01)


@steered.task
async def blocks_the_loop(ctx: Context) -> None:
    busy_loop(ctx)


@steered.task
async def waits_beside(ctx: Context) -> None:
    await innermost(ctx, SECRET)


def compute(ctx: Context) -> None:
    while not gate(ctx).exists():
        sum(range(10_000))


@steered.task(process=True)
def in_a_process(ctx: Context) -> None:
    compute(ctx)
