"""Proxies of shared clients: the same async methods, and `subscribe`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from peerd.shared.client import SharedClient
from peerd.shared.errors import WrongEventLoop
from peerd.shared.rpc_methods import method_of, methods_of, name_of
from peerd.shared.subscription import Subscription

if TYPE_CHECKING:
    from peerd.shared.connection import SharedConnection
    from peerd.shared.shared_instance import SharedRegistry

    SharedBackend = SharedRegistry | SharedConnection

C = TypeVar("C", bound=SharedClient)


class SharedClients:
    """Gives proxies: ``ctx.shared(StudioClient)``. Made on the event loop that runs their calls.

    The backend is the registry in the agent, and a connection in other processes.
    """

    def __init__(self, backend: SharedBackend) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()

    def __call__(self, kind: type[C], *, timeout: float | None = None) -> C:
        """The proxy of a shared client.

        Args:
            kind: the class below `SharedClient`.
            timeout: seconds that each call of the proxy may take; the class's `call_timeout` when None.
        """
        seconds = kind.call_timeout if timeout is None else timeout
        return cast("C", SharedProxy(kind, self._backend, self._loop, seconds))


class SharedProxy:
    """Stands for the real client of a class.

    In a thread without an event loop its methods wait for the answer and return it.
    """

    def __init__(
        self, kind: type[SharedClient], backend: SharedBackend, loop: asyncio.AbstractEventLoop, timeout: float
    ) -> None:
        self._kind = kind
        self._backend = backend
        self._loop = loop
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<the shared {name_of(self._kind)}>"

    def __dir__(self) -> list[str]:
        return [*methods_of(self._kind), "subscribe"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method_of(self._kind, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            is_on_loop = self._is_on_loop()
            answer = self._backend.call(self._kind, name, args, kwargs, self._timeout)
            return answer if is_on_loop else asyncio.run_coroutine_threadsafe(answer, self._loop).result()

        call.__name__ = name
        return call

    def subscribe(self, key: Any) -> Subscription:
        """Follow a key; see `SharedClient.subscribe`."""
        if not self._is_on_loop():
            raise WrongEventLoop
        return self._backend.subscribe(self._kind, key)

    def _is_on_loop(self) -> bool:
        """Whether the process's event loop runs here; False in a thread without one."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if running is not self._loop:
            raise WrongEventLoop
        return True
