"""The addresses at which agents receive rings: in the table `nodes`, and in text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.tables import nodes
from peerd.store.schema.types import now


class Endpoint(NamedTuple):
    """Where one incarnation of a node receives datagrams."""

    incarnation: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """As the table says it; `parse_endpoint` is the reverse.

        >>> Endpoint("life", "10.0.0.7", 7070).address, Endpoint("life", "::1", 7070).address
        ('10.0.0.7:7070', '[::1]:7070')
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_endpoints(connection: Connection) -> tuple[list[Endpoint], datetime | None]:
    """The endpoints of all active nodes, and the database's time; None where there is no node."""
    rows = _active_nodes(connection)
    known = [endpoint for row in rows if (endpoint := parse_endpoint(row.incarnation, row.address))]
    return known, rows[0].now if rows else None


def nodes_without_endpoint(connection: Connection) -> list[str]:
    """Names of the active nodes whose address has no port."""
    rows = _active_nodes(connection)
    return [row.name for row in rows if parse_endpoint(row.incarnation, row.address) is None]


def _active_nodes(connection: Connection) -> Sequence[sa.Row[Any]]:
    columns = (nodes.c.name, nodes.c.incarnation, nodes.c.address, now().label("now"))
    return connection.execute(sa.select(*columns).where(nodes.c.active)).all()


def parse_endpoint(incarnation: str | None, address: str | None) -> Endpoint | None:
    """The endpoint of a node's row; None where its address has no port.

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


def write_endpoint(connection: Connection, name: str, incarnation: str, address: str | None) -> None:
    """Write the address of this incarnation of a node."""
    own_row = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(own_row.values(address=address))
