"""Fixtures: databases that have the tables of peerd, without the time that a migration takes.

`migrated_factory`    make as many as a test needs: `migrated_factory("postgresql")`
`migrated_database`   the test runs once on each kind
`migrated_file`       a SQLite file to be copied
`module_factory`, `module_database`   the same for a whole module: its tests share what they find there

To make the tables takes longer than most tests. So a SQLite file is copied, and a database on a server is emptied after
a test and used again, unless something still uses it or has changed more than rows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql
import pytest

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import metadata
from tests.support import server_session
from tests.support.galera import Galera
from tests.support.server import DatabaseServer
from tests.support.servers import (
    DATABASES,
    DROP_OPTIONS,
    DatabaseFactory,
    create_database,
    execute,
    installed,
)
from tests.support.summary import note_database

LEFT_WITHIN: Final = 0.5
"""Seconds; a session that was just closed ends in a moment."""
_numbers = count(1)


@dataclass(frozen=True)
class Statements:
    others: str
    definitions: tuple[str, ...]
    """Everything but rows."""
    numbered: str


STATEMENTS: Final = {
    "mysql": Statements(
        others="SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
        definitions=(
            """SELECT table_name, column_name, column_type, is_nullable, column_default, extra
                FROM information_schema.columns WHERE table_schema = database() ORDER BY 1, 2""",
            """SELECT table_name, index_name, seq_in_index, column_name
                FROM information_schema.statistics WHERE table_schema = database() ORDER BY 1, 2, 3""",
            "SHOW TRIGGERS",
        ),
        numbered="""SELECT concat('ALTER TABLE ', table_name, ' AUTO_INCREMENT = 1')
            FROM information_schema.tables WHERE table_schema = database() AND auto_increment > 1""",
    ),
    "postgresql": Statements(
        others="""SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'""",
        definitions=(
            """SELECT attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull
                FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
                WHERE relnamespace = 'public'::regnamespace AND attnum > 0 ORDER BY 1, 2""",
            """SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
                WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
            "SELECT tgrelid::regclass::text, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2",
            """SELECT setconfig FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase
                WHERE datname = current_database()""",
            "SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1",
        ),
        numbered="""SELECT format('ALTER SEQUENCE %I RESTART', sequencename)
            FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL""",
    ),
}


@dataclass
class MigratedDatabases:
    worker: str
    folder: Path
    _free: dict[str, list[str]] = field(default_factory=dict)
    _definitions: dict[str, list[Any]] = field(default_factory=dict)

    def file(self) -> Path:
        file = self.folder / "migrated.sqlite"
        if not file.exists():
            _migrate(f"sqlite:///{file}")
        return file

    def take(self, server: DatabaseServer | Galera) -> str:
        free = self._free.setdefault(server.kind, [])
        return free.pop() if free else self._made(server)

    def give_back(self, server: DatabaseServer | Galera, name: str) -> None:
        if self._is_emptied(server, name):
            self._free[server.kind].append(name)
        else:
            execute(server, f"DROP DATABASE {name} {DROP_OPTIONS[server.dialect]}")

    def _made(self, server: DatabaseServer | Galera) -> str:
        name = f"migrated_{self.worker}_{next(_numbers)}"
        _migrate(create_database(server, name))
        if server.kind not in self._definitions:
            with closing(_connect(server, name)) as connection:
                definitions = STATEMENTS[server.dialect].definitions
                self._definitions[server.kind] = [_answer(connection, statement) for statement in definitions]
        return name

    def _is_emptied(self, server: DatabaseServer | Galera, name: str) -> bool:
        """Make a database as it was when it was new; False if that is not certain."""
        statements = STATEMENTS[server.dialect]
        with closing(_connect(server, name)) as connection:
            deadline = time.monotonic() + LEFT_WITHIN
            while _answer(connection, statements.others)[0] != (0,):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
            if [_answer(connection, statement) for statement in statements.definitions] != self._definitions[
                server.kind
            ]:
                return False
            numbered = [statement for (statement,) in _answer(connection, statements.numbered)]
            with connection.cursor() as cursor:
                for statement in (*(f"DELETE FROM {table}" for table in metadata.tables), *numbered):
                    cursor.execute(statement)
        return True


def _migrate(url: str) -> None:
    with closing(Database(url)) as database:
        migrate(database)


def _connect(server: DatabaseServer | Galera, name: str) -> Any:
    [port] = server.ports
    if server.dialect == "mysql":
        return pymysql.connect(host="127.0.0.1", port=port, user="root", database=name, autocommit=True)
    return psycopg.connect(f"postgresql://peerd@127.0.0.1:{port}/{name}", autocommit=True)


def _answer(connection: Any, statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture(scope="session")
def migrated_databases(worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> MigratedDatabases:
    return MigratedDatabases(worker_id, tmp_path_factory.mktemp("migrated"))


@pytest.fixture
def migrated_file(migrated_databases: MigratedDatabases) -> Path:
    return migrated_databases.file()


@pytest.fixture
def migrated_factory(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_databases: MigratedDatabases
) -> Iterator[DatabaseFactory]:
    with ExitStack() as afterwards:
        yield partial(_create, migrated_databases, tmp_path, afterwards, request.node)


@pytest.fixture(scope="module")
def module_factory(
    tmp_path_factory: pytest.TempPathFactory, migrated_databases: MigratedDatabases
) -> Iterator[DatabaseFactory]:
    with ExitStack() as afterwards:
        yield partial(_create, migrated_databases, tmp_path_factory.mktemp("module"), afterwards, None)


@pytest.fixture(params=DATABASES)
def migrated_database(request: pytest.FixtureRequest, migrated_factory: DatabaseFactory) -> str:
    return migrated_factory(request.param)


@pytest.fixture(scope="module", params=DATABASES)
def module_database(request: pytest.FixtureRequest, module_factory: DatabaseFactory) -> str:
    return module_factory(request.param)


def _create(
    databases: MigratedDatabases, folder: Path, afterwards: ExitStack, item: pytest.Item | None, kind: str
) -> str:
    if kind == "sqlite":
        if item is not None:
            note_database(item, kind)
        return f"sqlite:///{shutil.copy(databases.file(), folder / f'migrated{next(_numbers)}.sqlite')}"
    server = installed(kind, item, lambda: server_session.shared_server(kind))
    name = databases.take(server)
    afterwards.callback(databases.give_back, server, name)
    return server.url(name)
