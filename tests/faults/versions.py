"""Two versions of the load's code side by side, as while it is deployed on one node after another.

The nodes of `OLD_NODES` load `tests.faults.versions:old`, all others `tests.faults.versions:new`. Both have what stands
in `tests.faults.jobs`. `goes` is known to the old code alone; `comes`, `comes_apart` and the argument `by` of `grows`
to the new. Each of these handlers records its version of the code in the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Final

from peerd import Context, Queue
from tests.faults.jobs import Result, attempt, result, work

OLD: Final = "old"
NEW: Final = "new"
BOTH: Final = frozenset({OLD, NEW})
OLD_NODES: Final = frozenset({"two"})
"""The names of the nodes that have the old code."""
KNOWN_TO: Final = {"goes": frozenset({OLD}), "comes": frozenset({NEW}), "comes_apart": frozenset({NEW})}
"""By handler: the code that knows it, where not both do."""
SHORT: Final = 0.01
"""Seconds that these handlers take."""

old, new = Queue(work.name), Queue(work.name)
for queue in (old, new):
    queue.handlers |= work.handlers


def code_of(node: str) -> str:
    """The code that a node of this name has; the name of its queue in this module."""
    return OLD if node in OLD_NODES else NEW


def known_to(handler: str, arguments: Container[str]) -> frozenset[str]:
    """The code that knows a handler, with arguments of these names."""
    if handler == "grows" and "by" in arguments:
        return frozenset({NEW})
    return KNOWN_TO.get(handler, BOTH)


@old.task
async def goes(ctx: Context, key: str) -> Result:
    with attempt(ctx, "goes", key, OLD):
        await asyncio.sleep(SHORT)
        return result(ctx)


@old.task(name="grows")
async def grows_before(ctx: Context, key: str) -> Result:
    with attempt(ctx, "grows", key, OLD):
        await asyncio.sleep(SHORT)
        return result(ctx)


@new.task(name="grows")
async def grows_after(ctx: Context, key: str, by: int = 0) -> Result:
    with attempt(ctx, "grows", key, NEW):
        await asyncio.sleep(SHORT)
        return result(ctx)


@new.task
async def comes(ctx: Context, key: str) -> Result:
    with attempt(ctx, "comes", key, NEW):
        await asyncio.sleep(SHORT)
        return result(ctx)


@new.task(process=True)
def comes_apart(ctx: Context, key: str) -> Result:
    with attempt(ctx, "comes_apart", key, NEW):
        return result(ctx)


HANDLERS: Final = {**old.handlers, **new.handlers}
"""All of them, as whoever enqueues knows them: of the new code, where both have one."""
