"""Migrations: they give exactly the tables of `tables.py`, on each database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from peerd.domain.errors import SchemaMissing, SchemaTooNew
from peerd.store import migrate as migrations
from peerd.store.database import Database
from peerd.store.migrate import VERSION_TABLE, current, migrate, newest, require_newest
from peerd.store.tables import metadata
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
    """What the database says that it has, by table: columns, constraints, indexes."""
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
        parts = re.split(r",\s(?![^(]*\))", sql) if kind == "table" else [sql]
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


def test_migrating_again_changes_nothing(open_new: Open) -> None:
    database = open_new()
    assert current(database) is None
    migrate(database)
    before = schema(database)
    assert migrate(database) == current(database) == newest()
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
    assert current(database) is None
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


def test_a_server_without_tables_is_told_so_and_sqlite_gets_them(open_new: Open) -> None:
    database = open_new()
    if database.name == "sqlite":
        require_newest(database)
        assert current(database) == newest()
        return
    with pytest.raises(SchemaMissing, match=r"has no tables of peerd yet.*peerd migrate"):
        require_newest(database)
    assert schema(database) == {}
    migrate(database)
    require_newest(database)


def test_tables_of_a_newer_version_are_left_alone(open_new: Open) -> None:
    database = open_new()
    migrate(database)
    database.run(lambda c: c.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for ask in (require_newest, migrate):
        with pytest.raises(SchemaTooNew, match=r"9999, which this version of peerd does not know"):
            ask(database)


@pytest.mark.parametrize("open_new", ["mariadb"], indirect=True)
def test_a_migration_that_was_cut_off_can_be_run_again(open_new: Open) -> None:
    """On MySQL a table that was made stays, whatever becomes of the rest."""
    database = open_new()
    migrate(database)
    before = schema(database)
    database.run(lambda c: c.exec_driver_sql(f"DROP TABLE {VERSION_TABLE}, unique_keys, queues"))
    migrate(database)
    assert schema(database) == before


def test_the_revisions_are_those_of_alembic() -> None:
    script = ScriptDirectory.from_config(migrations._config())
    assert [one.revision for one in script.walk_revisions()][::-1] == migrations._revisions()
    assert script.get_current_head() == newest()
