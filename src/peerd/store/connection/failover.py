"""The servers of a URL with several hosts, and the one that a process uses.

All connections of a process go to one server, so that each reads what another has committed; pools that fail over on
their own, as SQLAlchemy's would, do not give that. When the server accepts no connection, the next one is used, and
connections to the former one are discarded at their checkout. A server that failed is tried last for a while; then the
process returns to the first that accepts it. On PostgreSQL libpq does this; MySQL's drivers know one host only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
Host = tuple[str | None, int | None]
"""Name and port; None is the driver's default."""

RETRY_FAILED_HOST_AFTER: Final = 30.0
"""Seconds in which a server that failed is tried last."""


class FailoverHosts:
    """The servers of one URL, as one process uses them. Thread-safe.

    Args:
        hosts: in order of preference.
        clock: a monotonic clock, in seconds.

    >>> moment = 0.0
    >>> hosts = FailoverHosts([("db1", None), ("db2", None)], lambda: moment)
    >>> def refuse_at_db1(host):
    ...     if host == ("db1", None):
    ...         raise ConnectionRefusedError
    ...     return f"connected to {host[0]}"
    >>> hosts.connect(refuse_at_db1, ConnectionRefusedError)
    'connected to db2'
    >>> hosts.current, hosts.connect_order()
    (('db2', None), [('db2', None), ('db1', None)])
    >>> moment = 31.0
    >>> hosts.connect_order()
    [('db1', None), ('db2', None)]
    """

    def __init__(self, hosts: Sequence[Host], clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts = list(hosts)
        self._clock = clock
        self._failed_at: dict[Host, float] = {}
        self.current = self._hosts[0]
        """The server in use."""

    def connect_order(self) -> list[Host]:
        """The servers, in the order in which they are tried now."""
        recent = self._clock() - RETRY_FAILED_HOST_AFTER
        failed = {host: moment for host, moment in self._failed_at.copy().items() if moment > recent}
        return sorted(self._hosts, key=lambda host: failed.get(host, -1.0))

    def connect(self, connect_to: Callable[[Host], T], failure: type[Exception]) -> T:
        """Connect to the first server that accepts; if all raise ``failure``, the error of the first is raised."""
        first_error: Exception | None = None
        for host in self.connect_order():
            began = self._clock()
            try:
                connection = connect_to(host)
            except failure as error:
                self._failed_at[host] = self._clock()
                first_error = first_error or error
            else:
                if self._failed_at.get(host, began) <= began:  # no other thread has met its failure meanwhile
                    self._failed_at.pop(host, None)
                    self.current = host
                return connection
        assert first_error is not None
        try:
            raise first_error
        finally:
            del first_error  # its traceback refers to this frame
