"""Purge: rows that nobody needs any more are deleted."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.domain.lifecycle import Status
from peerd.store import sweeps


def expired(connection: Connection, settings: ManagerSettings) -> int:
    """Pending tasks past their finish_at."""
    return sweeps.expire(connection, settings.batch)


def done(connection: Connection, settings: ManagerSettings) -> int:
    """Tasks done longer than ``max_completed`` ago."""
    return sweeps.purge(connection, Status.DONE, settings.max_completed, settings.batch)


def canceled(connection: Connection, settings: ManagerSettings) -> int:
    """Tasks canceled longer than ``max_completed`` ago."""
    return sweeps.purge(connection, Status.CANCELED, settings.max_completed, settings.batch)


def dead(connection: Connection, settings: ManagerSettings) -> int:
    """Tasks dead longer than ``max_failed`` ago."""
    return sweeps.purge(connection, Status.DEAD, settings.max_failed, settings.batch)


def keys(connection: Connection, settings: ManagerSettings) -> int:
    """Unique keys whose period is over."""
    return sweeps.purge_keys(connection, settings.batch)


def processes(connection: Connection, settings: ManagerSettings) -> int:
    """Records of processes that ended longer than ``max_failed`` ago."""
    return sweeps.purge_processes(connection, settings.max_failed, settings.batch)
