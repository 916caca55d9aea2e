"""Arrive: what is due becomes pending, and what was written as pending too early becomes scheduled."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.domain.lifecycle import Status
from peerd.store.maintenance.chore_batches import postpone, stage_due


def scheduled(connection: Connection, settings: ManagerSettings) -> int:
    """Scheduled tasks whose time has come."""
    return stage_due(connection, Status.SCHEDULED, settings.batch)


def failures(connection: Connection, settings: ManagerSettings) -> int:
    """Failed tasks whose next attempt is due."""
    return stage_due(connection, Status.FAILURE, settings.batch)


def ahead(connection: Connection, settings: ManagerSettings) -> int:
    """Pending tasks whose start_at is ahead."""
    return postpone(connection, settings.batch)
