"""Creating the tables, and migrating a database to the revision that this version of peerd needs.

An empty database gets the tables as they are at the newest revision; tables of an earlier version are changed by the
revisions since, in `peerd/store/migrations`, whose history is here. Every process compares the revision at its
start; only one that changes tables loads Alembic, which takes longer than all the rest.

The tables are in use meanwhile. So no statement of a migration waits long for a table: on MySQL and PostgreSQL every
later statement on that table would queue behind it. It fails after `TABLE_LOCK_TIMEOUT`, and is repeated.

A cluster is upgraded node by node, so for a while nodes of two versions share the tables. Each revision names the
oldest revision whose code can use the tables after it. The migration writes that into the database, where nodes read it
that are too old to know the revision itself.

A revision that only adds (a table, a nullable column or one with a default, an index) *expands* and names an old one. A
revision that removes or changes what older code uses *contracts*: it names itself, or the one before it that stopped
that use, and is not applied while an older node is alive.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable

from peerd.domain.errors import DatabaseBusy, NodesTooOld, SchemaMissing, SchemaTooNew
from peerd.runtime.concurrency import ForkSafeLock
from peerd.store.connection.database import Database, require_version, translated_errors
from peerd.store.connection.database_errors import error_code
from peerd.store.connection.mysql import is_member
from peerd.store.schema.tables import metadata, nodes
from peerd.store.schema.types import MYSQL, is_on, name_type, seconds_from_now

FOLDER: Final = Path(str(files("peerd.store"))) / "migrations"
LOCK_NAME: Final = "concat('peerd_migrate.', left(sha2(database(), 256), 32))"
MIGRATION_LOCK_TIMEOUT: Final = 50
"""Seconds that a migration waits for another one on MySQL; less than the driver waits for an answer."""
TABLE_LOCK_TIMEOUT: Final = 5
"""Seconds that a statement waits for a table in use."""
MAX_STATEMENT_SECONDS: Final = 86_400
"""Seconds that a statement of a migration may take."""
ALREADY_APPLIED_ERRORS: Final = frozenset({1060, 1061, 1091, 3821, 3822, 3940})
"""MySQL: the column exists, the index exists, what is dropped does not exist; the last three are of constraints."""
_ALEMBIC: Final = ForkSafeLock()
"""Alembic keeps the present migration in globals of its modules, so threads take turns."""
GALERA_TRIES: Final = 5
"""A named lock is local to a server of a Galera cluster, so two servers may migrate at once. DDL is applied on all of
them in one order, and what is applied already is ignored, but the later migration may fail, in many ways (a lost
connection is one). It is repeated, and then finds nothing to do."""
NODE_ALIVE_WITHIN: Final = 60.0
"""Seconds since its last heartbeat for which a node counts as alive before a migration, or the deletion of its row."""


def find_schema_version(database: Database) -> SchemaVersion | None:
    """The schema version of a database; None when it has no tables of peerd.

    Raises:
        DatabaseUnavailable: the database does not answer.
        UnsupportedDatabase: it is too old.
    """

    def find(connection: Connection) -> SchemaVersion | None:
        require_version(connection)
        return read_schema_version(connection)

    return database.read(find)


def migrate(database: Database) -> str:
    """Create or change the tables up to `newest`; a database that is at it, or beyond, is not changed.

    Of two migrations at the same time, one waits for the other, and then finds nothing to do.

    Returns:
        the revision of the database afterwards.

    Raises:
        SchemaTooNew: a newer version of peerd has migrated it, and this one must not use it.
        NodesTooOld: a node runs whose code cannot use the tables afterwards; nothing was changed.
        DatabaseUnavailable: it does not answer.
        DatabaseBusy: a table was locked, or another migration ran, for a minute.
        UnsupportedDatabase: it is too old.
    """
    found = _refuse_incompatible(find_schema_version(database))
    if found is not None and not found.is_older:
        return found.revision
    for _ in range(GALERA_TRIES - 1 if database.read(is_member) else 0):
        try:
            return _upgrade_under_lock(database)
        except (SchemaTooNew, NodesTooOld):
            raise
        except Exception:  # noqa: BLE001 - see GALERA_TRIES; the last try raises it
            time.sleep(random.uniform(0.5, 1.5))
    return _upgrade_under_lock(database)


def require_current_schema(database: Database) -> None:
    """Check that this version can use the tables; a SQLite database is migrated.

    A newer schema is accepted if it allows this version, so a node keeps running while others are upgraded.

    Raises:
        SchemaMissing: the tables are missing or too old; the error says what to do.
        SchemaTooNew: a newer version of peerd has migrated it, and this one must not use it.
        DatabaseUnavailable: the database does not answer.
        UnsupportedDatabase: it is too old.
    """
    found = _refuse_incompatible(find_schema_version(database))
    if found is not None and not found.is_older:
        return
    if database.name != "sqlite":
        raise SchemaMissing(None if found is None else found.revision, newest())
    migrate(database)


def _refuse_incompatible(found: SchemaVersion | None) -> SchemaVersion | None:
    if found is not None and found.is_incompatible:
        raise SchemaTooNew(found.revision, newest())
    return found


def _upgrade_under_lock(database: Database) -> str:
    """Run the upgrade; on MySQL without a response time-out, because a statement on a large table may take hours."""
    with _migration_lock(database):
        if database.name not in MYSQL:
            return database.run(_upgrade)
        with closing(Database(database.url, pool_size=1, response_timeout=MAX_STATEMENT_SECONDS)) as unlimited:
            return unlimited.run(_upgrade)


def _upgrade(connection: Connection) -> str:
    with _short_lock_timeouts(connection):
        found = _refuse_incompatible(read_schema_version(connection))
        if found is not None and not found.is_older:
            return found.revision
        if found is None:
            create_tables(connection)
        else:
            _block_older_code(connection, found)
            _run_alembic(connection)
    return newest()


def _block_older_code(connection: Connection, found: SchemaVersion) -> None:
    """Before any change: let no process of older code start any more, and check that no older node is alive."""
    write_oldest_compatible(connection)
    barrier = oldest_compatible_revision()
    if barrier <= found.oldest:
        return
    alive = sa.and_(nodes.c.incarnation.is_not(None), nodes.c.checked_at > seconds_from_now(-NODE_ALIVE_WITHIN))
    older = sa.select(nodes.c.name).where(alive, nodes.c.revision < barrier)
    names = connection.execute(older.order_by(nodes.c.name)).scalars().all()
    if names:
        raise NodesTooOld(list(names), newest(), barrier)


def _run_alembic(connection: Connection) -> None:
    from alembic.operations import Operations  # noqa: PLC0415 - see above
    from alembic.runtime.migration import MigrationContext, MigrationStep  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    scripts = ScriptDirectory(FOLDER, version_locations=[FOLDER])

    def further_steps(revision: Any, _: MigrationContext) -> list[MigrationStep]:
        further = reversed(list(scripts.iterate_revisions("head", revision)))
        return [MigrationStep.upgrade_from_script(scripts.revision_map, script) for script in further]

    options = {
        "fn": further_steps,
        "version_table": version_table.name,
        "on_version_apply": (lambda **_: write_oldest_compatible(connection),),
    }
    context = MigrationContext.configure(connection, opts=options)
    with _ALEMBIC, Operations.context(context), context.begin_transaction():
        context.run_migrations()


def run_statement(connection: Connection, statement: str) -> None:
    """Run a statement of a revision.

    DDL is not rolled back on MySQL: what an interrupted run has applied already is ignored there.
    """
    try:
        connection.exec_driver_sql(statement if connection.dialect.name == "sqlite" else statement.replace("%", "%%"))
    except DBAPIError as error:
        if connection.dialect.name not in MYSQL or error_code(error) not in ALREADY_APPLIED_ERRORS:
            raise


@contextmanager
def _migration_lock(database: Database) -> Iterator[None]:
    """Hold MySQL's named lock, on a connection of its own: it must outlast the commit, and be idle for long.

    The other databases lock in `_short_lock_timeouts`.

    Raises:
        DatabaseBusy: another migration has held it for too long.
    """
    if database.name not in MYSQL:
        yield
        return
    with translated_errors(), database.engines.reads.connect() as guard:
        if guard.execute(sa.text(f"SELECT GET_LOCK({LOCK_NAME}, {MIGRATION_LOCK_TIMEOUT})")).scalar() != 1:
            raise DatabaseBusy("another migration is running", MIGRATION_LOCK_TIMEOUT)
        try:
            yield
        finally:
            with suppress(DBAPIError):  # the first error is the one to raise
                guard.execute(sa.text(f"SELECT RELEASE_LOCK({LOCK_NAME})"))


@contextmanager
def _short_lock_timeouts(connection: Connection) -> Iterator[None]:
    """Wait for other migrations, and then for no table longer than `TABLE_LOCK_TIMEOUT`."""
    match connection.dialect.name:
        case name if name in MYSQL:
            connection.execute(sa.text(f"SET SESSION lock_wait_timeout = {TABLE_LOCK_TIMEOUT}"))
            try:
                yield
            finally:
                with suppress(DBAPIError):  # the first error is the one to raise
                    connection.execute(sa.text("SET SESSION lock_wait_timeout = DEFAULT"))
        case "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7308327)"))
            connection.execute(sa.text(f"SET LOCAL lock_timeout = '{TABLE_LOCK_TIMEOUT}s'"))
            yield
        case _:
            yield  # BEGIN IMMEDIATE has waited


# ---------------------------------------------------------------- create


def create_tables(connection: Connection) -> None:
    """Create all tables, and write the revision last: without it, none of them counts.

    DDL is not rolled back on MySQL. So each table is created there by one statement, which makes it whole or not at
    all, and an interrupted creation can be run again.
    """
    for statement in create_statements(connection.dialect):
        connection.exec_driver_sql(statement)
    write_newest(connection)


def create_statements(dialect: Dialect) -> Iterator[str]:
    """The SQL that creates all tables and their indexes on a database."""
    for table in (version_table, *metadata.tables.values()):
        indexes = sorted((index for index in table.indexes if is_on(dialect, index)), key=lambda index: str(index.name))
        create_indexes = [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
        if dialect.name in MYSQL:
            yield _with_keys(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect)), create_indexes)
        else:
            yield str(CreateTable(table).compile(dialect=dialect))
            yield from create_indexes


def _with_keys(create_table: str, create_indexes: list[str]) -> str:
    r"""MySQL's CREATE TABLE with the indexes in it.

    >>> _with_keys("CREATE TABLE t (\n\ta INTEGER\n)ENGINE=InnoDB", ["CREATE UNIQUE INDEX t_a ON t (a)"])
    'CREATE TABLE t (\n\ta INTEGER,\n\tUNIQUE INDEX t_a (a)\n)ENGINE=InnoDB'
    """
    columns, end, options = create_table.rpartition("\n)")
    keys = []
    for create_index in create_indexes:
        name, _, key_columns = create_index.removeprefix("CREATE ").partition(" ON ")
        keys.append(f"{name} {key_columns[key_columns.index('(') :]}")
    return ",\n\t".join([columns, *keys]) + end + options


# ---------------------------------------------------------------- revisions


class Revision(msgspec.Struct, frozen=True):
    """A change of the tables. ``oldest``: the newest revision known to the oldest code that can use the tables then."""

    number: str
    oldest: str


HISTORY: Final = (
    Revision("0001", oldest="0001"),  # the tables of 0.1.0
)
"""All revisions that this version of peerd knows, in order."""

version_table: Final = sa.Table(
    "peerd_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.Column("oldest", name_type(32)),
    sa.PrimaryKeyConstraint("version_num", name="peerd_version_pkc"),
)
"""One row; Alembic knows it as a table with ``version_num``. It is not one of the tables that have data."""


def newest() -> str:
    """The revision that this version of peerd needs."""
    return HISTORY[-1].number


def oldest_compatible_revision() -> str:
    """The newest revision known to the oldest code that may use the tables at `newest`."""
    return HISTORY[-1].oldest


class SchemaVersion(msgspec.Struct, frozen=True):
    """The revision in a database, and the oldest one whose code may use its tables."""

    revision: str
    oldest: str

    @property
    def is_older(self) -> bool:
        """Whether it must be migrated before this version can use it."""
        return not self.is_incompatible and self.revision < newest()

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of peerd has migrated it and this one may still use it."""
        return not self.is_incompatible and self.revision > newest()

    @property
    def is_incompatible(self) -> bool:
        """Whether this version must not use it: it is newer, and does not allow this version."""
        return self.oldest > newest()


def read_schema_version(connection: Connection) -> SchemaVersion | None:
    """The schema version of a database; None when it has no tables of peerd, or not all of them yet."""
    if not sa.inspect(connection).has_table(version_table.name):
        return None
    row = connection.execute(sa.select(version_table)).first()
    return None if row is None else SchemaVersion(row.version_num, row.oldest)


def write_newest(connection: Connection) -> None:
    """Write into a database that its tables are complete, and whose code may use them."""
    row = {"version_num": newest(), "oldest": oldest_compatible_revision()}
    connection.execute(sa.insert(version_table).values(row))


def write_oldest_compatible(connection: Connection) -> None:
    """Write which code may use the tables."""
    connection.execute(sa.update(version_table).values(oldest=oldest_compatible_revision()))
