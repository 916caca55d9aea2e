"""Where a node hears: what it binds, and what it tells the others."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from sqlalchemy.engine import URL

from peerd.config.settings import ClusterSettings, NodeSettings

LOOPBACK: Final = "127.0.0.1"
DISCARD_PORT: Final = 9
"""A port of which only the way matters."""


def advertised_host(node: NodeSettings, url: URL) -> str:
    """Where others reach this machine: [node] address; else the address that it reaches its database from.

    Args:
        node: the node's settings.
        url: the database's.
    """
    if url.get_backend_name() == "sqlite":
        return LOOPBACK  # nobody from elsewhere can be in this cluster
    if node.address:
        return node.address.removeprefix("[").removesuffix("]")
    return _local_address_towards(url.host or LOOPBACK) or socket.gethostname()


def bound_host(cluster: ClusterSettings, advertised: str, url: URL) -> str:
    """What to bind: [cluster] bind; else every address, and on SQLite the loopback alone."""
    if cluster.bind is not None:
        return cluster.bind
    if url.get_backend_name() == "sqlite":
        return LOOPBACK
    return "::" if ":" in advertised else "0.0.0.0"  # noqa: S104 - what comes in is authenticated


def _local_address_towards(host: str) -> str | None:
    """This machine's address on the way to another; nothing is sent."""
    with suppress(OSError):
        family, _, _, _, address = socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect(address)
            return str(one.getsockname()[0])
    return None
