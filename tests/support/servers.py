"""Fixtures: fresh, empty databases on SQLite, MariaDB, PostgreSQL and MySQL, in milliseconds.

`database`          the test runs on SQLite and one server (see `databases_of`); `-k mariadb` selects
`server_database`   the test runs on one server, or on each if it is marked `every_database`
`database_factory`  make as many as a test needs: `database_factory("postgresql")`
`private_server`    a server of the test's own, to kill, freeze and start again: `private_server("mariadb")`
`private_galera`    the same of three servers that hold one database

All databases are given as SQLAlchemy addresses (str) with their drivers. A server that is not installed skips the
test, with the reason; the summary counts that.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import URL, make_url

from peerd.store.connection.mysql import SYNC_WAIT
from peerd.testing import eventually
from tests.support import server_session
from tests.support.galera import Galera
from tests.support.mysql import CREATE_USER, PASSWORD
from tests.support.server import DatabaseServer, ServerUnavailableError
from tests.support.server_kinds import SERVERS
from tests.support.summary import note_database, note_missing_server
from tests.support.tiers import is_quick

T = TypeVar("T")
DATABASES = ("sqlite", *SERVERS)
_numbers = count(1)
SYNC_TIMEOUT = 150.0
"""Seconds that a starved server of a Galera cluster has to apply what the others have written."""
LOCK_WAIT_TIMEOUT = 1205
MARKERS = ("one_database", "every_database")
_KIND_PARAMETERS = frozenset(
    {"database", "migrated_database", "module_database", "server_database", "store", "kind", "name"}
)

DatabaseFactory = Callable[[str], str]
ServerFactory = Callable[..., DatabaseServer]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        opened = server_session.ServerSession()
        config.add_cleanup(opened.close)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-database", action="store_true", help="run each test on every database that it has")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--every-database"):
        return
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    parametrised = [(item, kind) for item in items if (kind := _kind_of(item)) in DATABASES]
    for item, kind in parametrised:
        kinds[_name_of(item)].add(kind)
    left_out = set()
    for item, kind in parametrised:
        name, marked = _name_of(item), {marker for marker in MARKERS if item.get_closest_marker(marker)}
        if kind not in databases_of(name, kinds[name], marked, quick=is_quick(config)):
            left_out.add(item)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _kind_of(item: pytest.Item) -> str | None:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    found = next((parameters[name] for name in parameters if name in _KIND_PARAMETERS), None)
    return found.removeprefix("gateway-") if isinstance(found, str) else None


def _name_of(item: pytest.Item) -> str:
    shared = isinstance(item, pytest.Function) and "module_database" in item.fixturenames
    return item.nodeid.partition("::" if shared else "[")[0]


def databases_of(name: str, kinds: Collection[str], marked: Collection[str] = (), *, quick: bool = False) -> set[str]:
    """Of the databases that a test may have, those that it runs on: SQLite and one server, which its name decides."""
    number = crc32(name.encode())
    candidates = [kind for kind in DATABASES if kind in kinds]
    if "one_database" in marked:
        return {candidates[number % len(candidates)]}
    servers = [kind for kind in candidates if kind in SERVERS]
    if servers and (quick or "every_database" not in marked):
        return {*candidates} - {*servers} | {servers[number % len(servers)]}
    return set(candidates)


@pytest.fixture
def database_factory(request: pytest.FixtureRequest, tmp_path: Path, worker_id: str) -> Iterator[DatabaseFactory]:
    with ExitStack() as afterwards:

        def create(kind: str) -> str:
            if kind == "sqlite":
                note_database(request.node, kind)
                return f"sqlite:///{tmp_path / f'peerd{next(_numbers)}.sqlite'}"
            server = installed(kind, request.node, lambda: server_session.shared_server(kind))
            name = f"test_{worker_id}_{next(_numbers)}"
            afterwards.callback(execute, server, f"DROP DATABASE {name} {DROP_OPTIONS[server.dialect]}")
            return create_database(server, name)

        yield create


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> str:
    return database_factory(request.param)


@pytest.fixture(params=tuple(SERVERS))
def server_database(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> str:
    return database_factory(request.param)


@pytest.fixture
def private_server(request: pytest.FixtureRequest) -> Iterator[ServerFactory]:
    with ExitStack() as afterwards:

        def start(kind: str, *, durable: bool = False) -> Any:
            folder = Path(tempfile.mkdtemp(prefix="peerd-"))
            afterwards.callback(shutil.rmtree, folder, ignore_errors=True)
            folder.chmod(0o755)  # the servers run as another user when we are root
            kinds: dict[str, type[DatabaseServer | Galera]] = {**SERVERS, "galera": Galera}
            server = kinds[kind](folder / kind, durable=durable)
            afterwards.callback(server.stop)
            installed(kind, request.node, server.start)
            create_database(server, "peerd")
            return server

        yield start


@pytest.fixture
def private_galera(private_server: ServerFactory) -> Galera:
    return cast("Galera", private_server("galera"))


def create_database(server: DatabaseServer | Galera, name: str) -> str:
    execute(server, f"CREATE DATABASE {name} {_CREATE_OPTIONS[server.dialect]}")
    for statement in CREATE_USER if server.kind == "mysql" else ():
        execute(server, statement.format(database=name))
    return server.url(name)


def as_admin(url: URL | str) -> URL:
    """The address with a user who has all rights; MySQL's usual one has those on its database."""
    made = make_url(url)
    return made.set(username="root", password="") if made.password == PASSWORD else made


def installed(kind: str, item: pytest.Item | None, start: Callable[[], T]) -> T:
    """What a server's start gives; a test, or a module (None), is skipped without the server."""
    try:
        answer = start()
    except ServerUnavailableError as error:
        if item is not None:
            note_missing_server(item, kind)
        pytest.skip(f"NOT TESTED on {kind}: {error}")
    if item is not None:
        note_database(item, kind)
    return answer


def execute(server: DatabaseServer | Galera, statement: str) -> None:
    if server.dialect == "mysql":
        with closing(pymysql.connect(host="127.0.0.1", port=server.ports[0], user="root")) as connection:
            connection.cursor().execute(statement)
        for port in server.ports[1:]:  # which apply it later, each in its own time
            eventually(partial(_has_applied_all, port), timeout=SYNC_TIMEOUT, message=f"{server.kind} lags")
    else:
        address = f"postgresql://peerd@127.0.0.1:{server.ports[0]}/postgres"
        with closing(psycopg.connect(address, autocommit=True)) as connection:
            connection.execute(statement.encode())


def _has_applied_all(port: int) -> bool:
    """Whether a server of a Galera cluster has what the others have, for which it waits half a minute by itself."""
    with closing(pymysql.connect(host="127.0.0.1", port=port, user="root")) as connection:
        try:
            connection.cursor().execute(SYNC_WAIT)
        except pymysql.err.OperationalError as error:
            if error.args[0] != LOCK_WAIT_TIMEOUT:
                raise
            return False
    return True


_CREATE_OPTIONS = {"mysql": "CHARACTER SET utf8mb4", "postgresql": "TEMPLATE template0"}
DROP_OPTIONS = {"mysql": "", "postgresql": "WITH (FORCE)"}
