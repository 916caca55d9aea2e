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

VERSION_TABLE: Final = "peerd_version"
NODE_ALIVE_WITHIN: Final = 60.0
"""Seconds since its last heartbeat for which a node counts as alive before a migration, or the deletion of its row."""


class Revision(msgspec.Struct, frozen=True):
    """A change of the tables. ``oldest``: the newest revision known to the oldest code that can use the tables then."""

    number: str
    oldest: str


HISTORY: Final = (
    Revision("0001", oldest="0001"),
    Revision("0002", oldest="0001"),  # adds peerd_version.oldest and nodes.revision
    Revision("0003", oldest="0001"),  # adds schedules, schedule_runs
    Revision("0004", oldest="0004"),  # adds limits; the claim's index leaves out tasks with limit keys
    Revision("0005", oldest="0004"),  # adds processes.handlers
    Revision("0006", oldest="0004"),  # adds what queue clients need: columns of tasks, tasks_aside, queues.pause
    Revision("0007", oldest="0004"),  # tasks_due and tasks_closing end with the id
    Revision("0008", oldest="0004"),  # adds idempotency_keys
    Revision("0009", oldest="0004"),  # adds peerd_users, _tokens, _sessions, _login_failures, _audit
    Revision("0010", oldest="0004"),  # adds statistics, depths, processes.slots
    Revision("0011", oldest="0004"),  # adds bulk_actions
    Revision("0012", oldest="0004"),  # adds node_requests, stored_schedules
    Revision("0013", oldest="0004"),  # adds task_logs
    Revision("0014", oldest="0004"),  # adds alerts
    Revision("0015", oldest="0004"),  # stores tasks.aside_queue (MySQL)
    Revision("0016", oldest="0004"),  # adds disks, files and file_*
)
"""All revisions that this version of peerd knows, in order."""


def newest() -> str:
    """The revision that this version of peerd needs."""
    return HISTORY[-1].number


def oldest_compatible_revision() -> str:
    """The newest revision known to the oldest code that may use the tables at `newest`."""
    return HISTORY[-1].oldest


class SchemaVersion(msgspec.Struct, frozen=True):
    """The revision in a database, and the oldest one whose code may use its tables; None before revision 0002."""

    revision: str
    oldest: str | None

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
        if self.oldest is None:
            return all(self.revision != known.number for known in HISTORY)
        return self.oldest > newest()


def read_schema_version(connection: Connection) -> SchemaVersion | None:
    """The schema version of a database; None when it has no tables of peerd."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    row = connection.execute(sa.text(f"SELECT * FROM {VERSION_TABLE}")).mappings().first()  # noqa: S608 - our own name
    return None if row is None else SchemaVersion(row["version_num"], row.get("oldest"))


def write_oldest_compatible(connection: Connection) -> None:
    """Write which code may use the tables, if the database is at revision 0002 or later."""
    if any(column["name"] == "oldest" for column in sa.inspect(connection).get_columns(VERSION_TABLE)):
        connection.execute(
            sa.text(f"UPDATE {VERSION_TABLE} SET oldest = :oldest"),  # noqa: S608 - as above
            {"oldest": oldest_compatible_revision()},
        )
