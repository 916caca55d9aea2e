"""The shared clients of an agent, by name: for its own code, and for `peerd.shared.server`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from peerd.shared.client import SharedClient
from peerd.shared.errors import AgentLost, NotShared, SharedCallTimedOut
from peerd.shared.rpc_methods import method_of, name_of
from peerd.shared.shared_instance import SharedInstance
from peerd.shared.subscription import Subscription


class SharedRegistry:
    """The shared instances of an agent; the backend of proxies in the agent itself."""

    def __init__(self) -> None:
        self._instances: dict[str, SharedInstance] = {}
        self._is_complete = False
        self._changed = asyncio.Event()

    @property
    def names(self) -> list[str]:
        """Of the shared classes."""
        return list(self._instances)

    def add(self, instance: SharedInstance) -> None:
        """Share one more."""
        self._instances[instance.name] = instance
        self._wake_waiters()

    def mark_complete(self) -> None:
        """The setup has ended: a request for another class fails from now on, instead of waiting for it."""
        self._is_complete = True
        self._wake_waiters()

    def clear(self) -> None:
        """Forget all instances, before a new call of the setup; their subscriptions fail."""
        self._is_complete = False
        instances, self._instances = list(self._instances.values()), {}
        for instance in instances:
            instance.end(AgentLost(instance.kind.__name__))

    async def instance(self, name: str, within: float) -> SharedInstance:
        """The instance of a class; until the setup has ended, it may still be shared.

        Raises:
            NotShared: there is none of this name.
            SharedCallTimedOut: the setup has neither shared it nor ended in time.
        """
        try:
            async with asyncio.timeout(within):
                while not (self._is_complete or name in self._instances):
                    await self._changed.wait()
        except TimeoutError:
            raise SharedCallTimedOut(name, within, "the agent's setup has not shared it yet") from None
        return self._get(name)

    async def call(
        self, kind: type[SharedClient], method: str, args: Sequence[Any], kwargs: Mapping[str, Any], within: float
    ) -> Any:
        """Call a method; see `SharedInstance.call`."""
        method_of(kind, method)
        instance = await self.instance(name_of(kind), within)
        return await instance.call(method, args, kwargs, within)

    def subscribe(self, kind: type[SharedClient], key: Any) -> Subscription:
        """Follow a key.

        Raises:
            NotShared: the class is not shared.
        """
        instance = self._get(name_of(kind))
        subscription = Subscription(key, lambda ended: instance.unfollow(key, ended))
        instance.follow(key, subscription)
        return subscription

    def _get(self, name: str) -> SharedInstance:
        if name not in self._instances:
            raise NotShared(name)
        return self._instances[name]

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
