"""Queue servers on SQLite, and connections to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from peerd.config.settings import QueueSettings
from peerd.gateway.engine import EngineOptions
from peerd.gateway.process_state import GatewayOptions
from peerd.store.connection.database import Database
from tests.gateway.gateway_thread import GatewayThread
from tests.gateway.json_protocol.json_connection import JsonConnection
from tests.support.servers import DatabaseFactory

Serve = Callable[..., GatewayThread]
TOKEN = "a-token-of-the-test"


@pytest.fixture
def database(migrated_factory: DatabaseFactory) -> Iterator[Database]:
    with closing(Database(migrated_factory("sqlite"))) as database:
        yield database


@pytest.fixture
def serve(database: Database) -> Iterator[Serve]:
    with ExitStack() as afterwards:

        def start(
            queues: dict[str, QueueSettings] | None = None, node: str = "gateway", **options: Any
        ) -> GatewayThread:
            engine_options = EngineOptions(queues=queues or {})
            gateway = GatewayThread(database, GatewayOptions(**options), engine_options, node=node)
            return afterwards.enter_context(gateway)

        yield start


@pytest.fixture
def gateway(serve: Serve) -> GatewayThread:
    return serve()


@pytest.fixture
def connection(gateway: GatewayThread) -> Iterator[JsonConnection]:
    with JsonConnection(gateway) as connection:
        yield connection


@pytest.fixture
def other(gateway: GatewayThread) -> Iterator[JsonConnection]:
    with JsonConnection(gateway) as other:
        yield other
