"""Purge: rows that nobody needs any more are deleted."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.domain.lifecycle import Status
from peerd.store.limits.definitions import purge_limit_starts
from peerd.store.maintenance import chore_batches
from peerd.store.nodes.nodes import purge_nodes
from peerd.store.schedule_runs import purge_runs
from peerd.store.schedules import purge_schedules


def expired(connection: Connection, settings: ManagerSettings) -> int:
    """Pending tasks past their finish_at."""
    return chore_batches.expire(connection, settings.batch)


def done(connection: Connection, settings: ManagerSettings) -> int:
    """Tasks done longer than ``max_completed`` ago."""
    return chore_batches.purge(connection, Status.DONE, settings.max_completed, settings.batch)


def canceled(connection: Connection, settings: ManagerSettings) -> int:
    """Tasks canceled longer than ``max_completed`` ago."""
    return chore_batches.purge(connection, Status.CANCELED, settings.max_completed, settings.batch)


def dead(connection: Connection, settings: ManagerSettings) -> int:
    """Tasks dead longer than ``max_failed`` ago."""
    return chore_batches.purge(connection, Status.DEAD, settings.max_failed, settings.batch)


def keys(connection: Connection, settings: ManagerSettings) -> int:
    """Unique keys whose period is over."""
    return chore_batches.purge_keys(connection, settings.batch)


def starts(connection: Connection, settings: ManagerSettings) -> int:
    """Starts of limited tasks that no rate counts any more."""
    return purge_limit_starts(connection, settings.batch)


def runs(connection: Connection, settings: ManagerSettings) -> int:
    """Runs of schedules that ended longer than ``max_run_age`` ago, and all but the newest ``max_runs`` of each."""
    return purge_runs(connection, settings.max_runs, settings.max_run_age, settings.batch)


def schedules(connection: Connection, settings: ManagerSettings) -> int:
    """Schedules that no node has had for ``max_run_age``."""
    return purge_schedules(connection, settings.max_run_age)


def processes(connection: Connection, settings: ManagerSettings) -> int:
    """Records of processes that ended longer than ``max_failed`` ago."""
    return chore_batches.purge_processes(connection, settings.max_failed, settings.batch)


def nodes(connection: Connection, settings: ManagerSettings) -> int:
    """Rows of nodes that have been gone for ``max_node_age``."""
    return purge_nodes(connection, settings.max_node_age, settings.batch)
