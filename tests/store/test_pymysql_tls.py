"""TLS to MariaDB and MySQL by PyMySQL: one context for a process, and as strict as each of its connections was."""

from __future__ import annotations

import os
import ssl
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from peerd.store.connection.database import Database
from tests.support.server_kinds import INNODB
from tests.support.servers import DatabaseFactory


@pytest.fixture(params=INNODB)
def url(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> str:
    address = make_url(database_factory(request.param)).set(drivername="mysql+pymysql")
    return address.render_as_string(hide_password=False)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """One that a server on localhost signs by itself, with its key."""
    make_certificate(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


def make_certificate(file: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", file, "-out", file.with_suffix(".crt"), "-days", "1", "-subj", "/CN=localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())


def contexts_of(database: Database) -> set[ssl.SSLContext]:
    """The contexts of a few connections, of each engine, that are open at the same time."""
    with ExitStack() as afterwards:
        opened = [afterwards.enter_context(engine.connect()) for engine in database.engines.distinct() * 2]
        drivers: list[Any] = [one.connection.dbapi_connection for one in opened]
        return {driver.ctx for driver in drivers}


def test_all_connections_of_a_process_share_one_tls_context_which_verifies_nothing_where_nothing_is_named(
    url: str,
) -> None:
    found = set()
    for _ in range(2):
        with closing(Database(url)) as database:
            found |= contexts_of(database)
    [context] = found
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert context.cert_store_stats()["x509"] == 0, "certificates that nothing is verified by were read"


def test_a_certificate_that_is_named_is_verified_and_read_again_when_it_is_renewed(url: str, certificate: Path) -> None:
    plain = make_url(url).translate_connect_args(username="user")
    words: dict[str, Any] = {"ssl_ca": str(certificate), "ssl_verify_identity": True, "defer_connect": True}

    def context() -> ssl.SSLContext:
        from peerd.store.connection.pymysql_tls import SharedTlsConnection  # noqa: PLC0415

        connection: Any = SharedTlsConnection(**plain, **words)
        assert isinstance(connection.ctx, ssl.SSLContext)
        return connection.ctx

    first = context()
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert first is context()
    make_certificate(certificate)
    os.utime(certificate, ns=(0, certificate.stat().st_mtime_ns + 1))
    assert context() is not first


def test_a_server_that_cannot_show_the_certificate_is_refused(url: str, certificate: Path) -> None:
    with (
        closing(Database(make_url(url).update_query_dict({"ssl_ca": str(certificate)}))) as database,
        pytest.raises(Exception, match=r"(?i)ssl|certificate"),
    ):
        database.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
