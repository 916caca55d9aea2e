from __future__ import annotations

from typing import Any

import pytest

from peerd.supervision.plan import Plan, PlanError

SLOT = {"name": "video-1", "kind": "video", "role": "worker", "entry": "studio:video"}


def plan(*slots: dict[str, Any], **more: Any) -> Plan:
    return Plan.parse({"node": "n", "run_directory": "/r", "project_directory": "/p", "slots": list(slots), **more})


def test_the_nodes_grace_is_that_of_slots_without_one() -> None:
    parsed = plan(SLOT, SLOT | {"name": "video-2", "grace": 5.0}, grace=90.0)
    assert [slot.grace for slot in parsed.slots] == [90.0, 5.0]


@pytest.mark.parametrize(
    ("slots", "error"),
    [
        ([SLOT | {"colour": "red"}], "slot 'video-1': unknown colour"),
        ([{"name": "video-1", "entry": "studio:video"}], "slot 'video-1': .*'kind'"),
        ([SLOT | {"role": "king"}], "role 'king' is none of agent, manager, worker, command"),
        ([SLOT | {"payload": "x" * 600_000}], "its payload has 600018 bytes"),
        ([SLOT, SLOT], "two slots have the same name"),
        ([SLOT | {"role": "agent"}, SLOT | {"role": "agent", "name": "b"}], "a node has one agent"),
        ([SLOT | {"command": ["ls"]}], "a command slot has a command, and every other one an entry"),
        ([{"name": "t", "kind": "t", "role": "command"}], "a command slot has a command"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(slots: list[dict[str, Any]], error: str) -> None:
    with pytest.raises(PlanError, match=error):
        plan(*slots)
