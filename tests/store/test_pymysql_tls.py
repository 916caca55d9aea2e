"""TLS to MariaDB by PyMySQL: one context for the connections of a process, and as strict as each of them was."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from peerd.store.connection.database import Database
from tests.support.servers import DatabaseFactory


@pytest.fixture
def url(database_factory: DatabaseFactory) -> str:
    return make_url(database_factory("mariadb")).set(drivername="mysql+pymysql").render_as_string(hide_password=False)


@pytest.fixture
def opened(url: str) -> Iterator[tuple[Database, Database]]:
    both = Database(url), Database(url)
    yield both
    for one in both:
        one.close()


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


def contexts_of(database: Database) -> list[ssl.SSLContext]:
    """The contexts of a few connections, of each engine, that are open at the same time."""
    found = []
    for engine in database.engines:
        with engine.connect() as one, engine.connect() as other:
            for connection in (one, other):
                driver: Any = connection.connection.dbapi_connection
                found.append(driver.ctx)
    return found


def test_all_connections_of_a_process_share_one_tls_context(opened: tuple[Database, Database]) -> None:
    found = [context for database in opened for context in contexts_of(database)]
    assert len(found) >= 8
    assert len({id(context) for context in found}) == 1


def test_where_nothing_is_reported_of_tls_a_server_without_it_is_no_outage(opened: tuple[Database, Database]) -> None:
    context = contexts_of(opened[0])[0]
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
    database = Database(make_url(url).update_query_dict({"ssl_ca": str(certificate)}))
    with pytest.raises(Exception, match=r"(?i)ssl|certificate"):
        database.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
    database.close()
