"""Bringing a database's tables to what this version of peerd needs.

Every process asks at its start at which revision the tables are; only one that migrates loads Alembic, which takes
longer than all the rest. Revisions are the numbers that the files in ``migrations/versions`` begin with.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.errors import DatabaseBusy, SchemaMissing, SchemaTooNew
from peerd.store.database import Database
from peerd.store.engines import require_version
from peerd.store.types import MYSQL

if TYPE_CHECKING:
    from alembic.config import Config

FOLDER: Final = Path(str(files("peerd.store"))) / "migrations"
VERSION_TABLE: Final = "peerd_version"
LOCK_NAME: Final = "concat('peerd_migrate.', md5(database()))"
PATIENCE: Final = 60
"""Seconds that one migration waits for another on MySQL."""


def newest() -> str:
    """The revision that this version of peerd needs."""
    return _revisions()[-1]


def current(database: Database) -> str | None:
    """The revision that the database is at; None when it has no tables of peerd.

    Raises:
        DatabaseAway: it does not answer.
        UnsupportedDatabase: it is too old.
    """
    return database.read(_current)


def migrate(database: Database) -> str:
    """Create or change the tables up to `newest`; a database that is there already is left as it is.

    Two that migrate at once: one waits for the other, and finds nothing left to do.

    Returns:
        the revision that it is at now.

    Raises:
        SchemaTooNew: a newer version of peerd has migrated it.
        DatabaseAway: it does not answer.
        UnsupportedDatabase: it is too old.
    """
    found = current(database)
    if found is not None and not _is_known(found):
        raise SchemaTooNew(found, newest())
    try:
        database.run(_upgrade)
    except DBAPIError:
        # Another member of a Galera cluster may have done it at the same moment: locks by name end at a member.
        if current(database) != newest():
            raise
    return newest()


def require_newest(database: Database) -> None:
    """See that the tables are as this version needs them; an embedded database is brought there, quietly.

    Raises:
        SchemaMissing: they are not; the error says what to do.
        DatabaseAway: the database does not answer.
        UnsupportedDatabase: it is too old.
    """
    found = current(database)
    if found == newest():
        return
    if found is not None and not _is_known(found):
        raise SchemaTooNew(found, newest())
    if database.name != "sqlite":
        raise SchemaMissing(found, newest())
    migrate(database)


def _current(connection: Connection) -> str | None:
    require_version(connection)
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version = sa.table(VERSION_TABLE, sa.column("version_num", sa.Text()))
    return connection.execute(sa.select(version.c.version_num)).scalar()


@cache
def _revisions() -> list[str]:
    """The revisions that this version of peerd knows, oldest first."""
    return sorted(file.name.partition("_")[0] for file in (FOLDER / "versions").glob("[0-9]*_*.py"))


def _is_known(revision: str) -> bool:
    return revision in _revisions()


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - see above

    _wait_for_others(connection)
    try:
        configuration = _config()
        configuration.attributes["connection"] = connection
        command.upgrade(configuration, "head")
    except BaseException:
        with suppress(DBAPIError):  # the first error is the one to tell
            _let_others(connection)
        raise
    _let_others(connection)


def run_script(connection: Connection, revision: str) -> None:
    """Run the SQL of a revision that is written for this database."""
    name = "mysql" if connection.dialect.name in MYSQL else connection.dialect.name
    text = (FOLDER / "sql" / f"{revision}_{name}.sql").read_text()
    for statement in text.split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement.replace("%", "%%") if name != "sqlite" else statement)


def _config() -> Config:
    from alembic.config import Config  # noqa: PLC0415 - see above

    configuration = Config()
    configuration.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    configuration.set_main_option("path_separator", "os")
    return configuration


def _wait_for_others(connection: Connection) -> None:
    match connection.dialect.name:
        case name if name in MYSQL:
            if connection.execute(sa.text(f"SELECT GET_LOCK({LOCK_NAME}, {PATIENCE})")).scalar() != 1:
                raise DatabaseBusy("somebody else migrates it", PATIENCE)
        case "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(7308327)"))
        case _:
            pass  # BEGIN IMMEDIATE has done it


def _let_others(connection: Connection) -> None:
    if connection.dialect.name in MYSQL:
        connection.execute(sa.text(f"SELECT RELEASE_LOCK({LOCK_NAME})"))
