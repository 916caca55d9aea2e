"""Proxies of shared clients: `subscribe`, and the methods that another process may call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from peerd.shared.client import SharedClient, Subscription, method_of, methods_of, name_of
from peerd.shared.protocol import WrongEventLoop

if TYPE_CHECKING:
    from peerd.shared.connection import SharedConnection
    from peerd.shared.shared_instance import SharedRegistry

C = TypeVar("C", bound=SharedClient)


class SharedClients:
    """Gives proxies: ``ctx.shared(StudioClient)``. Made on the event loop that runs their calls.

    The backend is the registry in the agent, and a connection in other processes.
    """

    def __init__(self, backend: SharedRegistry | SharedConnection) -> None:
        self.backend = backend
        self.loop = asyncio.get_running_loop()

    def __call__(self, kind: type[C], *, timeout: float | None = None) -> C:
        """The proxy of a shared client.

        Args:
            kind: the class below `SharedClient`.
            timeout: seconds that each call of the proxy may take; the class's `call_timeout` when None.
        """
        return cast("C", SharedProxy(kind, self, kind.call_timeout if timeout is None else timeout))


class SharedProxy:
    """Stands for the real client of a class.

    In a thread without an event loop its methods wait for the answer and return it.
    """

    def __init__(self, kind: type[SharedClient], clients: SharedClients, timeout: float) -> None:
        self._kind = kind
        self._clients = clients
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<the shared {name_of(self._kind)}>"

    def __dir__(self) -> list[str]:
        return [*methods_of(self._kind), "subscribe"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method_of(self._kind, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            is_on_loop = self._is_on_loop()
            answer = self._clients.backend.call(self._kind, name, args, kwargs, self._timeout)
            return answer if is_on_loop else asyncio.run_coroutine_threadsafe(answer, self._clients.loop).result()

        call.__name__ = name
        return call

    def subscribe(self, key: Any) -> Subscription:
        """Follow a key; see `SharedClient.subscribe`."""
        if not self._is_on_loop():
            raise WrongEventLoop
        return self._clients.backend.subscribe(self._kind, key)

    def _is_on_loop(self) -> bool:
        """Whether the process's event loop runs here; False in a thread without one."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if running is not self._clients.loop:
            raise WrongEventLoop
        return True
