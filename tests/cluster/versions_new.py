"""Code of the users of a cluster after a deployment: a handler more, one less, and an argument with a default."""

from __future__ import annotations

from peerd import Context, Queue

mixed = Queue("mixed")


@mixed.task
async def steady(ctx: Context, n: int) -> str:
    return f"new {n}"


@mixed.task
async def grows(ctx: Context, n: int, by: int = 10) -> str:
    return f"new {n + by}"


@mixed.task
async def comes(ctx: Context, n: int) -> str:
    return f"new {n}"


@mixed.task(process=True)
def comes_apart(ctx: Context) -> str:
    return "new"
