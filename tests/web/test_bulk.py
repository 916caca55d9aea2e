"""Bulk actions over HTTP."""

from __future__ import annotations

from typing import Any

import httpx

from peerd import Client
from peerd.domain.lifecycle import Status
from tests.web.access_world import problem


def test_a_dry_run_says_what_is_then_done(http: httpx.Client, client: Client) -> None:
    request: dict[str, Any] = {
        "action": {"type": "cancel", "reason": "not today"},
        "filter": {"queue": "video", "where": ["priority>=2"]},
    }
    dry = http.post("/bulk", json=request | {"dry_run": True})
    found = dry.json()
    assert (dry.status_code, found["matched"], found["at_least"]) == (200, 3, False)
    assert [task["priority"] for task in found["examples"]] == [4, 3, 2]
    assert http.get("/bulk").json() == [], "it was a dry run"
    client.enqueue("video", priority=9)
    begun = http.post("/bulk", json=request | {"digest": found["digest"]})
    bulk = begun.json()
    assert (begun.status_code, bulk["state"], bulk["matched"], bulk["progress"]) == (202, "running", 3, 0.0)
    assert bulk["action"] == {"type": "cancel", "reason": "not today"}
    client.bulk.carry_out(int(bulk["id"]))
    ended = http.get(f"/bulk/{bulk['id']}").json()
    assert (ended["state"], ended["done"], ended["progress"]) == ("done", 3, 1.0)
    canceled = client.tasks.list(status=Status.CANCELED, queue="video")
    assert [(task.priority, task.error) for task in canceled] == [(4, "not today"), (3, "not today"), (2, "not today")]
    assert [one["id"] for one in http.get("/bulk", params={"state": "done"}).json()] == [bulk["id"]]
    assert http.get("/bulk", params={"state": "paused"}).json() == []


def test_it_is_paused_resumed_and_canceled(http: httpx.Client) -> None:
    bulk_id = http.post("/bulk", json={"action": {"type": "delete"}, "filter": {"queue": "video"}}).json()["id"]
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "canceled")):
        answer = http.post(f"/bulk/{bulk_id}/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state)
    assert problem(http.post(f"/bulk/{bulk_id}/resume")) == (409, "BulkActionHasEnded")
    assert problem(http.get("/bulk/999")) == (404, "BulkActionNotFound")


def test_a_wrong_request_is_refused(http: httpx.Client) -> None:
    requests: tuple[tuple[dict[str, Any], tuple[int, str]], ...] = (
        ({"action": {"type": "delete"}}, (422, "InvalidFilter")),
        ({"action": {"type": "delete"}, "filter": {}, "dry_run": True}, (422, "InvalidFilter")),
        ({"action": {"type": "explode"}, "all": True}, (422, "InvalidRequest")),
        ({"action": {"type": "retry", "reason": "x"}, "all": True}, (422, "InvalidRequest")),
        ({"action": {"type": "change"}, "all": True}, (422, "InvalidTask")),
        ({"action": {"type": "move", "node": "nowhere"}, "all": True}, (404, "NodeNotFound")),
        ({"action": {"type": "retry"}, "filter": {"status": "pending"}}, (409, "IllegalTransition")),
        ({"action": {"type": "retry"}, "filter": {"where": ["1=1; DROP TABLE tasks"]}}, (422, "InvalidFilter")),
        ({"action": {"type": "retry"}, "all": True, "digest": "e30"}, (422, "InvalidFilter")),
        ({"action": {"type": "snooze", "duration": -1}, "all": True}, (422, "InvalidRequest")),
        ({"action": {"type": "retry"}, "all": True, "limit": 0}, (422, "InvalidRequest")),
    )
    answers = [(body, problem(http.post("/bulk", json=body))) for body, _ in requests]
    assert answers == [*requests]
    assert http.get("/bulk").json() == []


def test_every_action_is_taken(http: httpx.Client, client: Client) -> None:
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
