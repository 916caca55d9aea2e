"""An address with several servers: which of them a process works with, as they come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection import mysql
from peerd.store.connection.database import Database
from peerd.testing import eventually
from tests.support.galera import Galera
from tests.support.server import DatabaseServer, free_port
from tests.support.servers import ServerFactory

PORT = {"mariadb": "SELECT @@port", "mysql": "SELECT @@port", "postgresql": "SELECT inet_server_port()"}


def address(kind: str, *ports: int) -> str:
    scheme = "postgresql://peerd@" if kind == "postgresql" else "mysql://root@"
    return scheme + ",".join(f"127.0.0.1:{port}" for port in ports) + "/peerd"


def port_of(kind: str, database: Database) -> int:
    return int(database.run(lambda connection: connection.exec_driver_sql(PORT[kind]).scalar_one()))


def after_an_outage(operation: Callable[[], int]) -> int:
    """The first call meets the connection that was lost; it is not repeated, because its answer might have been."""
    try:
        return operation()
    except DatabaseUnavailable:
        return operation()


@pytest.mark.slow
@pytest.mark.parametrize("kind", PORT)
def test_when_a_server_dies_the_next_one_is_used(kind: str, private_server: ServerFactory) -> None:
    first, second = private_server(kind), private_server(kind)
    with closing(Database(address(kind, first.port, second.port))) as database:
        assert port_of(kind, database) == first.port
        first.kill()
        assert after_an_outage(lambda: port_of(kind, database)) == second.port
        second.kill()
        with pytest.raises(DatabaseUnavailable):
            after_an_outage(lambda: port_of(kind, database))
        first.start()
        assert port_of(kind, database) == first.port


@pytest.mark.slow
def test_what_is_left_of_the_connections_to_an_earlier_server_is_given_up(
    private_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process must see on one connection what it has committed on another."""
    first, second = private_server("mariadb"), private_server("mariadb")
    with closing(Database(address("mariadb", first.port, second.port))) as database:
        with database.engine.connect() as one, database.engine.connect() as other:
            assert {_port(one), _port(other)} == {first.port}
            refusal = ExitStack()
            refusal.enter_context(refusing_connections(first))
            with database.engine.connect() as third:
                assert _port(third) == second.port
        with database.engine.connect() as one, database.engine.connect() as other:
            assert {_port(one), _port(other)} == {second.port}
            refusal.close()
            monkeypatch.setattr(mysql, "RETRY_FAILED_HOST_AFTER", 0.0)
            with database.engine.connect(), database.engine.connect() as new:
                assert _port(new) == first.port, "and home again, as soon as the failure is old"
        with database.engine.connect() as one, database.engine.connect() as other:
            assert {_port(one), _port(other)} == {first.port}


@pytest.mark.slow
def test_a_server_that_has_lost_its_galera_cluster_is_left_for_another(private_galera: Galera) -> None:
    """It answers every statement, with an error."""
    first, second, _ = private_galera.servers
    operation = partial(port_of, "mariadb")
    with closing(Database(private_galera.multi_host_url("peerd"))) as database:
        database.run(lambda connection: connection.exec_driver_sql("CREATE TABLE kept (id INT PRIMARY KEY)"))

        def read() -> list[Any]:
            return database.read(lambda connection: list(connection.exec_driver_sql("SELECT * FROM kept")))

        assert operation(database) == first.port
        assert read() == []  # so that its connection is there
        _at_the_server(first, "SET GLOBAL wsrep_provider_options = 'gmcast.isolate = 1'")
        eventually(lambda: first.status("wsrep_ready") == "OFF", timeout=60)
        assert read() == []  # the connection has been idle, so another one is tried at once
        assert operation(database) == second.port
        _at_the_server(first, "SET GLOBAL wsrep_provider_options = 'gmcast.isolate = 0'")
        private_galera.wait_until_synced()
    with closing(Database(private_galera.multi_host_url("peerd"))) as database:
        assert operation(database) == first.port


@pytest.mark.slow
def test_a_postgresql_that_only_reads_is_passed_over(private_server: ServerFactory) -> None:
    """A standby accepts connections and refuses every write."""
    standby, primary = private_server("postgresql"), private_server("postgresql")
    with closing(Database(standby.url("peerd"))) as database:
        database.run(
            lambda connection: connection.exec_driver_sql("ALTER DATABASE peerd SET default_transaction_read_only = on")
        )
    with closing(Database(address("postgresql", standby.port, primary.port))) as database:
        assert port_of("postgresql", database) == primary.port


def test_when_no_server_answers_the_error_of_the_first_one_is_reported() -> None:
    ports = free_port(), free_port()
    with (
        closing(Database(address("mariadb", *ports))) as database,
        pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1"),
    ):
        port_of("mariadb", database)


def test_a_server_that_failed_meanwhile_is_not_used_again() -> None:
    """Two threads connect; the one that had been let in learns that the other one was not."""
    one, two = ("one", None), ("two", None)
    now = 100.0
    known = mysql.FailoverHosts([one, two], lambda: now)

    def slowly(host: mysql.Host) -> str:
        nonlocal now
        if host == one and known.current == one:
            now += 1
            assert known.connect(refused_by_one, ConnectionError) == "two"
            now += 1
        return str(host[0])

    def refused_by_one(host: mysql.Host) -> str:
        if host == one:
            raise ConnectionError
        return str(host[0])

    assert known.connect(slowly, ConnectionError) == "one"
    assert known.current == two


def _port(connection: sa.Connection) -> int:
    port = connection.exec_driver_sql("SELECT @@port").scalar_one()
    connection.rollback()
    return int(port)


@contextmanager
def refusing_connections(server: DatabaseServer) -> Iterator[None]:
    """By letting in so many that it takes no more."""
    _at_the_server(server, "SET GLOBAL max_connections = 10")
    let_in: list[Any] = []
    with suppress(pymysql.err.OperationalError):
        while len(let_in) < 20:
            let_in.append(_connect(server))
    yield
    let_in[-1].cursor().execute("SET GLOBAL max_connections = 400")
    for connection in let_in:
        connection.close()


def _connect(server: DatabaseServer) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.port, user="root")


def _at_the_server(server: DatabaseServer, statement: str) -> None:
    with closing(_connect(server)) as connection:
        connection.cursor().execute(statement)
