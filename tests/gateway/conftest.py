"""Fixtures: servers that speak the beanstalkd protocol: each test runs on Debian's beanstalkd, on peerd's drop-in, and,
where slow tests run, on a gateway with MariaDB and with PostgreSQL.

`server`         a server that other tests use too; empty, but its counters run on; `-k peerd-beanstalkd` selects
`connect`        makes connections to it, which end with the test
`start_server`   starts a server of the test's own by its command, with options
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.beanstalk_servers import BEANSTALKD, KINDS, BeanstalkServer, is_before_1_13, sweep, why_missing
from tests.gateway.gateway_on_database import GATEWAYS, GatewayOnDatabase
from tests.support import server_session
from tests.support.server import ServerUnavailableError
from tests.support.servers import create_database

ServerOf = Callable[[str], BeanstalkServer]
Connect = Callable[[], BeanstalkConnection]
StartServer = Callable[..., BeanstalkServer]


@pytest.fixture(scope="session")
def kept_servers() -> Iterator[ServerOf]:
    kept: dict[str, BeanstalkServer] = {}
    with ExitStack() as afterwards:

        def server_of(kind: str) -> BeanstalkServer:
            if kind not in kept:
                made = gateway_on(kind) if kind in GATEWAYS else BeanstalkServer(kind)
                afterwards.callback(made.stop)
                made.start()
                kept[kind] = made
            return kept[kind]

        yield server_of


def gateway_on(kind: str) -> GatewayOnDatabase:
    """A gateway with a database of the session's server.

    Raises:
        ServerUnavailableError: the database server is not installed.
    """
    server = server_session.shared_server(kind.removeprefix("gateway-"))
    return GatewayOnDatabase(kind, create_database(server, f"gateway_{secrets.token_hex(4)}"))


@pytest.fixture(params=[*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in GATEWAYS)])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return usable(kind, request)


@pytest.fixture(params=KINDS)
def command_kind(request: pytest.FixtureRequest) -> str:
    """A server that is a command with options."""
    kind: str = request.param
    return usable(kind, request)


def usable(kind: str, request: pytest.FixtureRequest) -> str:
    """The kind, unless there is no such server here; a test that it fails by its nature is marked so."""
    if kind in GATEWAYS:
        return kind
    if reason := why_missing(kind):
        pytest.skip(reason)
    newer = request.node.get_closest_marker("since_beanstalkd_1_13")
    if newer is not None and is_before_1_13(kind):
        request.applymarker(pytest.mark.xfail(reason=f"beanstalkd before 1.13: {newer.args[0]}", strict=True))
    unlike = request.node.get_closest_marker("unlike_beanstalkd")
    if unlike is not None and kind == BEANSTALKD:
        request.applymarker(pytest.mark.xfail(reason=f"beanstalkd: {unlike.args[0]}", strict=True))
    unpredictable = request.node.get_closest_marker("unpredictable_on_beanstalkd")
    if unpredictable is not None and kind == BEANSTALKD:
        pytest.skip(f"beanstalkd: {unpredictable.args[0]}")
    return kind


@pytest.fixture
def server(kind: str, kept_servers: ServerOf) -> BeanstalkServer:
    try:
        server = kept_servers(kind)
    except ServerUnavailableError as error:
        pytest.skip(f"NOT TESTED on {kind}: {error}")
    assert server.is_running, f"{kind} has died:\n{server.said()}"
    sweep(server)
    return server


@pytest.fixture
def connect(server: BeanstalkServer) -> Iterator[Connect]:
    with ExitStack() as afterwards:
        yield lambda: afterwards.enter_context(server.connect())


@pytest.fixture
def connection(connect: Connect) -> BeanstalkConnection:
    return connect()


@pytest.fixture
def start_server(command_kind: str) -> Iterator[StartServer]:
    with ExitStack() as afterwards:

        def start(*options: str, listen: str = "127.0.0.1") -> BeanstalkServer:
            server = BeanstalkServer(command_kind, *options, listen=listen)
            afterwards.callback(server.stop)
            server.start()
            return server

        yield start
