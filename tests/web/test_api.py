"""What the API does, as its user sees it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from peerd import Client, Task
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.lifecycle import Status
from peerd.operate.schedules import ScheduleState
from peerd.store.node_requests import NodeRequest
from peerd.store.nodes import mark_node_silent, register_incarnation
from peerd.store.processes import ProcessRecord
from peerd.store.schedule_runs import ScheduleRun
from peerd.store.schedules import read_stored_schedules
from peerd.web.request_checks import OF_ACTOR
from peerd.web.views import shows_nodes
from tests.web.access_world import problem


def test_pages_of_a_filter_follow_each_other(http: httpx.Client) -> None:
    query: dict[str, Any] = {"queue": "video", "where": ["priority>=1", "name~TRANS"], "limit": 2}
    pages = [http.get("/tasks", params=query).json()]
    while (after := pages[-1]["next"]) is not None:
        pages.append(http.get("/tasks", params=query | {"after": after}).json())
    assert [[task["id"] for task in page["items"]] for page in pages if page["items"]] == [["5", "4"], ["3", "2"]]
    assert "body" not in pages[0]["items"][0]
    assert [task["status"] for task in http.get("/tasks", params={"search": "SCRIPT>"}).json()["items"]] == ["canceled"]


def test_a_database_that_is_away_is_a_503_and_an_unexpected_error_shows_none_of_its_text(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> httpx.Response:
        def read(*_: object) -> None:
            raise error

        monkeypatch.setattr(client.database, "read", read)
        return http.get("/nodes")

    away = fail(DatabaseUnavailable("gone"))
    assert (problem(away), away.headers["retry-after"]) == ((503, "DatabaseUnavailable"), "2")
    defect = fail(ValueError("the password is hunter2"))
    assert (problem(defect), "hunter2" in defect.text) == ((500, "InternalServerError"), False)
    assert (defect.headers["cache-control"], defect.headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_no_answer_is_cached_or_taken_for_a_page_and_the_document_has_every_status(http: httpx.Client) -> None:
    for path in ("/tasks", "/openapi.json", "/nope"):
        headers = http.get(path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff"), path
        assert headers["content-security-policy"].startswith("default-src 'none'"), path
    document = http.get("/openapi.json").json()
    assert document["components"]["schemas"]["Status"]["enum"] == sorted(map(str, Status))
    operations = [(path, one) for path, methods in document["paths"].items() for one in methods.values()]
    assert [path for path, one in operations if not one["summary"] or "503" not in one["responses"]] == []


def test_the_nodes_are_read_for_views_that_name_them() -> None:
    kinds = Task, list[ProcessRecord], ScheduleState, ScheduleRun, NodeRequest
    assert [shows_nodes(kind) for kind in kinds] == [True, True, False, False, False]


def test_a_task_is_enqueued_with_every_option_once_and_shown_in_full(http: httpx.Client) -> None:
    options: dict[str, Any] = {"queue": "video", "name": "transcode", "body": {"source": "Größe.mp4"}}
    options |= {"priority": 2**62, "start_in": "1h", "finish_in": 7200, "max_attempts": 5, "timeout": 1.5}
    options |= {"unique": "a", "unique_for": "forever", "limit_key": "k", "trace_context": "00-abc"}
    created, again = http.post("/tasks", json=options), http.post("/tasks", json=options)
    task_id = created.json()["id"]
    assert (created.status_code, created.json()) == (201, {"id": task_id, "created": True})
    assert (again.status_code, again.json()) == (200, {"id": task_id, "created": False})
    shown = http.get(f"/tasks/{task_id}").json()
    found = [shown[name] for name in ("status", "body", "unique_key", "timeout", "priority")]
    assert found == ["scheduled", options["body"], "a", 1.5, 2**62]
    for given in ({"text": "no {json"}, {"bytes": "/wA="}):
        [(name, value)] = given.items()
        task_id = http.post("/tasks", json={"queue": "q", **given}).json()["id"]
        assert http.get(f"/tasks/{task_id}").json()[name] == value


def test_a_repeated_request_enqueues_nothing_and_a_batch_all_or_nothing(http: httpx.Client, client: Client) -> None:
    before = sum(client.tasks.counts().values())
    batch = {"tasks": [{"queue": "q"}, {"queue": "q", "unique": "a"}]}
    for path, body in (("/tasks", {"queue": "q", "priority": 3}), ("/tasks/batch", batch)):
        headers = {"idempotency-key": path}
        first, again = (http.post(path, json=body, headers=headers) for _ in range(2))
        assert (first.status_code, first.text) == (again.status_code, again.text) == (201, first.text)
        refused = http.post("/tasks", json={"queue": "other"}, headers=headers)
        assert problem(refused) == (422, "IdempotencyKeyReused")
    refused = http.post("/tasks/batch", json={"tasks": [{"queue": "q"}, {"queue": "q", "node": "nowhere"}]})
    assert problem(refused) == (404, "NodeNotFound")
    assert sum(client.tasks.counts().values()) == before + 3
    for key in ("", "a" * 256):
        refused = http.post("/tasks", json={"queue": "q"}, headers={"idempotency-key": key})
        assert (problem(refused), refused.json()["field"]) == ((422, "InvalidFilter"), "idempotency_key")


def test_actions_change_a_task_and_are_refused_when_its_status_does_not_allow_them(http: httpx.Client) -> None:
    for verb, body, changed in (
        ("bury", None, {"status": "buried"}),
        ("kick", None, {"status": "pending"}),
        ("snooze", {"duration": "1h"}, {"status": "scheduled"}),
        ("retry", None, {"status": "pending"}),
        ("move", {"queue": "mail"}, {"queue": "mail"}),
        ("cancel", {"reason": "not wanted"}, {"status": "canceled", "error": "not wanted"}),
    ):
        shown = http.post(f"/tasks/1/{verb}", json=body).json()
        assert shown | changed == shown, verb
    changed = http.patch("/tasks/2", json={"priority": 7, "body": {"source": "b.mp4"}}).json()
    assert (changed["priority"], changed["body"]) == (7, {"source": "b.mp4"})
    assert problem(http.post("/tasks/1/cancel")) == (409, "IllegalTransition")
    assert http.delete("/tasks/1").status_code == 204
    assert problem(http.get("/tasks/1")) == (404, "TaskNotFound")


def test_queues_limits_and_schedules_are_steered(http: httpx.Client, client: Client) -> None:
    paused = []
    for verb, body in (("pause", {"duration": "1h"}), ("resume", None)):
        assert http.post(f"/queues/video/{verb}", json=body).status_code == 204
        paused += [queue["paused"] for queue in http.get("/queues").json() if queue["name"] == "video"]
    assert paused == [True, False]
    assert problem(http.post("/queues/vidoe/pause")) == (404, "QueueNotFound")
    of_key, limit = {"key": "k"}, {"running": 3, "rate": "5/1m"}
    assert http.put("/limits/a/b", params=of_key, json=limit).status_code == 204
    [shown] = http.get("/limits", params={"queue": "a/b"}).json()
    assert [shown[name] for name in ("queue", "key", "running", "starts", "period")] == ["a/b", "k", 3, 5, 60.0]
    assert http.delete("/limits/a/b", params=of_key).status_code == 204
    assert http.get("/limits").json() == []
    tidy: dict[str, Any] = {"name": "tidy", "queue": "jobs", "task": "tidy", "body": {"depth": 3}, "interval": "10m"}
    assert [http.post("/schedules", json=tidy).status_code for _ in range(2)] == [204, 409]
    assert problem(http.post("/schedules", json=tidy | {"name": "other", "run": "os:abort"})) == (422, "InvalidRequest")
    wrong = http.post("/schedules", json={"name": "other", "queue": "jobs", "cron": "61 * * * *"})
    assert (problem(wrong), wrong.json()["field"]) == ((422, "InvalidSchedule"), "cron")
    [stored] = client.database.read(read_stored_schedules).schedules
    assert (stored.name, stored.interval, stored.body) == ("tidy", 600.0, '{"depth":3}')
    assert [http.delete("/schedules/tidy").status_code for _ in range(2)] == [204, 404]


def test_what_is_wrong_or_cannot_be_answered_is_an_error_with_its_cause(http: httpx.Client, client: Client) -> None:
    for response, code, field in (
        (http.get("/tasks", params={"stauts": "dead"}), "InvalidRequest", "stauts"),
        (http.get("/queues", params={"x": 1}), "InvalidRequest", "x"),
        (http.post("/tasks", json={"queue": "q", "prio": 1}), "InvalidRequest", "prio"),
        (http.get("/tasks/seventeen"), "InvalidRequest", "task_id"),
        (http.post("/tasks", json={"queue": "q", "start_in": -1}), "InvalidTask", "start_in"),
        (http.get("/tasks", params={"limit": 10**9}), "InvalidFilter", "limit"),
    ):
        assert (problem(response), response.json()["field"]) == ((422, code), field)
    assert problem(http.get(f"/tasks/{2**63}")) == (404, "TaskNotFound")
    unknown = http.get("/tasks", params={"stauts": "dead"}).json()["detail"]
    assert "there are after, limit, queue, name, status" in unknown
    no_time = http.post("/operations/enqueue", json={"what": "q", "start_at": "2026-02-30T09:30:00Z"})
    assert "is no time of the calendar" in no_time.json()["detail"]
    client.database.run(register_incarnation, "gone", "life", replaces=None)
    client.database.run(mark_node_silent, "gone", "life")
    assert "its heartbeats have ended" in http.get("/nodes/gone").json()["problem"]
    broken = http.post("/tasks", content=b"\xff", headers={"content-type": "application/json"})
    for response, expected in (
        (http.post("/nodes/gone/reload"), (504, "NodeUnreachable")),
        (http.get("/nodes/requests/1"), (404, "NodeRequestNotFound")),
        (http.get("/tasks/1/stack"), (409, "TaskNotRunning")),
        (http.get("/nope"), (404, "NotFound")),
        (http.put("/tasks"), (405, "MethodNotAllowed")),
        (broken, (400, "BadRequest")),
    ):
        assert problem(response) == expected


def test_a_body_beyond_its_bound_is_refused_and_of_many_mistakes_so_many_are_not_told(http: httpx.Client) -> None:
    large = {"queue": "video", "body": "x" * OF_ACTOR}
    for path, body in (("/tasks", large), ("/operations/enqueue", {"what": "video"} | large)):
        refused = http.post(path, json=body)
        assert problem(refused) == (413, "BodyTooLarge")
        assert "keep large data in a file" in refused.json()["detail"]
    allowed = http.post("/tasks", json=large | {"body": "x" * (OF_ACTOR - 100)})
    assert allowed.status_code == 201, allowed.text
    unknown = {f"key {number}": 1 for number in range(100_000)}
    for path, wrong, told in (
        ("/tasks", unknown, "unknown field `key 0`"),
        ("/tasks/batch", {"tasks": [{"queue": 1, "x": 2}] * 1_000}, "Expected `str`, got `int`"),
        ("/bulk", {"action": {"type": "retry"}, "filter": unknown}, "unknown field `key 0`"),
        ("/tasks?" + "&".join(f"x{number}=1" for number in range(100)), None, "unknown field `x0`"),
        ("/session", dict.fromkeys(map(str, range(100)), 1), "more than 20 mistakes"),
    ):
        refused = http.get(path) if wrong is None else http.post(path, json=wrong)
        assert problem(refused) == (422, "InvalidRequest")
        assert told in refused.json()["detail"], path
        assert len(refused.text) < 500, path
