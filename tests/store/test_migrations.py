"""Migrations: they give exactly the tables of `tables.py`, on each database."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from peerd.domain.errors import DatabaseBusy, SchemaMissing, SchemaTooNew
from peerd.store.connection import engines
from peerd.store.connection.database import Database
from peerd.store.schema import migrate as migrations
from peerd.store.schema.migrate import current_revision, find_schema_version, migrate, newest, require_current_schema
from peerd.store.schema.revisions import HISTORY, VERSION_TABLE, SchemaVersion, oldest_compatible_revision
from peerd.store.schema.tables import metadata
from tests.store.world import at_once
from tests.support.servers import DATABASES, DatabaseFactory

Open = Callable[[], Database]


@pytest.fixture(params=DATABASES)
def open_new(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> Iterator[Open]:
    """Make new, empty databases of one kind."""
    made: list[Database] = []

    def open_() -> Database:
        made.append(Database(database_factory(request.param)))
        return made[-1]

    yield open_
    for database in made:
        database.close()


def schema(database: Database) -> dict[str, list[str]]:
    """The schema as the database reports it, by table: columns, constraints, indexes."""
    words = {"mysql": _schema_of_mysql, "postgresql": _schema_of_postgresql, "sqlite": _schema_of_sqlite}
    found = database.read(words[database.name])
    found.pop(VERSION_TABLE, None)
    return found


def _schema_of_mysql(connection: sa.Connection) -> dict[str, list[str]]:
    found = {}
    for (table,) in connection.exec_driver_sql("SHOW TABLES").all():
        text = connection.exec_driver_sql(f"SHOW CREATE TABLE {table}").one()[1]
        lines = [line.strip().rstrip(",") for line in re.sub(r" AUTO_INCREMENT=\d+", "", text).splitlines()]
        columns = [line for line in lines if line.startswith("`")]
        found[table] = columns + sorted(line for line in lines if not line.startswith("`"))
    return found


def _schema_of_postgresql(connection: sa.Connection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    columns = """
        SELECT c.relname, concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), co.collname, a.attnotnull,
            a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid), c.reloptions::text)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        LEFT JOIN pg_collation co ON co.oid = a.attcollation
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 ORDER BY 1, a.attnum"""
    constraints = """
        SELECT conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2"""
    indexes = "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2"
    for query in (columns, constraints, indexes):
        for table, line in connection.execute(sa.text(query)):
            found.setdefault(table, []).append(line)
    return found


def _schema_of_sqlite(connection: sa.Connection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, kind, sql in connection.exec_driver_sql(
        "SELECT tbl_name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type DESC, name"
    ):
        parts = re.split(r",\s+(?=CONSTRAINT )|,\s(?![^(]*\))|\s+(?=CONSTRAINT )", sql) if kind == "table" else [sql]
        found.setdefault(table, []).extend(" ".join(part.split()) for part in parts)
    return {
        table: sorted(line.replace("( ", "(").removesuffix(" )").removesuffix(")") for line in lines)
        for table, lines in found.items()
    }


def test_migrating_gives_exactly_the_tables_of_the_code(open_new: Open) -> None:
    migrated, created = open_new(), open_new()
    assert migrate(migrated) == newest()
    created.run(metadata.create_all)
    assert set(schema(migrated)) == set(metadata.tables)
    assert schema(migrated) == schema(created)


def test_a_new_sqlite_database_is_created_as_alembic_would_create_it(database_factory: DatabaseFactory) -> None:
    created, migrated = Database(database_factory("sqlite")), Database(database_factory("sqlite"))
    try:
        migrate(created)
        migrated.run(migrations._run_alembic)
        everything = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2"
        rows = [database.read(lambda c: c.exec_driver_sql(everything).all()) for database in (created, migrated)]
        without_blanks = [[(*row[:3], row[3] and "".join(row[3].split())) for row in found] for found in rows]
        assert without_blanks[0] == without_blanks[1]
        assert find_schema_version(created) == find_schema_version(migrated)
    finally:
        created.close()
        migrated.close()


def test_migrating_again_changes_nothing(open_new: Open) -> None:
    database = open_new()
    assert current_revision(database) is None
    migrate(database)
    before = schema(database)
    assert migrate(database) == current_revision(database) == newest()
    assert schema(database) == before


def test_what_was_migrated_can_be_taken_back(open_new: Open) -> None:
    database = open_new()
    migrate(database)

    def downgrade(connection: sa.Connection) -> None:
        configuration = migrations._config()
        configuration.attributes["connection"] = connection
        command.downgrade(configuration, "base")

    database.run(downgrade)
    assert schema(database) == {}
    assert current_revision(database) is None
    migrate(database)
    assert set(schema(database)) == set(metadata.tables)


def test_several_that_migrate_at_once_do_not_disturb_each_other(open_new: Open) -> None:
    database = open_new()
    others = [Database(database.url) for _ in range(4)]
    try:
        assert at_once([partial(migrate, other) for other in others]) == [newest()] * 4
    finally:
        for other in others:
            other.close()
    assert set(schema(database)) == set(metadata.tables)


def test_a_server_without_tables_is_reported_and_sqlite_gets_them(open_new: Open) -> None:
    database = open_new()
    if database.name == "sqlite":
        require_current_schema(database)
        assert current_revision(database) == newest()
        return
    with pytest.raises(SchemaMissing, match=r"has no tables of peerd yet.*peerd migrate"):
        require_current_schema(database)
    assert schema(database) == {}
    migrate(database)
    require_current_schema(database)


def set_schema(database: Database, revision: str, oldest: str | None) -> None:
    """Set the revision as another version would leave it."""
    word = sa.text(f"UPDATE {VERSION_TABLE} SET version_num = :revision, oldest = :oldest")
    database.run(lambda c: c.execute(word, {"revision": revision, "oldest": oldest}))


@pytest.mark.parametrize("oldest", [None, "9998"])
def test_tables_of_a_newer_version_are_left_alone(open_new: Open, oldest: str | None) -> None:
    database = open_new()
    migrate(database)
    set_schema(database, "9999", oldest)
    for operation in (require_current_schema, migrate):
        with pytest.raises(SchemaTooNew, match=r"9999, which this version of peerd does not know"):
            operation(database)


def test_tables_of_a_newer_version_that_let_older_code_in_are_worked_with(open_new: Open) -> None:
    database = open_new()
    migrate(database)
    set_schema(database, "9999", newest())
    require_current_schema(database)
    before = schema(database)
    assert migrate(database) == "9999"
    assert schema(database) == before


def test_a_contraction_that_was_cut_off_lets_no_older_code_in(open_new: Open) -> None:
    """The barrier is written before the tables change, and on MySQL it may be all that there is."""
    database = open_new()
    migrate(database)
    set_schema(database, newest(), "9999")
    with pytest.raises(SchemaTooNew):
        require_current_schema(database)


def test_every_revision_names_the_oldest_code_that_may_work_with_it() -> None:
    assert [one.number for one in HISTORY] == sorted(one.number for one in HISTORY)
    assert all(one.oldest <= one.number for one in HISTORY)
    barriers = [one.oldest for one in HISTORY]
    assert barriers == sorted(barriers), "older code that was let in no more cannot be let in again"


def test_the_database_shows_which_code_may_work_with_it(open_new: Open) -> None:
    database = open_new()
    assert find_schema_version(database) is None
    migrate(database)
    assert find_schema_version(database) == SchemaVersion(newest(), oldest_compatible_revision())


def test_a_table_that_is_locked_is_not_waited_for_by_blocking_others(
    open_new: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_new()
    if database.name == "sqlite":
        return  # one writer: it waits at BEGIN IMMEDIATE, and readers do not wait for it
    to_revision(database, "0001")
    monkeypatch.setattr(migrations, "TABLE_LOCK_TIMEOUT", 1)
    monkeypatch.setattr("peerd.store.connection.database.TRIES", 2)
    held = "SELECT count(*) FROM nodes"
    with database.engine.connect() as forgotten:
        forgotten.execute(sa.text(held))
        with pytest.raises(DatabaseBusy, match="find the transaction that stays open"):
            migrate(database)
    assert current_revision(database) == "0001"
    migrate(database)
    with database.engine.connect() as after:
        lock_timeout = {"mysql": "@@lock_wait_timeout", "postgresql": "current_setting('lock_timeout')"}[database.name]
        assert after.execute(sa.text(f"SELECT {lock_timeout}")).scalar() not in (1, "1s")


def test_a_migration_keeps_others_out_for_as_long_as_it_takes(open_new: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is held by a connection that sends nothing meanwhile."""
    monkeypatch.setattr(engines, "IDLE_TRANSACTION_TIMEOUT", 1)
    monkeypatch.setattr(migrations, "MIGRATION_LOCK_TIMEOUT", 1)
    database = open_new()
    if database.name != "mysql":
        return  # a transaction holds it that has something to do
    other = Database(database.url)
    with migrations._migration_lock(database):
        time.sleep(2.5)
        with pytest.raises(DatabaseBusy), migrations._migration_lock(other):
            pass
    other.close()


def test_a_migration_that_takes_longer_than_any_answer_may_is_carried_out(
    open_new: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = migrations._run_alembic

    def carry_out_slowly(connection: sa.Connection) -> None:
        if connection.dialect.name == "mysql":
            connection.exec_driver_sql("SELECT SLEEP(2.5)")  # as an ALTER of a large table, which sends nothing either
        carry_out(connection)

    monkeypatch.setattr(engines, "RESPONSE_TIMEOUT", 1)
    monkeypatch.setattr(migrations, "_run_alembic", carry_out_slowly)
    assert migrate(open_new()) == newest()


def test_a_migration_whose_wait_for_another_times_out_is_reported_before_the_driver_gives_up() -> None:
    assert migrations.MIGRATION_LOCK_TIMEOUT < engines.RESPONSE_TIMEOUT


def to_revision(database: Database, revision: str) -> None:
    """Bring the tables to an earlier revision."""

    def go(connection: sa.Connection) -> None:
        configuration = migrations._config()
        configuration.attributes["connection"] = connection
        command.upgrade(configuration, revision)

    database.run(go)


@pytest.mark.parametrize("revision", [one.number for one in HISTORY[:-1]])
def test_each_earlier_revision_can_be_migrated_with_what_is_in_it(open_new: Open, revision: str) -> None:
    database, created = open_new(), open_new()
    to_revision(database, revision)
    database.run(lambda c: c.execute(sa.text("INSERT INTO tasks (queue) VALUES ('video')")))
    database.run(
        lambda c: c.execute(sa.text("INSERT INTO nodes (name, incarnation, active) VALUES ('old', 'x', true)"))
    )
    assert migrate(database) == newest()
    created.run(metadata.create_all)
    assert schema(database) == schema(created)
    assert find_schema_version(database) == SchemaVersion(newest(), oldest_compatible_revision())
    assert database.read(lambda c: c.execute(sa.text("SELECT count(*) FROM tasks")).scalar()) == 1


@pytest.mark.parametrize("open_new", ["mariadb"], indirect=True)
def test_a_migration_that_was_cut_off_can_be_run_again(open_new: Open) -> None:
    """On MySQL a table that was made stays, even if the rest of the migration fails."""
    database = open_new()
    migrate(database)
    before = schema(database)
    database.run(lambda c: c.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}, unique_keys, queues"))
    migrate(database)
    assert schema(database) == before


@pytest.mark.parametrize("open_new", ["mariadb"], indirect=True)
@pytest.mark.parametrize("done", ["", "ALTER TABLE peerd_version DROP COLUMN oldest"])
def test_a_change_that_was_cut_off_can_be_run_again(open_new: Open, done: str) -> None:
    database = open_new()
    migrate(database)
    before = schema(database)
    for statement in filter(None, ["UPDATE peerd_version SET version_num = '0001'", done]):
        database.run(sa.Connection.exec_driver_sql, statement)
    migrate(database)
    assert schema(database) == before
    assert find_schema_version(database) == SchemaVersion(newest(), oldest_compatible_revision())


def test_the_revisions_are_those_of_alembic() -> None:
    script = ScriptDirectory.from_config(migrations._config())
    assert [one.revision for one in script.walk_revisions()][::-1] == [one.number for one in HISTORY]
    assert script.get_current_head() == newest()
