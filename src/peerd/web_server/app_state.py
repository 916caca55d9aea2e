"""What the app of a web process finds in the state of a request beside its process: [access], and the rings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from peerd.config.settings import AccessSettings
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_ups import RingReceiver
from peerd.runtime.process.process_context import ProcessContext

NODE_ACCESS_STATE: Final = "peerd_access"
"""The key of `scope["state"]` under which the app finds the `NodeAccess`."""
RINGS_STATE: Final = "peerd_rings"
"""The key of `scope["state"]` under which the app finds the `RingSubscriptions`."""

OnRing = Callable[[tuple[str, ...]], object]
"""Called on the event loop with the queues whose tasks have changed; with none if it may be any."""


class NodeAccess(Struct, frozen=True):
    """[access]."""

    settings: AccessSettings


def node_access(state: Mapping[str, Any]) -> NodeAccess | None:
    """What the web process has put into the state; None in another server."""
    found = state.get(NODE_ACCESS_STATE)
    return found if isinstance(found, NodeAccess) else None


class RingSubscriptions:
    """Calls functions for each ring about tasks. Without any, the process has no wake-up socket and gets few rings.

    Args:
        process: the web process.
        run_directory: of the node, in which the agent finds the socket.
    """

    def __init__(self, process: ProcessContext, run_directory: Path) -> None:
        self._run_directory = run_directory
        self._subscribed: list[OnRing] = []
        self._rings = RingReceiver(process, self._on_ring)

    def subscribe(self, on_ring: OnRing) -> None:
        """Call a function for each ring from now on; readings that need no ring find the same, a little later."""
        if not self._subscribed:
            self._rings.open(self._run_directory)
        self._subscribed.append(on_ring)

    def unsubscribe(self, on_ring: OnRing) -> None:
        """Call it no more."""
        self._subscribed.remove(on_ring)
        if not self._subscribed:
            self._rings.close()

    def _on_ring(self, ring: Ring) -> None:
        match ring:
            case TasksAvailable(queues):
                self._call(queues)
            case ClaimRevoked():
                self._call(())

    def _call(self, queues: tuple[str, ...]) -> None:
        for on_ring in list(self._subscribed):
            on_ring(queues)


def ring_subscriptions(state: Any) -> RingSubscriptions | None:
    """What the web process has put into the state of a request; None in another server.

    >>> ring_subscriptions(object()) is None
    True
    """
    found = getattr(state, RINGS_STATE, None)
    return found if isinstance(found, RingSubscriptions) else None
