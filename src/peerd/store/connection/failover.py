"""The servers of an address, and which of them a process works with.

All its connections go to one server, so that what one of them has committed the others see. When that server takes none
any more, the next one does, and the connections that are left to the earlier one are given up as they are asked for. A
server that failed is passed over for a while; then the process goes back to the first that takes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
Host = tuple[str | None, int | None]
"""Its name and its port; None: the driver's own."""

RETRY_FAILED_HOST_AFTER: Final = 30.0
"""Seconds in which a server that failed comes last."""


class FailoverHosts:
    """The servers of one address, as one process sees them. Safe to use from several threads.

    Args:
        hosts: in the order in which they are to be tried.
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
        """The server that the process works with."""

    def connect_order(self) -> list[Host]:
        """The servers, in the order in which they are to be tried now."""
        too_fresh = self._clock() - RETRY_FAILED_HOST_AFTER
        failed = {host: moment for host, moment in self._failed_at.copy().items() if moment > too_fresh}
        return sorted(self._hosts, key=lambda host: failed.get(host, 0.0) if host in failed else -1.0)

    def connect(self, connect_to: Callable[[Host], T], failure: type[Exception]) -> T:
        """Connect to the first server that takes us.

        Args:
            connect_to: connects to one server.
            failure: what it raises when that server does not take us.

        Raises:
            failure: none does; it is what the first of them said.
        """
        first_error: Exception | None = None
        for host in self.connect_order():
            began = self._clock()
            try:
                connection = connect_to(host)
            except failure as error:
                self._failed_at[host] = self._clock()
                first_error = first_error or error
            else:
                self._switch_to(host, began)
                return connection
        assert first_error is not None
        try:
            raise first_error
        finally:
            del first_error  # its traceback has this function in it

    def _switch_to(self, host: Host, began: float) -> None:
        """A server that failed somebody else while it took us is not gone back to at once."""
        if self._failed_at.get(host, began) <= began:
            self._failed_at.pop(host, None)
            self.current = host
