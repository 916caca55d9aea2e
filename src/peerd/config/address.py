"""Database addresses: which are accepted, the form that SQLAlchemy wants, and the form that may be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from peerd.domain.quoting import quoted

_DRIVERS = {
    "mysql": ("pymysql", "mysqldb"),
    "postgresql": ("psycopg",),
    "sqlite": ("pysqlite",),
}
_ALIASES = {"mariadb": "mysql", "postgres": "postgresql"}
_DRIVERLESS = {"sqlite": "sqlite"}  # whose scheme needs no driver
_SCHEME = re.compile(r"(?:[\w+.-]*:?/+)?")
_NO_PORT = re.compile(r"(//[^/?:\[]*:)(?!\d+(?:[,/?]|$))[^/?]+")
_SECRET_IN_QUERY = re.compile(r"([?&](?:password|passwd|sslpassword)=)[^&]*", re.IGNORECASE)

_SEVERAL_HOSTS = re.compile(
    r"(?P<before>[\w+]+://(?:[^@]*@)?)(?P<hosts>[^/@?]*,[^/@?]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?", re.DOTALL
)
_HOST = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]{1,5})?")

_URL_EXAMPLES = "mysql://user@host/name, postgresql://user@host/name or sqlite:///file"


def normalise_url(url: str) -> str:
    """The address with SQLAlchemy's dialect and driver; a supported driver in it stays.

    MySQL's driver is mysqlclient where that is installed, else PyMySQL. Several servers of one cluster are separated
    by commas, as in libpq, and become values of ``host``.

    Raises ValueError, without the password in its text, for an address that peerd cannot use.

    >>> normalise_url("postgres://db/peerd"), normalise_url("mariadb+pymysql://peerd@db/peerd")
    ('postgresql+psycopg://db/peerd', 'mysql+pymysql://peerd@db/peerd')
    >>> normalise_url("mysql+pymysql://peerd@db1,db2:3307/peerd")
    'mysql+pymysql://peerd@/peerd?host=db1&host=db2%3A3307'
    """
    if not url.isprintable():
        raise ValueError(f"{quoted(mask_url(url))} holds characters that no address has: write {_URL_EXAMPLES}")
    parsed = _parse(url)
    scheme, _, driver = parsed.drivername.partition("+")
    dialect = _ALIASES.get(scheme, scheme)
    if dialect not in _DRIVERS:
        raise ValueError(f"{_shorten(scheme)}:// is no database that peerd knows: write {_URL_EXAMPLES}")
    if driver and driver not in _DRIVERS[dialect]:
        raise ValueError(
            f"the driver {_shorten(driver)} is not supported: leave it out, or name {' or '.join(_DRIVERS[dialect])}"
        )
    if dialect == "sqlite":
        _check_sqlite_file(parsed)
    elif not parsed.database:
        raise ValueError(f"the address names no database: write {dialect}://user@host/name")
    if dialect == "mysql":
        _check_hosts(_hosts_in_query(parsed))
    drivername = _DRIVERLESS.get(dialect) or f"{dialect}+{driver or _default_driver(dialect)}"
    return parsed.set(drivername=drivername).render_as_string(hide_password=False)


def mask_url(url: str) -> str:
    """The address with `***` in place of its password, even if the address is invalid.

    The password ends at the last @, because one that was not quoted may hold any character.

    >>> mask_url("mysql://peerd:secret@db/peerd"), mask_url("mysql:/peerd:s/e@c:ret@db")
    ('mysql://peerd:***@db/peerd', 'mysql:/peerd:***@db')
    """
    if is_sqlite(url) and ":///" in url:  # a path may hold any character
        return url
    before, at, after = url.rpartition("@")
    if not at:
        return _SECRET_IN_QUERY.sub(r"\1***", _NO_PORT.sub(r"\1***", url))
    found = _SCHEME.match(before)
    scheme = found[0] if found else ""
    user, colon, _ = before[len(scheme) :].partition(":")
    return _SECRET_IN_QUERY.sub(r"\1***", f"{scheme}{user}{':***' if colon else ''}@{after}")


def is_sqlite(url: str) -> bool:
    """Whether the address names a file on this machine."""
    return url.partition(":")[0].partition("+")[0] == "sqlite"


def make_sqlite_path_absolute(url: str, folder: Path) -> str:
    """An SQLite address with an absolute path: a relative one is relative to `folder`. Others are not changed."""
    if not is_sqlite(url):
        return url
    parsed = _parse(url)
    path = folder / Path(parsed.database or "").expanduser()
    if ".." in path.parts:  # behind a symbolic link, SQLAlchemy would find another folder there than the system does
        path = path.resolve()
    return parsed.set(database=str(path)).render_as_string(hide_password=False)


def has_password(url: str) -> bool:
    """Whether the address itself holds a password."""
    return _parse(url).password is not None


def add_password(url: str, password: str) -> str:
    """The address with this password, quoted."""
    return _parse(url).set(password=password).render_as_string(hide_password=False)


def hosts_of(url: URL) -> list[tuple[str | None, int | None]]:
    """The servers of a normalised address, with their ports, in the order in which they are tried.

    >>> hosts_of(make_url(normalise_url("mysql://peerd@db1,db2:3307/peerd")))
    [('db1', None), ('db2', 3307)]
    """
    if "host" not in url.query:
        return [(url.host, url.port)]
    pairs = [host.partition(":") for host in _hosts_in_query(url)]
    return [(name, int(port) if port else None) for name, _, port in pairs]


def _hosts_in_query(url: URL) -> tuple[str, ...]:
    named = url.query.get("host", ())
    return (named,) if isinstance(named, str) else named


def _default_driver(dialect: str) -> str:
    return "mysqldb" if dialect == "mysql" and has_mysqlclient() else _DRIVERS[dialect][0]


def has_mysqlclient() -> bool:
    """Whether the C driver itself is installed, and not PyMySQL under its name, as in some Django projects."""
    found = find_spec("MySQLdb")
    return found is not None and found.name == "MySQLdb"


def _parse(url: str) -> URL:
    _check_at_signs(url)
    one_host_a_value = _hosts_to_query(url)
    try:
        return make_url(one_host_a_value)
    except (ArgumentError, ValueError):
        raise ValueError(f"{quoted(mask_url(url))} is not an address: write {_URL_EXAMPLES}") from None


def _check_at_signs(url: str) -> None:
    """Otherwise a part of a password would be parsed as a server or database, which errors show."""
    user = url.partition("://")[2].partition("@")[0].partition(":")[0]
    has_path = "@" in url and "/" in user and "?" not in user  # a user in the query follows the path
    if not is_sqlite(url) and (url.count("@") > 1 or has_path):
        raise ValueError(
            f"{quoted(mask_url(url))} is not an address: an @ of a password or name is written %40, a / %2F, a : %3A; "
            "or give the password by [database] password_file"
        )


def _hosts_to_query(url: str) -> str:
    """An address with several hosts, in SQLAlchemy's form."""
    found = _SEVERAL_HOSTS.fullmatch(url)
    if found is None:
        return url
    hosts = found["hosts"].split(",")
    _check_hosts(hosts)
    query = "&".join([*filter(None, [found["query"]]), *(f"host={quote(host, safe='')}" for host in hosts)])
    return f"{found['before']}{found['path'] or ''}?{query}"


def _check_hosts(hosts: Iterable[str]) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(
                f"{quoted(_shorten(host))} is not one of several servers: write their names or IPv4 addresses, "
                "e.g. mysql://user@db1,db2:3307/name"
            )


def _shorten(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}…"


def _check_sqlite_file(parsed: URL) -> None:
    if parsed.host:
        raise ValueError(
            f"the path follows three slashes: write sqlite:///{_shorten(parsed.host)}, or four for an absolute one"
        )
    if parsed.database in {None, "", ":memory:"} or str(parsed.database).startswith("file:"):
        raise ValueError("every process must open the same file: write sqlite:///peerd.sqlite")
