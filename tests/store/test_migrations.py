"""Migrations: an empty database gets the tables of `tables.py`; those of an earlier revision are changed."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from peerd.domain.errors import DatabaseBusy, NodesTooOld, SchemaMissing, SchemaTooNew
from peerd.store.connection import mysql as connections
from peerd.store.connection.database import Database
from peerd.store.connection.pools import RESPONSE_TIMEOUT
from peerd.store.nodes import register_incarnation
from peerd.store.schema import migrate as migrations
from peerd.store.schema.migrate import (
    HISTORY,
    NODE_ALIVE_WITHIN,
    Revision,
    SchemaVersion,
    create_statements,
    create_tables,
    find_schema_version,
    migrate,
    newest,
    oldest_compatible_revision,
    require_current_schema,
    version_table,
)
from peerd.store.schema.tables import metadata, nodes
from peerd.store.schema.types import is_on, seconds_from_now
from tests.store.world import at_once
from tests.support.server_kinds import INNODB
from tests.support.servers import DatabaseFactory, as_admin
from tests.upgrade.versions import FutureRevision

pytestmark = pytest.mark.every_database

SCHEMAS = {"0001": {"mysql": "8cd1e84fdef9685c", "postgresql": "b3ab7ed910c06451", "sqlite": "d3720265633c57d2"}}
"""What `tables.py` says at each revision, per database: a digest of its SQL."""

AddRevision = Callable[[FutureRevision], None]


@pytest.fixture
def empty(database: str) -> Iterator[Database]:
    with closing(Database(database)) as opened:
        yield opened


@pytest.fixture
def migrated(empty: Database) -> Database:
    migrate(empty)
    return empty


@pytest.fixture
def add_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddRevision:
    """Let this version know one more revision."""

    def add(revision: FutureRevision) -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(migrations.FOLDER, folder)
        revision.write(folder, before=newest())
        monkeypatch.setattr(migrations, "FOLDER", folder)
        monkeypatch.setattr(migrations, "HISTORY", (*HISTORY, Revision(revision.number, revision.oldest)))

    return add


def schema(database: Database) -> dict[str, tuple[list[str], set[str]]]:
    """The columns of each table in their order, and its named indexes, as the database reports them."""
    inspector, found = sa.inspect(database.engine), {}
    constraints = {one.name for table in metadata.tables.values() for one in table.constraints}
    for table in inspector.get_table_names():
        named = {str(index["name"]) for index in inspector.get_indexes(table) if "duplicates_constraint" not in index}
        found[table] = [column["name"] for column in inspector.get_columns(table)], named - constraints
    return found


def test_times_may_be_null_where_mysql_takes_them_for_not_null(database_factory: DatabaseFactory) -> None:
    url = as_admin(database_factory("mysql"))
    with closing(Database(url)) as database, database.engine.begin() as connection:
        connection.exec_driver_sql("SET SESSION explicit_defaults_for_timestamp = OFF")
        create_tables(connection)
        columns = connection.exec_driver_sql(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = database()"
            " AND extra LIKE '%%GENERATED' AND data_type = 'timestamp' AND is_nullable = 'YES' ORDER BY 1"
        )
        assert columns.scalars().all() == ["closing_at", "due_at"]


def test_a_change_of_the_tables_is_a_new_revision() -> None:
    """If this fails, and a released version has the newest revision, write another one (docs/schema.md)."""
    found = {}
    dialects: list[Dialect] = [mysql.dialect(), postgresql.dialect(), sqlite.dialect()]  # type: ignore[no-untyped-call]
    for dialect in dialects:
        statements = [" ".join(statement.split()) for statement in create_statements(dialect)]
        found[dialect.name] = hashlib.sha256("\n".join(statements).encode()).hexdigest()[:16]
    assert {newest(): found} == {newest(): SCHEMAS[newest()]}


def test_the_revisions_are_those_of_alembic_and_let_no_older_code_in_again() -> None:
    script = ScriptDirectory(migrations.FOLDER, version_locations=[migrations.FOLDER])
    assert [one.revision for one in script.walk_revisions()][::-1] == [one.number for one in HISTORY] == sorted(SCHEMAS)
    assert all(one.oldest <= one.number for one in HISTORY)
    barriers = [one.oldest for one in HISTORY]
    assert barriers == sorted(barriers)


def test_a_new_database_has_every_column_and_index_that_the_code_gives_it(empty: Database) -> None:
    assert find_schema_version(empty) is None
    assert migrate(empty) == getattr(find_schema_version(empty), "revision", None) == newest()
    assert find_schema_version(empty) == SchemaVersion(newest(), oldest_compatible_revision())
    dialect = empty.engine.dialect
    wanted = {
        table.name: (
            [column.name for column in table.columns if is_on(dialect, column)],
            {index.name for index in table.indexes if is_on(dialect, index)},
        )
        for table in (version_table, *metadata.tables.values())
    }
    assert schema(empty) == wanted
    assert migrate(empty) == newest()
    assert schema(empty) == wanted


def test_several_that_migrate_at_once_do_not_disturb_each_other(empty: Database) -> None:
    with ExitStack() as afterwards:
        others = [afterwards.enter_context(closing(Database(empty.url))) for _ in range(4)]
        assert at_once([partial(migrate, other) for other in others]) == [newest()] * 4
    assert schema(empty).keys() == {*metadata.tables, version_table.name}


def test_tables_of_a_newer_version_are_worked_with_only_if_it_lets_older_code_in(migrated: Database) -> None:
    """The barrier is written before the tables change, and on MySQL it may be all that a cut off contraction left."""
    before = schema(migrated)

    def set_schema(revision: str, oldest: str) -> None:
        migrated.run(lambda c: c.execute(sa.update(version_table).values(version_num=revision, oldest=oldest)))

    for revision, oldest in (("9999", "9998"), (newest(), "9999")):
        set_schema(revision, oldest)
        for operation in (require_current_schema, migrate):
            with pytest.raises(SchemaTooNew, match=rf"{revision}, which this version of peerd does not know"):
                operation(migrated)
    set_schema("9999", newest())
    require_current_schema(migrated)
    assert migrate(migrated) == "9999"
    assert schema(migrated) == before


def test_an_expansion_changes_tables_in_use_and_one_that_was_cut_off_is_run_again(
    migrated: Database, add_revision: AddRevision
) -> None:
    statements = ("ALTER TABLE tasks ADD COLUMN colour INTEGER", "CREATE INDEX tasks_colour ON tasks (colour)")
    migrated.run(lambda c: c.execute(sa.text("INSERT INTO tasks (queue, name) VALUES ('video', '100 %')")))
    add_revision(FutureRevision("9998", newest(), (*statements, "UPDATE tasks SET colour = 1 WHERE name LIKE '% %'")))
    with pytest.raises(SchemaMissing) if migrated.name != "sqlite" else ExitStack():
        require_current_schema(migrated)
    if migrated.name == "mysql":  # the only one where what was applied before it was cut off stays
        migrated.run(lambda c: [c.exec_driver_sql(statement) for statement in statements])
    assert migrate(migrated) == "9998"
    assert find_schema_version(migrated) == SchemaVersion("9998", HISTORY[-1].number)
    assert migrated.read(lambda c: c.execute(sa.text("SELECT colour FROM tasks")).scalar()) == 1


def test_a_revision_that_fails_is_not_reported_as_applied(migrated: Database, add_revision: AddRevision) -> None:
    before = schema(migrated)
    add_revision(
        FutureRevision(
            "9998", HISTORY[0].number, ("CREATE TABLE colours (name INTEGER)", "ALTER TABLE nowhere ADD x INTEGER")
        )
    )
    with pytest.raises(DBAPIError, match="nowhere"):
        migrate(migrated)
    assert find_schema_version(migrated) == SchemaVersion(HISTORY[0].number, HISTORY[0].oldest)
    assert schema(migrated).keys() - before.keys() == ({"colours"} if migrated.name == "mysql" else set())


def test_a_contraction_waits_for_the_last_node_of_older_code(migrated: Database, add_revision: AddRevision) -> None:
    migrated.run(lambda c: register_incarnation(c, "old", "of-old", replaces=None))
    add_revision(FutureRevision("9999", "9999", ("ALTER TABLE nodes DROP COLUMN zone",)))
    migrated.run(lambda c: register_incarnation(c, "new", "of-new", replaces=None))
    silent = sa.update(nodes).values(checked_at=seconds_from_now(-2 * NODE_ALIVE_WITHIN))
    with pytest.raises(NodesTooOld, match="revision 9999 takes away what older nodes need, and old is running"):
        migrate(migrated)
    assert find_schema_version(migrated) == SchemaVersion(HISTORY[-1].number, HISTORY[-1].oldest)
    migrated.run(lambda c: c.execute(silent.where(nodes.c.name == "old")))
    assert migrate(migrated) == "9999"
    assert find_schema_version(migrated) == SchemaVersion("9999", "9999")


def test_a_creation_that_was_cut_off_leaves_no_tables_or_is_run_again(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On MySQL a table that was made stays, even if the rest of the migration fails."""
    with monkeypatch.context() as cut_off:
        cut_off.setattr("peerd.store.schema.migrate.write_newest", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            migrate(empty)
    assert find_schema_version(empty) is None
    left = schema(empty)
    if empty.name != "mysql":
        assert left == {}
        return
    for missing in ("peerd_version, unique_keys, tasks", "files"):
        empty.run(sa.Connection.exec_driver_sql, f"DROP TABLE {missing}")
        migrate(empty)
        assert schema(empty) == left
        empty.run(lambda c: c.execute(sa.delete(version_table)))


def test_a_table_that_is_locked_is_not_waited_for_by_blocking_others(
    server_database: str, add_revision: AddRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite there is one writer: it waits at BEGIN IMMEDIATE, and readers do not wait for it."""
    monkeypatch.setattr(migrations, "TABLE_LOCK_TIMEOUT", 1)
    monkeypatch.setattr("peerd.store.connection.database.TRIES", 2)
    with closing(Database(server_database)) as database:
        migrate(database)
        add_revision(FutureRevision("9998", newest(), ("ALTER TABLE nodes ADD COLUMN colour INTEGER",)))
        with database.engine.connect() as forgotten:
            forgotten.execute(sa.text("SELECT count(*) FROM nodes"))
            with pytest.raises(DatabaseBusy, match="find the transaction that stays open"):
                migrate(database)
        assert getattr(find_schema_version(database), "revision", None) == HISTORY[-1].number
        assert migrate(database) == "9998"
        setting = {"mysql": "@@lock_wait_timeout", "postgresql": "current_setting('lock_timeout')"}[database.name]
        with database.engine.connect() as after:
            assert after.execute(sa.text(f"SELECT {setting}")).scalar() not in (1, "1s")


@pytest.mark.every_database
@pytest.mark.parametrize("kind", INNODB)
def test_a_migration_keeps_others_out_for_as_long_as_it_takes(
    kind: str, database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On MySQL its lock is held by a connection that sends nothing meanwhile; elsewhere a transaction holds it."""
    assert migrations.MIGRATION_LOCK_TIMEOUT < RESPONSE_TIMEOUT, "the driver would give up before"
    monkeypatch.setattr(connections, "IDLE_TRANSACTION_TIMEOUT", 1)
    monkeypatch.setattr(migrations, "MIGRATION_LOCK_TIMEOUT", 1)
    url = database_factory(kind)
    with closing(Database(url)) as database, closing(Database(url)) as other, migrations._migration_lock(database):
        time.sleep(2.5)
        with pytest.raises(DatabaseBusy), migrations._migration_lock(other):
            pass


@pytest.mark.every_database
@pytest.mark.parametrize("kind", INNODB)
def test_a_migration_that_takes_longer_than_any_answer_may_is_carried_out(
    kind: str, database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_slowly(connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT SLEEP(2.5)")  # as an ALTER of a large table, which sends nothing either
        create_tables(connection)

    monkeypatch.setattr(connections, "RESPONSE_TIMEOUT", 1)
    monkeypatch.setattr(migrations, "create_tables", create_slowly)
    with closing(Database(database_factory(kind))) as database:
        assert migrate(database) == newest()
