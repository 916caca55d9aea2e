"""Fixtures: queue servers that are started once a module, and are empty when a test begins.

`server`          in a thread, on SQLite and, where slow tests run, on a database server; its counters run on
`connect`         makes connections to it, which end with the test; `connection` is one
`serve`           starts a server in a thread, on a new file of SQLite, with options
`start_command`   starts a `peerd-beanstalkd` of the test's own, with options
`command_server`  one without options; it is swept as `server` is
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from peerd.config.settings import GatewaySettings, QueueSettings
from peerd.store.connection.database import Database
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.beanstalk_servers import PEERD, BeanstalkServer, sweep
from tests.gateway.gateway_thread import GatewayThread
from tests.support.server_kinds import SERVERS
from tests.support.servers import DatabaseFactory

Connect = Callable[[], BeanstalkConnection]
Serve = Callable[..., GatewayThread]
StartCommand = Callable[..., BeanstalkServer]
TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module", params=["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SERVERS)])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def kept_server(kind: str, module_factory: DatabaseFactory) -> Iterator[GatewayThread]:
    with closing(Database(module_factory(kind))) as database, GatewayThread(database) as server:
        yield server


@pytest.fixture
def server(kept_server: GatewayThread) -> GatewayThread:
    sweep(kept_server)
    return kept_server


@pytest.fixture
def connect(server: GatewayThread) -> Iterator[Connect]:
    with ExitStack() as afterwards:
        yield lambda: afterwards.enter_context(server.connect())


@pytest.fixture
def connection(connect: Connect) -> Any:
    return connect()


@pytest.fixture
def database(migrated_factory: DatabaseFactory) -> Iterator[Database]:
    with closing(Database(migrated_factory("sqlite"))) as database:
        yield database


@pytest.fixture
def serve(database: Database) -> Iterator[Serve]:
    with ExitStack() as afterwards:

        def start(
            queues: dict[str, QueueSettings] | None = None, tls: ssl.SSLContext | None = None, **options: Any
        ) -> GatewayThread:
            settings = GatewaySettings(**options)
            return afterwards.enter_context(GatewayThread(database, settings, queues, is_alone=False, tls=tls))

        yield start


@pytest.fixture
def start_command() -> Iterator[StartCommand]:
    with ExitStack() as afterwards:

        def start(*options: str, listen: str = "127.0.0.1") -> BeanstalkServer:
            server = BeanstalkServer(PEERD, *options, listen=listen)
            afterwards.callback(server.stop)
            server.start()
            return server

        yield start


@pytest.fixture(scope="module")
def kept_command() -> Iterator[BeanstalkServer]:
    server = BeanstalkServer(PEERD)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def command_server(kept_command: BeanstalkServer) -> BeanstalkServer:
    assert kept_command.process is not None
    assert kept_command.process.poll() is None, kept_command.said()
    sweep(kept_command)
    return kept_command
