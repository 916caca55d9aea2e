"""Pinned: tasks that may run on one node only, which stays silent, follow the policy of [manager]."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.store.maintenance.chore_batches import fail_pinned, free_pinned
from peerd.store.maintenance.due import DueMaintenance


def apply_pinned_policy(connection: Connection, settings: ManagerSettings) -> int:
    """Free or fail what has waited for a silent node for ``pinned_after``; with ``wait``, leave it."""
    match settings.pinned_policy:
        case "move":
            return free_pinned(connection, settings.pinned_after, settings.batch)
        case "fail":
            return fail_pinned(connection, settings.pinned_after, settings.batch)
        case "wait":
            return 0


def pinned_policy_due(agenda: DueMaintenance, settings: ManagerSettings) -> datetime | None:
    """Whether there is anything to follow: with ``wait`` there is not."""
    return None if settings.pinned_policy == "wait" else agenda.now
