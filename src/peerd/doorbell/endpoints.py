"""Where nodes hear: their addresses in the table, and how these are written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import nodes


class Endpoint(msgspec.Struct, frozen=True):
    """Where one life of a node hears the bell."""

    incarnation: str
    host: str
    port: int


class ActiveEndpoints(NamedTuple):
    """Where all active nodes hear, and what time it is by the database's clock; None where there is no node."""

    all: list[Endpoint]
    now: datetime | None


def read_endpoints(connection: Connection) -> ActiveEndpoints:
    """The doors of all nodes that are active."""
    found = _active(connection)
    known = [endpoint for row in found if (endpoint := parse_endpoint(row.incarnation, row.address))]
    return ActiveEndpoints(known, found[0].now if found else None)


def nodes_without_endpoint(connection: Connection) -> list[str]:
    """Names of the nodes that are active, and have no address where they hear."""
    return [row.name for row in _active(connection) if parse_endpoint(row.incarnation, row.address) is None]


def _active(connection: Connection) -> Sequence[sa.Row[Any]]:
    columns = (nodes.c.name, nodes.c.incarnation, nodes.c.address, now().label("now"))
    return connection.execute(sa.select(*columns).where(nodes.c.active)).all()


def parse_endpoint(incarnation: str | None, address: str | None) -> Endpoint | None:
    """The door that a node's address says; None where it says none.

    >>> parse_endpoint("life", "[::1]:7070")
    Endpoint(incarnation='life', host='::1', port=7070)
    >>> parse_endpoint("life", "10.0.0.7") is None
    True
    """
    host, _, port = (address or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not incarnation or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        return None
    return Endpoint(incarnation, host, int(port))


def format_address(host: str, port: int) -> str:
    """A door as the table says it.

    >>> format_address("10.0.0.7", 7070), format_address("::1", 7070)
    ('10.0.0.7:7070', '[::1]:7070')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_endpoint(connection: Connection, name: str, incarnation: str, address: str | None) -> None:
    """Say where this life of the node hears."""
    own_row = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(own_row.values(address=address))
