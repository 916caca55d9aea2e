from __future__ import annotations

from typing import Any

from peerd.cli.node.health import find_failures
from tests.support.rows import rows

WELL = {"now": None}


def node(*slots: dict[str, Any], state: str = "running", components: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"state": state, "slots": list(slots), "components": list(components)}


def slot(state: str, silent_for: float | None = 0.5) -> dict[str, Any]:
    return {"name": "video-1", "state": state, "silent_for": silent_for}


def test_a_node_whose_processes_work_start_or_have_ended_by_themselves_is_healthy() -> None:
    for state in ("STARTING", "RUNNING", "DRAINING", "EXITED", "STOPPED"):
        for master in ("running", "starting"):
            assert list(find_failures(node(slot(state), slot(state, None), state=master), WELL)) == []
    once = node(components=({"name": "doorbell", "failures": 1},))
    assert list(find_failures(once, WELL)) == [], "one failure of a component is none of the node"


@rows(
    "status, failure",
    [
        (None, "no node is running here"),
        (node(state="stopping"), "the node is stopping"),
        (node(slot("BACKOFF")), "video-1 keeps failing, and is started again after a pause"),
        (node(slot("RUNNING", 12.0)), "video-1 has been silent for 12 s"),
        (
            node(components=({"name": "doorbell", "failures": 3},)),
            "component doorbell of the agent has failed 3 times in a row",
        ),
    ],
)
def test_what_keeps_a_node_from_its_work_is_named(status: dict[str, Any] | None, failure: str) -> None:
    assert list(find_failures(status, WELL)) == [failure]
    away = {"error": {"message": "the database does not answer"}}
    assert list(find_failures(status, away)) == [failure, "the database does not answer"]
