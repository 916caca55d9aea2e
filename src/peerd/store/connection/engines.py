"""The database that a URL names: its driver, its engines, and the least version of it."""

from __future__ import annotations

from typing import Final

from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import NoSuchModuleError

from peerd.config.address import normalise_url
from peerd.domain.errors import UnsupportedDatabase
from peerd.store.connection import mysql, postgresql, sqlite
from peerd.store.connection.pools import Engines
from peerd.store.schema.types import is_mariadb

MINIMUM_VERSIONS: Final = {"mysql": (8, 0, 19), "mariadb": (10, 6), "postgresql": (12,), "sqlite": (3, 35)}
"""They have SKIP LOCKED, stored generated columns, and RETURNING where it is used."""


def with_driver(url: str | URL) -> URL:
    """A database's URL with the driver that peerd uses.

    Raises:
        UnsupportedDatabase: peerd does not support this database.

    >>> str(with_driver("postgres://peerd@db/peerd"))
    'postgresql+psycopg://peerd@db/peerd'
    """
    text = url.render_as_string(hide_password=False) if isinstance(url, URL) else url
    try:
        return make_url(normalise_url(text))
    except ValueError as error:
        raise UnsupportedDatabase(str(error)) from None


def open_engines(url: URL, pool_size: int, *, response_timeout: int | None = None) -> Engines:
    """The engines for a URL. Nothing connects yet.

    Args:
        url: from `with_driver`.
        pool_size: connections that all engines together keep.
        response_timeout: seconds that a statement on MySQL may take, `RESPONSE_TIMEOUT` by default. On PostgreSQL,
            TCP keepalives detect a lost server, however long a statement takes.

    Raises:
        UnsupportedDatabase: its driver is not installed; the error names the extra to install.
    """
    try:
        match url.get_backend_name():
            case "mysql" | "mariadb":
                return mysql.open_engines(url, pool_size, response_timeout=response_timeout)
            case "postgresql":
                return postgresql.open_engines(url, pool_size)
            case _:
                return sqlite.open_engines(url, pool_size)
    except (ImportError, NoSuchModuleError) as error:
        extra = "postgresql" if url.get_backend_name() == "postgresql" else "mysql"
        raise UnsupportedDatabase(
            f"the driver for {url.drivername} is missing ({error}): pip install 'peerd[{extra}]'"
        ) from error


def require_version(connection: Connection) -> None:
    """Check the version of the database.

    Raises:
        UnsupportedDatabase: it is too old; the error says which version is needed.
    """
    dialect = connection.dialect
    name = "mariadb" if is_mariadb(dialect) else dialect.name
    found = getattr(dialect, "server_version_info", None)
    if name == "sqlite":
        text = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
        found = tuple(int(part) for part in text.split("."))
    if found is not None and found[:3] < MINIMUM_VERSIONS[name]:
        needed, given = (".".join(str(part) for part in parts) for parts in (MINIMUM_VERSIONS[name], found))
        raise UnsupportedDatabase(f"{name} {given} is too old: peerd needs {needed} or later")
