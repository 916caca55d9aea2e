"""User code that makes spans of its own, for the tests of tracing."""

from __future__ import annotations

from opentelemetry import trace

from peerd import Context, Queue

traced = Queue("traced")
tracer = trace.get_tracer("user")


@traced.task
async def coroutine(ctx: Context) -> None:
    with tracer.start_as_current_span("in the coroutine"):
        await ctx.enqueue(thread.with_args())


@traced.task
def thread(ctx: Context) -> None:
    with tracer.start_as_current_span("in the thread"):
        pass


@traced.task(process=True)
def process() -> None:
    with tracer.start_as_current_span("in the process"):
        pass


@traced.task(backoff=lambda _: 0.0)
async def fails_once(ctx: Context) -> None:
    if not ctx.task.attempts:
        raise ValueError("not yet")
