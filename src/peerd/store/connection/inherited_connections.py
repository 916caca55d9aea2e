"""Connections that a process has inherited by a fork: they are its parent's, and are neither used nor closed here."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Engine

_inherited_pools: Final[list[object]] = []
"""Pools of the parent: what a driver does when a connection is collected is not to be done here."""


class OpenedConnections:
    """The connections that some engines have opened.

    Args:
        engines: with pools of their own.
    """

    def __init__(self, engines: Iterable[Engine]) -> None:
        self._engines = tuple(engines)
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        for engine in self._engines:
            if engine.dialect.name != "sqlite":  # whose connections lead to no one
                event.listen(engine, "connect", lambda connection, _: self._connections.add(connection))

    def abandon_inherited(self) -> None:
        """In a forked process: make the pools anew, and let the parent's connections lead nowhere.

        Some drivers say goodbye to the server when a connection is collected, which would end the parent's session. It
        goes to /dev/null instead.
        """
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in list(self._connections):
            with suppress(OSError, ValueError, AttributeError, TypeError):  # it is closed
                os.dup2(nowhere, descriptor_of(connection), inheritable=False)
        os.close(nowhere)
        _inherited_pools.extend([*self._connections, *(engine.pool for engine in self._engines)])
        self._connections = weakref.WeakSet()
        for engine in self._engines:
            engine.dispose(close=False)


def descriptor_of(connection: Any) -> int:
    """The descriptor of a driver's connection to a server.

    Raises:
        OSError, ValueError, AttributeError: it is closed.
    """
    file = connection._sock if hasattr(connection, "_sock") else connection  # noqa: SLF001 - PyMySQL has no other way
    return int(file.fileno())
