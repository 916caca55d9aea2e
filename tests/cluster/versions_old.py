"""Code of the users of a cluster before a deployment; versions_new is the same after it."""

from __future__ import annotations

from peerd import Context, Queue

mixed = Queue("mixed")


@mixed.task
async def steady(ctx: Context, n: int) -> str:
    return f"old {n}"


@mixed.task
async def grows(ctx: Context, n: int) -> str:
    return f"old {n}"


@mixed.task
async def goes(ctx: Context) -> str:
    return "old"
