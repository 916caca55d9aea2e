"""The revisions of the tables, and which code may work with which of them.

A cluster is upgraded node by node, so for a while nodes of two versions share the tables. Each revision says the oldest
one whose code can work with the tables after it, and the migration writes that beside the revision into the database.
There an older node reads it, which cannot know the revision itself.

A revision that only adds (a table, a column with a default or null, an index) names an old one: it *expands*. One that
takes away or changes what older code uses names itself, or one before it that stopped using that: it *contracts*, and
is not carried out while a living node is older.
"""

from __future__ import annotations

from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

VERSION_TABLE: Final = "peerd_version"


class Revision(msgspec.Struct, frozen=True):
    """A change of the tables.

    ``number`` is what its file in ``migrations/versions`` begins with; ``oldest`` is the newest revision that the
    oldest code knows which can work with the tables after this one.
    """

    number: str
    oldest: str


HISTORY: Final = (
    Revision("0001", oldest="0001"),
    Revision("0002", oldest="0001"),  # adds peerd_version.oldest and nodes.revision
    Revision("0003", oldest="0001"),  # adds schedules, schedule_runs
    Revision("0004", oldest="0004"),  # adds limits; the claim's index leaves out what is taken by turns
    Revision("0005", oldest="0004"),  # adds processes.handlers
)
"""All revisions that this version of peerd knows, in their order."""


def newest() -> str:
    """The revision that this version of peerd is written for."""
    return HISTORY[-1].number


def oldest_compatible_revision() -> str:
    """The newest revision that the oldest code knows which may work with the tables at `newest`."""
    return HISTORY[-1].oldest


class SchemaVersion(msgspec.Struct, frozen=True):
    """What a database says of its tables: their revision, and the oldest whose code may work with them.

    ``oldest`` is None at revisions that did not say it yet.
    """

    revision: str
    oldest: str | None

    @property
    def is_older(self) -> bool:
        """Whether it must be migrated before this version can work with it."""
        return not self.is_incompatible and self.revision < newest()

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of peerd has migrated it, and lets this one go on."""
        return not self.is_incompatible and self.revision > newest()

    @property
    def is_incompatible(self) -> bool:
        """Whether this version must not touch it: it is newer, and does not say that this version may go on."""
        if self.oldest is None:
            return all(self.revision != known.number for known in HISTORY)
        return self.oldest > newest()


def read_schema_version(connection: Connection) -> SchemaVersion | None:
    """The schema that a database is at; None when it has no tables of peerd."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    row = connection.execute(sa.text(f"SELECT * FROM {VERSION_TABLE}")).mappings().first()  # noqa: S608 - our own name
    return None if row is None else SchemaVersion(row["version_num"], row.get("oldest"))


def write_oldest_compatible(connection: Connection) -> None:
    """Write into the database which code may work with the tables; nothing where it has no place for that yet."""
    if any(column["name"] == "oldest" for column in sa.inspect(connection).get_columns(VERSION_TABLE)):
        connection.execute(
            sa.text(f"UPDATE {VERSION_TABLE} SET oldest = :oldest"),  # noqa: S608 - as above
            {"oldest": oldest_compatible_revision()},
        )
