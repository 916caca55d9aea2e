"""All that `peerd doctor` examines: the database server, and the state of the cluster as it is counted now."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.domain.quoting import Masker
from peerd.operate.diagnostics import examine_database
from peerd.operate.diagnostics.finding import Finding
from peerd.operate.overview import read_overview
from peerd.store.queue_states import depth_points, sample_depths


def examine(connection: Connection, max_update: float, masker: Masker | None) -> list[Finding]:
    """All findings, of the database and of the cluster.

    Args:
        connection: in a transaction that only reads.
        max_update: seconds without a touch after which a running task is frozen.
        masker: of the values that the actor must not see.
    """
    sample = depth_points(connection, sample_depths(connection))
    overview = read_overview(connection, 3_600.0, masker, max_update=max_update, sample=sample)
    return [*examine_database(connection), *overview.findings]
