"""Handlers: a coroutine, a thread, a process of its own; and the outcomes that they can ask for."""

import asyncio
import time

from peerd import Cancel, Context, Dead, Queue, Retry, Snooze

numbers = Queue("numbers")


@numbers.task
async def count_to(ctx: Context, number: int) -> int:
    """A coroutine: it can be cancelled at each await."""
    for step in range(number):
        await ctx.progress(step / number, f"at {step}")
        await asyncio.sleep(0.05)
    return number


@numbers.task
def square(number: int) -> int:
    """A plain function runs in a thread."""
    time.sleep(0.05)
    return number * number


@numbers.task(process=True)
def largest_prime_below(limit: int) -> int:
    """Hard work runs in a process of its own, which a cancel kills."""
    return max(n for n in range(2, limit) if all(n % divisor for divisor in range(2, int(n**0.5) + 1)))


@numbers.task(max_attempts=3, backoff=lambda failed: 0.1 * failed)
async def think(ctx: Context, wish: str) -> str:
    """What a handler can ask for."""
    match wish, ctx.task.attempts:
        case "second time", 0:
            raise Retry(reason="the first attempt never works")
        case "later", _ if ctx.task.start_at is None:
            raise Snooze("100ms", reason="too early")
        case "never mind", _:
            raise Cancel("nobody wants it any more")
        case "impossible", _:
            raise Dead("it cannot be done, however often one tries")
    return f"{wish}: after {ctx.task.attempts} failed attempts"
