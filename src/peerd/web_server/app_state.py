"""What the app of a web process finds in the state of a request beside its process: the peer, [access], the rings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from peerd.config.settings import AccessSettings
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable
from peerd.doorbell.wake_ups import RingReceiver
from peerd.runtime.process.process_context import ProcessContext

PEER_STATE = "peerd_peer"
"""The key of `scope["state"]` under which the app finds the `ConnectionPeer`."""


class ConnectionPeer(Struct, frozen=True):
    """The program at the other end of a connection, before any header was believed.

    Attributes:
        address: of it; None of a unix socket.
        is_proxy: whether its headers are believed.
    """

    address: str | None
    is_proxy: bool


class TrustedProxies:
    """The proxies of ``forwarded_allow_ips``: addresses, networks, or ``*`` for every peer that has an address.

    >>> proxies = TrustedProxies(["127.0.0.1", "10.0.0.0/8"])
    >>> [proxies.trusts(peer) for peer in ("127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3", "10.evil.example", None)]
    [True, True, True, False, False]
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self._every = False
        self._networks = []
        for one in allowed:
            if one == "*":
                self._every = True
                continue
            try:
                self._networks.append(ip_network(one, strict=False))
            except ValueError:  # a name, which no peer has
                continue

    def trusts(self, address: str | None) -> bool:
        """Whether the peer of this address is one of them."""
        if address is None:
            return False
        if self._every:
            return True
        try:
            parsed: IPv4Address | IPv6Address = ip_address(address)
        except ValueError:
            return False
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(plain in network for network in self._networks)


# ---------------------------------------------------------------- [access], and the rings


ACCESS_STATE: Final = "peerd_access"
"""The key of `scope["state"]` under which the app finds the settings of [access]."""
RINGS_STATE: Final = "peerd_rings"
"""The key of `scope["state"]` under which the app finds the `RingSubscriptions`."""

OnRing = Callable[[tuple[str, ...]], object]
"""Called on the event loop with the queues whose tasks have changed; with none if it may be any."""


def access_settings(state: Mapping[str, Any]) -> AccessSettings | None:
    """What the web process has put into the state; None in another server."""
    found = state.get(ACCESS_STATE)
    return found if isinstance(found, AccessSettings) else None


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
