"""Which peers are proxies whose headers are believed."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from msgspec import Struct

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
