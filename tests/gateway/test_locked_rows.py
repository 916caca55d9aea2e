"""Rows that another program has locked keep no client waiting but the one that needs them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.gateway_thread import GatewayThread
from tests.support import server_session
from tests.support.server import ServerUnavailableError
from tests.support.servers import create_database


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    try:
        server = server_session.shared_server(request.param)
    except ServerUnavailableError as error:
        pytest.skip(f"NOT TESTED on {request.param}: {error}")
    with closing(Database(create_database(server, f"gateway_{secrets.token_hex(4)}"))) as database:
        migrate(database)
        yield database


def test_a_locked_job_fails_the_command_of_its_client_alone(database: Database) -> None:
    with (
        GatewayThread(database) as gateway,
        BeanstalkConnection(gateway.address) as holder,
        BeanstalkConnection(gateway.address) as second,
        BeanstalkConnection(gateway.address) as other,
        database.engine.connect() as elsewhere,
    ):
        for client in (holder, second):
            client.put(b"locked")
            assert client.ask(b"reserve\r\n").startswith(b"RESERVED ")
        ids = elsewhere.execute(sa.text("SELECT id FROM tasks ORDER BY id FOR UPDATE")).scalars().all()
        holder.send(b"delete %d\r\n" % ids[0])
        eventually(lambda: gateway.engine._operations._is_executing)
        second.send(b"delete %d\r\n" % ids[1])
        assert other.ask(b"put 0 0 60 5\r\nother\r\n", 30).startswith(b"INSERTED ")  # it is in the batch of the second
        assert [client.receive(30) for client in (holder, second)] == [b"INTERNAL_ERROR\r\n"] * 2
        elsewhere.rollback()
        assert holder.ask(b"delete %d\r\n" % ids[0]) == b"DELETED\r\n"
