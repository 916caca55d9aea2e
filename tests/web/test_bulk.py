"""Bulk actions over HTTP."""

from __future__ import annotations

from typing import Any

import httpx

from peerd import Client
from tests.web.access_world import problem


def test_a_dry_run_says_what_is_then_done(http: httpx.Client, client: Client) -> None:
    cancel = {"type": "cancel", "reason": "not today"}
    request: dict[str, Any] = {"action": cancel, "filter": {"queue": "video", "where": ["priority>=2"]}}
    found = http.post("/bulk", json=request | {"dry_run": True}).json()
    assert (found["matched"], found["at_least"]) == (3, False)
    assert [task["priority"] for task in found["examples"]] == [4, 3, 2]
    assert http.get("/bulk").json() == [], "it was a dry run"
    client.enqueue("video", priority=9)
    begun = http.post("/bulk", json=request | {"digest": found["digest"]})
    bulk = begun.json()
    assert (begun.status_code, bulk["state"], bulk["matched"], bulk["action"]) == (202, "running", 3, cancel)
    for verb, state in (("pause", "paused"), ("resume", "running")):
        assert http.post(f"/bulk/{bulk['id']}/{verb}").json()["state"] == state
    client.bulk.carry_out(int(bulk["id"]))
    ended = http.get(f"/bulk/{bulk['id']}").json()
    assert (ended["state"], ended["done"], ended["progress"]) == ("done", 3, 1.0)
    assert problem(http.post(f"/bulk/{bulk['id']}/cancel")) == (409, "BulkActionHasEnded")
    canceled = client.tasks.list(status="canceled", queue="video")
    assert [(task.priority, task.error) for task in canceled] == [(4, "not today"), (3, "not today"), (2, "not today")]
    assert [len(http.get("/bulk", params={"state": state}).json()) for state in ("done", "paused")] == [1, 0]


def test_every_action_is_taken_and_a_wrong_request_refused(http: httpx.Client, client: Client) -> None:
    requests: tuple[tuple[dict[str, Any], tuple[int, str]], ...] = (
        ({"action": {"type": "delete"}}, (422, "InvalidFilter")),
        ({"action": {"type": "explode"}, "all": True}, (422, "InvalidRequest")),
        ({"action": {"type": "retry", "reason": "x"}, "all": True}, (422, "InvalidRequest")),
        ({"action": {"type": "change"}, "all": True}, (422, "InvalidTask")),
        ({"action": {"type": "move", "node": "nowhere"}, "all": True}, (404, "NodeNotFound")),
        ({"action": {"type": "retry"}, "filter": {"status": "pending"}}, (409, "IllegalTransition")),
        ({"action": {"type": "retry"}, "all": True, "digest": "e30"}, (422, "InvalidFilter")),
    )
    assert [(body, problem(http.post("/bulk", json=body))) for body, _ in requests] == [*requests]
    assert http.get("/bulk").json() == []
    for action in (
        {"type": "bury"},
        {"type": "kick"},
        {"type": "snooze", "duration": "1h"},
        {"type": "move", "node": None},
        {"type": "change", "priority": 77, "body": None},
        {"type": "move_to_queue", "queue": "other"},
    ):
        bulk = http.post("/bulk", json={"action": action, "filter": {"queue": "video"}}).json()
        assert client.bulk.carry_out(int(bulk["id"])).done == 5, action
