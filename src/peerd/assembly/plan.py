"""The master's plan of a node: which processes it has, and what each is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from peerd.config.settings import Settings
from peerd.store.nodes import new_incarnation

ENTRIES: Final = {
    "agent": "peerd.assembly.agent:agent",
    "manager": "peerd.assembly.manager:manager",
    "worker": "peerd.assembly.worker:worker",
}


def plan(settings: Settings) -> dict[str, Any]:
    """The plan: agent, manager, and the processes of each enabled worker.

    Args:
        settings: from `peerd.config.load`.
    """
    given = settings.model_dump(mode="json", exclude_unset=True)
    given["database"] = settings.database.model_dump(mode="json")
    shared = {"settings": given, "incarnation": new_incarnation()}
    slots = [_slot("agent", "agent", "agent", settings.node.grace, shared)]
    slots.append(_slot("manager", "manager", "manager", settings.node.grace, shared))
    for kind, worker in settings.workers.items():
        grace = settings.node.grace if worker.grace is None else worker.grace
        numbers = range(1, worker.processes + 1) if worker.enabled else ()
        slots += [_slot(f"{kind}-{number}", kind, "worker", grace, shared) for number in numbers]
    return {
        "node": settings.node.name,
        "run_directory": str(settings.node.run_directory),
        "project_directory": str(settings.project_directory),
        "shutdown_interval": settings.node.shutdown_interval,
        "grace": settings.node.grace,
        "slots": slots,
    }


def _slot(name: str, kind: str, role: str, grace: float, shared: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "role": role,
        "grace": grace,
        "entry": ENTRIES[role],
        "payload": {**shared, "kind": kind, "slot": name},
    }
