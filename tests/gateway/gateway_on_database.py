"""The queue server on MariaDB or PostgreSQL, as a server that the conformance suite can speak to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from tests.gateway.beanstalk_connection import Address
from tests.gateway.beanstalk_servers import BeanstalkServer
from tests.gateway.gateway_thread import GatewayThread

GATEWAYS: Final = ("gateway-mariadb", "gateway-postgresql")


class GatewayOnDatabase(BeanstalkServer):
    """A gateway in a thread.

    Args:
        kind: one of `GATEWAYS`.
        url: of an empty database.
    """

    def __init__(self, kind: str, url: str) -> None:
        super().__init__(kind)
        self._url = url
        self._running = ExitStack()

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._thread.address

    @property
    def is_running(self) -> bool:
        """A thread of this process has no other end than `stop`."""
        return True

    def start(self) -> None:
        """Migrate the database, and listen."""
        database = Database(self._url)
        self._running.callback(database.close)
        migrate(database)
        self._thread = self._running.enter_context(GatewayThread(database))
        self.port = self._thread.address[1]

    def stop(self) -> None:
        """Close all connections."""
        self._running.close()
        super().stop()
