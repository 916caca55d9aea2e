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


class Door(msgspec.Struct, frozen=True):
    """Where one life of a node hears the bell."""

    incarnation: str
    host: str
    port: int


class Doors(NamedTuple):
    """Where all active nodes hear, and what time it is by the database's clock; None where there is no node."""

    all: list[Door]
    now: datetime | None


def doors(connection: Connection) -> Doors:
    """The doors of all nodes that are active."""
    found = _active(connection)
    known = [door for row in found if (door := door_of(row.incarnation, row.address))]
    return Doors(known, found[0].now if found else None)


def nodes_without_door(connection: Connection) -> list[str]:
    """Names of the nodes that are active, and have no address where they hear."""
    return [row.name for row in _active(connection) if door_of(row.incarnation, row.address) is None]


def _active(connection: Connection) -> Sequence[sa.Row[Any]]:
    columns = (nodes.c.name, nodes.c.incarnation, nodes.c.address, now().label("now"))
    return connection.execute(sa.select(*columns).where(nodes.c.active)).all()


def door_of(incarnation: str | None, address: str | None) -> Door | None:
    """The door that a node's address says; None where it says none.

    >>> door_of("life", "[::1]:7070")
    Door(incarnation='life', host='::1', port=7070)
    >>> door_of("life", "10.0.0.7") is None
    True
    """
    host, _, port = (address or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not incarnation or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        return None
    return Door(incarnation, host, int(port))


def address_of(host: str, port: int) -> str:
    """A door as the table says it.

    >>> address_of("10.0.0.7", 7070), address_of("::1", 7070)
    ('10.0.0.7:7070', '[::1]:7070')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def announce(connection: Connection, name: str, incarnation: str, address: str | None) -> None:
    """Say where this life of the node hears."""
    mine = sa.update(nodes).where(nodes.c.name == name, nodes.c.incarnation == incarnation)
    connection.execute(mine.values(address=address))
