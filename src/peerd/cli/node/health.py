"""What is wrong with a node, for health checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peerd.cli.output.formatting import format_elapsed_short, pluralize

SILENT_AFTER = 10.0
"""Seconds without a heartbeat of a process to its master, which are due every two seconds."""


def find_failures(node_status: Mapping[str, Any] | None, cluster: Mapping[str, Any]) -> Iterator[str]:
    """What keeps a node from its work; nothing while it starts, reloads, or replaces a process that has ended.

    Args:
        node_status: what its master reports; None: it does not answer.
        cluster: what the database shows, or its error.

    >>> list(find_failures(None, {"error": {"message": "the database does not answer"}}))
    ['no node is running here', 'the database does not answer']
    """
    if node_status is None:
        yield "no node is running here"
    else:
        if node_status["state"] == "stopping":
            yield "the node is stopping"
        for slot in node_status["slots"]:
            yield from _slot_failures(slot)
        for component in node_status.get("components") or ():
            if component["failures"] > 1:
                failed = pluralize(component["failures"], "time")
                yield f"component {component['name']} of the agent has failed {failed} in a row"
    if "error" in cluster:
        yield cluster["error"]["message"]


def _slot_failures(slot: Mapping[str, Any]) -> Iterator[str]:
    if slot["state"] == "BACKOFF":
        yield f"{slot['name']} keeps failing, and is started again after a pause"
    elif slot["state"] == "RUNNING" and (slot.get("silent_for") or 0.0) >= SILENT_AFTER:
        yield f"{slot['name']} has been silent for {format_elapsed_short(slot['silent_for'])}"
