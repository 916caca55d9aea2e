"""Bringing a database's tables to what this version of peerd needs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from peerd.domain.errors import SchemaMissing
from peerd.store.database import Database, worded
from peerd.store.types import MYSQL

FOLDER: Final = Path(str(files("peerd.store"))) / "migrations"
VERSION_TABLE: Final = "peerd_version"


def newest() -> str:
    """The revision that this version of peerd needs."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def current(database: Database) -> str | None:
    """The revision that the database is at; None when it has no tables of peerd.

    Raises:
        DatabaseAway: it does not answer.
    """
    with worded(), database.engine.connect() as connection:
        return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def migrate(database: Database) -> str:
    """Create or change the tables up to `newest`; a database that is there already is left as it is.

    Two that migrate at once: on PostgreSQL and SQLite one waits for the other. On MySQL a lock by name makes it wait.

    Returns:
        the revision that it is at now.

    Raises:
        DatabaseAway: it does not answer.
    """
    with worded(), database.engine.begin() as connection:
        _wait_for_others(connection)
        try:
            configuration = _config()
            configuration.attributes["connection"] = connection
            command.upgrade(configuration, "head")
        finally:
            _let_others(connection)
    return newest()


def require_newest(database: Database) -> None:
    """See that the tables are as this version needs them; an embedded database is brought there, quietly.

    Raises:
        SchemaMissing: they are not; the error says what to do.
        DatabaseAway: the database does not answer.
    """
    found = current(database)
    if found == newest():
        return
    if database.name == "sqlite":
        migrate(database)
        return
    raise SchemaMissing(found, newest())


def run_script(connection: Connection, revision: str) -> None:
    """Run the SQL of a revision that is written for this database."""
    name = "mysql" if connection.dialect.name in MYSQL else connection.dialect.name
    text = (FOLDER / "sql" / f"{revision}_{name}.sql").read_text()
    for statement in text.split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement.replace("%", "%%") if name != "sqlite" else statement)


def _config() -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    configuration.set_main_option("path_separator", "os")
    return configuration


def _wait_for_others(connection: Connection) -> None:
    match connection.dialect.name:
        case name if name in MYSQL:
            connection.execute(sa.text("SELECT GET_LOCK('peerd_migrate', 60)"))
        case "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7308327)"))
        case _:
            pass  # BEGIN IMMEDIATE has done it


def _let_others(connection: Connection) -> None:
    if connection.dialect.name in MYSQL:
        connection.execute(sa.text("SELECT RELEASE_LOCK('peerd_migrate')"))
