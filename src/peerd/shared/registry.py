"""What the agent shares: its clients by name, for its own code and for the other processes of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from peerd.shared.client import SharedClient
from peerd.shared.errors import AgentLost, NotShared, SharedCallTimedOut
from peerd.shared.rpc_methods import method_of, name_of
from peerd.shared.shared_instance import Holder
from peerd.shared.subscription import Subscription


class Sharing:
    """The holders of an agent. It is a source for proxies in the agent itself; `peerd.shared.server` serves others."""

    def __init__(self) -> None:
        self._holders: dict[str, Holder] = {}
        self._settled = False
        self._changed = asyncio.Event()

    @property
    def names(self) -> list[str]:
        """Of the classes that are shared."""
        return list(self._holders)

    def add(self, holder: Holder) -> None:
        """Share one more."""
        self._holders[holder.name] = holder
        self._tell()

    def settle(self) -> None:
        """All that will be shared is: who asks for another class is told so, instead of waiting for it."""
        self._settled = True
        self._tell()

    def clear(self) -> None:
        """Share nothing, for now; who follows is told to begin anew."""
        self._settled = False
        holders, self._holders = list(self._holders.values()), {}
        for holder in holders:
            holder.end(AgentLost(holder.kind.__name__))

    async def holder(self, name: str, within: float) -> Holder:
        """One of them; while the user's setup has not ended it may still come.

        Raises:
            NotShared: there is none of this name.
        """
        try:
            async with asyncio.timeout(within):
                while not (self._settled or name in self._holders):
                    await self._changed.wait()
        except TimeoutError:
            raise SharedCallTimedOut(name, within, "the agent's setup has not shared it yet") from None
        if name not in self._holders:
            raise NotShared(name)
        return self._holders[name]

    # ---------------------------------------------------------------- for proxies in the agent itself

    async def call(
        self, kind: type[SharedClient], method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float
    ) -> Any:
        """Call a method; see `Holder.call`."""
        method_of(kind, method)
        holder = await self.holder(name_of(kind), within)
        return await holder.call(method, args, kwargs, within)

    def subscribe(self, kind: type[SharedClient], key: Any) -> Subscription:
        """Follow a key.

        Raises:
            NotShared: the class is not shared.
        """
        if name_of(kind) not in self._holders:
            raise NotShared(name_of(kind))
        holder = self._holders[name_of(kind)]
        subscription = Subscription(key, lambda ended: holder.unfollow(key, ended))
        holder.follow(key, subscription)
        return subscription

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
