"""Examination of storage: which files cannot be read, and what keeps copies from being made."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.domain.alert import AlertKind
from peerd.operate.diagnostics.finding import Finding, Level
from peerd.storage.conditions import BRING_BACK, read_conditions
from peerd.storage.overview import is_storage_used


def storage_findings(connection: Connection) -> list[Finding]:
    """Files and disks."""
    if not is_storage_used(connection):
        return []
    overview, conditions = read_conditions(connection)
    files = {"storage": "files"}
    found = [
        Finding(
            Level.WARNING if one.kind is AlertKind.DISK_FULL else Level.PROBLEM,
            "storage",
            one.text,
            one.remedy,
            files if one.disk is None else {"disk": str(one.disk)},
        )
        for one in conditions
    ]
    if overview.away is not None and not overview.away.files.files:
        found.append(Finding(Level.WARNING, "storage", overview.away.text, BRING_BACK, files))
    return found or [Finding(Level.OK, "storage", "all disks can be used, and no file has lacked copies for long")]
