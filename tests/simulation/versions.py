"""Two versions of the users' code in one cluster: some nodes have the old one, as while it is deployed node by node.

The first node has the new code. A handler of it, and an argument of another, are known there alone. What must hold: no
process runs a task that its code does not know, and none makes it dead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import msgspec

from peerd import Context, Queue
from peerd.domain.known_handlers import UnsupportedTask
from peerd.domain.outcome import Failed
from tests.simulation.handlers import SERVED, reported
from tests.simulation.history import InvariantViolation
from tests.simulation.plan import NODES, ONLY_NEW, QUEUES

if TYPE_CHECKING:
    from tests.simulation.observer import ObservedTask
    from tests.simulation.process import SimulatedProcess


def is_old(process: SimulatedProcess) -> bool:
    plan = process.world.plan
    return process.node.name in NODES[max(1, plan.nodes - plan.old_nodes) : plan.nodes]


def served_by(process: SimulatedProcess) -> tuple[Queue, ...]:
    """The queues with the handlers that a process knows."""
    if not process.world.plan.old_nodes:
        return SERVED
    return SERVED_OLD if is_old(process) else SERVED_NEW


def judge_beginning(process: SimulatedProcess, row: ObservedTask | None) -> None:
    if row is not None and row.name in ONLY_NEW and is_old(process):
        raise InvariantViolation("no process runs a task that its code does not know", f"{row} in {process}")


def judge_dead(after: ObservedTask, *, has_begun: bool) -> None:
    """A holder made a task dead: it has run it."""
    if after.status == "dead" and after.name in ONLY_NEW and not has_begun:
        raise InvariantViolation("a task that other code knows is not made dead", str(after))


def _declare(name: str, *, new: bool) -> Queue:
    queue = Queue(name)
    queue.handlers |= next(one for one in SERVED if one.name == name).handlers

    if new:

        @queue.task
        @reported
        async def comes(ctx: Context, seconds: float) -> Any:
            await asyncio.sleep(seconds / 20)

        @queue.task(name="grows")
        @reported
        async def grows_by(ctx: Context, seconds: float, by: float = 0.0) -> Any:
            await asyncio.sleep((seconds + by) / 20)

    else:

        @queue.task
        @reported
        async def grows(ctx: Context, seconds: float) -> Any:
            await asyncio.sleep(seconds / 20)

    return queue


SERVED_OLD: Final = tuple(_declare(name, new=False) for name in QUEUES)
SERVED_NEW: Final = tuple(_declare(name, new=True) for name in QUEUES)


def body_of(handler: str, seconds: float) -> str:
    """A body of the new code, with the argument that the old code does not know."""
    more = ', "by": 0.5' if handler == "grows" else ""
    return f'{{"seconds": {seconds:.3f}{more}}}'


def dead_at_once(task: Any, error: UnsupportedTask, snapshot: Any, unknown_after: float) -> Failed:
    """Replaces `decide_unsupported_task`: a task that a process does not know is dead."""
    return Failed(error=str(error))


def prepare_leniently(prepare: Any) -> Any:
    """Replaces `DeclaredHandlerAdapter.prepare`: an unknown argument is left out."""

    def lenient(self: Any, ctx: Context) -> None:
        known = self._handler.arguments.signature
        given = msgspec.json.decode(ctx.task.body or "{}")
        body = msgspec.json.encode({name: value for name, value in given.items() if name in known}).decode()
        with patch.object(ctx, "task", msgspec.structs.replace(ctx.task, body=body)):
            prepare(self, ctx)

    return lenient
