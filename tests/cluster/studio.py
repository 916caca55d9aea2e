"""For the agents of the clusters under test: a shared client whose source is a folder, and a fragile component."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from peerd import Agent, Context, Queue, SharedClient

studio = Queue("studio")


def note(options: Any, event: str, **more: Any) -> None:
    with Path(options["events"]).open("a") as file:
        file.write(json.dumps({"event": event, "task": 0, "pid": os.getpid(), **more}) + "\n")


class Feed(SharedClient):
    """Emits what is written into the files of a folder."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.followed: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            for key, known in list(self.followed.items()):
                if (now := self.read(key)) != known:
                    self.followed[key] = now
                    self.emit(key, now)
            await asyncio.sleep(0.02)

    async def follow(self, key: str) -> None:
        note(self.options, "follow", key=key)
        self.followed[key] = self.read(key)
        self.emit(key, self.followed[key])

    async def unfollow(self, key: str) -> None:
        del self.followed[key]

    async def publish(self, key: str, value: str) -> None:
        (Path(self.options["gates"]) / key).write_text(value)

    async def pid(self) -> int:
        return os.getpid()

    def read(self, key: str) -> str:
        file = Path(self.options["gates"]) / key
        return file.read_text() if file.exists() else ""


async def setup(agent: Agent) -> None:
    gates = Path(agent.options["gates"])
    if (gates / "broken").exists():
        raise ValueError("the studio is closed")
    agent.share(Feed, agent.options)
    agent.component("fragile", lambda: fragile(agent, gates))
    agent.component("block", lambda: block(agent, gates))
    agent.on_stop(lambda: stopped(agent))
    agent.on_stop(fail_to_close)
    agent.log.info("good evening", guests=3)
    note(agent.options, "set up", node=agent.node)


async def stopped(agent: Agent) -> None:
    """It takes a while, as closing a connection does."""
    await asyncio.sleep(0.2)
    note(agent.options, "stopped")


async def fail_to_close() -> None:
    raise OSError("the connection was closed already")


async def fragile(agent: Agent, gates: Path) -> None:
    note(agent.options, "fragile began")
    while not (gates / "break").exists():  # noqa: ASYNC110 - the test makes it
        await asyncio.sleep(0.02)
    (gates / "break").unlink()
    raise SystemExit("it is broken")


async def block(agent: Agent, gates: Path) -> None:
    """Hold the event loop, for longer than a node may be silent, when there is a file `block`."""
    while not (gates / "block").exists():  # noqa: ASYNC110 - the test makes it
        await asyncio.sleep(0.02)
    time.sleep(6)  # noqa: ASYNC251 - as careless code does
    note(agent.options, "unblocked")
    (gates / "block").unlink()


@studio.task
async def follow(ctx: Context, key: str, until: str) -> list[str]:
    """Notes the values of a key until one of them comes."""
    seen = []
    async with ctx.shared(Feed).subscribe(key) as updates:
        async for update in updates:
            more = {"missed": update.missed, "generation": update.generation}
            note(ctx.options, "saw", key=key, value=update.value, **more)
            seen.append(update.value)
            if update.value == until:
                break
    return seen


@studio.task
async def call(ctx: Context) -> int:
    feed = ctx.shared(Feed, timeout=30.0)
    await feed.publish("news", "called")
    answer: int = await feed.pid()
    return answer


@studio.task
def call_from_a_thread(ctx: Context) -> Any:
    return ctx.shared(Feed, timeout=30.0).pid()


@studio.task
async def fail(ctx: Context) -> None:
    raise ValueError("no such film")
