"""Workers that keep a cache of a remote source, and the functions that refresh it by the clock."""

import asyncio
from typing import Any

import remote
import structlog

from peerd import Message, ScheduleContext, Task, TaskWorker

log = structlog.get_logger("rates")


class Cache:
    """What this process knows of the rates."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.version = 0
        self.by = "nobody"
        self._one_at_a_time = asyncio.Lock()  # an answer must not be overwritten by an older one

    async def refresh(self, by: str) -> None:
        """Read everything anew. Where that fails, what was known stays."""
        async with self._one_at_a_time:
            known = await remote.ask("read")
            self.rates, self.version, self.by = known["rates"], known["version"], by
            log.info("cache refreshed", by=by, version=self.version)


cache = Cache()
"""One in each process: schedules, messages and tasks of a process meet here."""


async def refresh() -> None:
    """The safety net, in every worker: whatever went wrong, it is right again after a while."""
    await cache.refresh("schedule")


async def pull(ctx: ScheduleContext) -> None:
    """In one worker of the node: has anything changed? Only then are all told to refresh, this one too."""
    if (await remote.ask("version"))["version"] != cache.version:
        ctx.messenger.send_to_workers("refresh", {"by": "pull"})


class Rates(TaskWorker):
    """Uses the cache, and refreshes it when it is told to."""

    queues = ("rates",)

    async def setup(self) -> None:
        """Listen, and fill the cache: a worker that replaces another one cannot wait for the next change."""
        self.process.messenger.on("refresh", self.refresh)
        self.process.messenger.on("what do you know?", self.tell)
        self.process.run_in_background(cache.refresh("start"))

    async def refresh(self, message: Message) -> None:
        """Somebody has seen a change: the agent (push), or a worker (pull)."""
        await cache.refresh(message.data["by"])

    def tell(self, message: Message) -> dict[str, Any]:
        """What this worker knows, and since when."""
        return {"slot": self.process.slot, "version": cache.version, "by": cache.by, "rates": cache.rates}

    async def handle_task(self, task: Task) -> list[Any]:
        """Ask every worker of this node what it knows."""
        messenger = self.process.messenger
        asked = [messenger.request(peer.pid, "what do you know?") for peer in messenger.workers]
        return await asyncio.gather(*asked)
