from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peerd.supervision.plan import Kind, Plan, PlanError
from tests.support.rows import rows

VIDEO = {"name": "video", "role": "worker", "entry": "studio:video"}


def plan(*kinds: dict[str, Any], **more: Any) -> Plan:
    return Plan.parse({"node": "n", "run_directory": "/r", "project_directory": "/p", "kinds": list(kinds), **more})


def test_processes_are_replaced_when_their_plan_has_changed_and_not_for_their_number() -> None:
    video = Kind("video", entry="studio:video", payload={"count": 4})
    assert video.is_like(replace(video, processes=7))
    assert not video.is_like(replace(video, payload={"count": 5}))
    graces = [kind.grace for kind in plan(VIDEO, VIDEO | {"name": "audio", "grace": 5.0}, grace=90.0).kinds]
    assert graces == [90.0, 5.0], "the node's where a kind has none"


@rows("kinds, error", [
    ([VIDEO | {"shade": "red"}], "kind 'video': unknown shade"),
    ([{"entry": "studio:video"}], "kind '\\?': .*'name'"),
    ([VIDEO | {"role": "king"}], "role 'king' is not one of agent, manager, watcher, worker, web"),
    ([VIDEO | {"payload": "x" * 600_000}], "its payload has 600018 bytes"),
    ([VIDEO | {"processes": -1}], "-1 processes of role worker are not possible"),
    ([VIDEO | {"role": "manager", "processes": 2}], "2 processes of role manager are not possible"),
    ([VIDEO, VIDEO], "two kinds have the same name"),
    ([VIDEO | {"role": "agent"}, VIDEO | {"role": "agent", "name": "b"}], "a node has one agent"),
    ([VIDEO | {"command": ["ls"]}], "a command has a command line, and every other kind an entry"),
    ([VIDEO | {"sockets": ["web"]}], "there is no socket web"),
    ([{"name": "t", "role": "command", "command": ["ls"], "sockets": ["web"]}], "a command is given no sockets"),
])  # fmt: skip
def test_a_plan_that_cannot_be_carried_out_is_refused(kinds: list[dict[str, Any]], error: str) -> None:
    with pytest.raises(PlanError, match=error):
        plan(*kinds)
