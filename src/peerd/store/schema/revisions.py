"""The revisions of the tables, and the versions of the code that may use each of them.

A cluster is upgraded node by node, so for a while nodes of two versions share the tables. Each revision names the
oldest revision whose code can use the tables after it. The migration writes that into the database, where nodes read it
that are too old to know the revision itself.

A revision that only adds (a table, a nullable column or one with a default, an index) *expands* and names an old one. A
revision that removes or changes what older code uses *contracts*: it names itself, or the one before it that stopped
that use, and is not applied while an older node is alive.
"""

from __future__ import annotations

from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.store.schema.types import name_type

NODE_ALIVE_WITHIN: Final = 60.0
"""Seconds since its last heartbeat for which a node counts as alive before a migration, or the deletion of its row."""


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
