"""Creating the tables in a database that has none, at the newest revision, as `peerd.store.schema.tables` has them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from peerd.store.schema.revisions import version_table, write_newest
from peerd.store.schema.tables import metadata
from peerd.store.schema.types import MYSQL, is_on


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
