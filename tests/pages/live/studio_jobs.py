"""The handlers of a studio: some take long and report progress, some fail."""

from __future__ import annotations

import asyncio

from peerd import Context, Queue

video = Queue("video")
mail = Queue("mail")


@video.task(timeout="1h")
async def transcode(ctx: Context, source: str, seconds: float = 600.0) -> dict[str, object]:
    steps = max(1, round(seconds * 2))
    for step in range(steps):
        await ctx.progress(step / steps, f"encoding {source}, segment {step + 1} of {steps}")
        if step % 4 == 0:
            ctx.log.info("segment is encoded", segment=step + 1)
        await asyncio.sleep(seconds / steps)
    return {"output": source.replace(".mov", ".mp4"), "streams": [{"codec": "av1"}, {"codec": "opus"}]}


@video.task
async def probe(source: str) -> dict[str, str]:
    return {"source": source, "container": "mov"}


@video.task
async def mutter(ctx: Context, text: str) -> None:
    while True:
        ctx.log.info(text, value=text)
        await asyncio.sleep(0.5)


@video.task(timeout=0.5, max_attempts=1)
async def upload(ctx: Context, source: str) -> None:
    ctx.log.warning("the archive does not answer", source=source)
    await asyncio.sleep(60)


@mail.task(max_attempts=2, backoff=lambda attempts: 21_600.0 * attempts)  # later than the last test
async def notify(ctx: Context, to: str) -> None:
    ctx.log.error("550: mailbox is full", to=to)
    raise ConnectionRefusedError(f"mail server refused {to}")
