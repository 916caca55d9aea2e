"""What the API does, as its user sees it."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from peerd import Client
from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.lifecycle import Status
from peerd.store.nodes.nodes import mark_node_silent, register_incarnation
from peerd.store.stored_schedules import read_stored_schedules
from tests.web.access_world import problem


def test_a_task_is_enqueued_with_every_option_and_shown_in_full(http: httpx.Client, client: Client) -> None:
    options: dict[str, Any] = {"queue": "video", "name": "transcode", "body": {"source": "Größe.mp4"}}
    options |= {"priority": 2**62, "start_in": "1h", "finish_in": 7200, "max_attempts": 5, "timeout": 1.5}
    options |= {"unique": "a", "unique_for": "forever", "limit_key": "k", "trace_context": "00-abc"}
    created = http.post("/tasks", json=options)
    assert (created.status_code, created.json()["created"]) == (201, True)
    task_id = created.json()["id"]
    again = http.post("/tasks", json=options)
    assert (again.status_code, again.json()) == (200, {"id": task_id, "created": False})
    shown = http.get(f"/tasks/{task_id}").json()
    assert shown["priority"] == client.tasks.get(int(task_id)).priority == 2**62
    found = [shown[name] for name in ("status", "body", "unique_key", "timeout")]
    assert found == ["scheduled", options["body"], "a", 1.5]


def test_a_body_is_json_text_or_bytes(http: httpx.Client) -> None:
    for given, shown in (
        ({"body": None}, [None, None, None]),
        ({"body": [1, "a"]}, [[1, "a"], None, None]),
        ({"text": "no {json"}, [None, "no {json", None]),
        ({"bytes": base64.b64encode(b"\xff\x00").decode()}, [None, None, "/wA="]),
    ):
        task_id = http.post("/tasks", json={"queue": "q", **given}).json()["id"]
        detail = http.get(f"/tasks/{task_id}").json()
        assert [detail[name] for name in ("body", "text", "bytes")] == shown, given


def test_a_batch_is_written_whole_or_not_at_all(http: httpx.Client, client: Client) -> None:
    before = sum(client.tasks.counts().values())
    refused = http.post("/tasks/batch", json={"tasks": [{"queue": "q"}, {"queue": "q", "node": "nowhere"}]})
    assert problem(refused) == (404, "NodeNotFound")
    assert sum(client.tasks.counts().values()) == before
    written = http.post("/tasks/batch", json={"tasks": [{"queue": "q", "priority": n} for n in range(3)]}).json()
    assert [client.tasks.get(int(one["id"])).priority for one in written] == [0, 1, 2]


def test_a_request_that_is_repeated_with_its_key_enqueues_nothing_again(http: httpx.Client, client: Client) -> None:
    before = sum(client.tasks.counts().values())
    headers = {"idempotency-key": "0b6f7c1e"}
    first, again = (http.post("/tasks", json={"queue": "q", "priority": 3}, headers=headers) for _ in range(2))
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert first.status_code == 201
    assert problem(http.post("/tasks", json={"queue": "q"}, headers=headers)) == (422, "IdempotencyKeyReused")
    batch = {"tasks": [{"queue": "q"}, {"queue": "q", "unique": "a"}]}
    headers = {"idempotency-key": "another"}
    assert len({http.post("/tasks/batch", json=batch, headers=headers).text for _ in range(3)}) == 1
    assert sum(client.tasks.counts().values()) == before + 3
    for key in ("", "a" * 256, "a b"):
        refused = http.post("/tasks", json={"queue": "q"}, headers={"idempotency-key": key})
        assert problem(refused) == (422, "InvalidRequest")


def test_pages_of_a_filter_follow_each_other(http: httpx.Client) -> None:
    query: dict[str, Any] = {"queue": "video", "where": ["priority>=1", "name~TRANS"], "limit": 2}
    pages = [http.get("/tasks", params=query).json()]
    while (after := pages[-1]["next"]) is not None:
        pages.append(http.get("/tasks", params=query | {"after": after}).json())
    assert [[task["id"] for task in page["items"]] for page in pages if page["items"]] == [["5", "4"], ["3", "2"]]
    assert "body" not in pages[0]["items"][0]
    assert [task["status"] for task in http.get("/tasks", params={"search": "SCRIPT>"}).json()["items"]] == ["canceled"]


def test_actions_change_a_task_and_are_refused_when_its_status_does_not_allow_them(http: httpx.Client) -> None:
    assert http.post("/tasks/1/bury").json()["status"] == "buried"
    assert http.post("/tasks/1/kick").json()["status"] == "pending"
    assert http.post("/tasks/1/snooze", json={"duration": "1h"}).json()["status"] == "scheduled"
    assert http.post("/tasks/1/retry").json()["status"] == "pending"
    changed = http.patch("/tasks/1", json={"priority": 7, "body": {"source": "b.mp4"}}).json()
    assert (changed["priority"], changed["body"]) == (7, {"source": "b.mp4"})
    assert http.post("/tasks/1/move", json={"queue": "mail"}).json()["queue"] == "mail"
    canceled = http.post("/tasks/1/cancel", json={"reason": "not wanted"}).json()
    assert (canceled["status"], canceled["error"]) == ("canceled", "not wanted")
    assert problem(http.post("/tasks/1/cancel")) == (409, "IllegalTransition")
    assert http.delete("/tasks/1").status_code == 204
    assert problem(http.get("/tasks/1")) == (404, "TaskNotFound")


def test_queues_and_limits_are_steered(http: httpx.Client, client: Client) -> None:
    assert http.post("/queues/video/pause", json={"duration": "1h"}).status_code == 204
    [video] = [queue for queue in http.get("/queues").json() if queue["name"] == "video"]
    assert (video["paused"], video["counts"]) == (True, {"pending": 5})
    http.post("/queues/video/resume")
    assert not client.queues.list()[-1].paused
    assert http.put("/limits/a/b", params={"key": "k"}, json={"running": 3, "rate": "5/1m"}).status_code == 204
    [limit] = http.get("/limits", params={"queue": "a/b"}).json()
    assert (limit["queue"], limit["key"], limit["running"]) == ("a/b", "k", 3)
    assert (limit["starts"], limit["period"]) == (5, 60.0)
    assert http.delete("/limits/a/b", params={"key": "k"}).status_code == 204
    assert http.get("/limits").json() == []
    assert problem(http.put("/limits/a/b", json={})) == (422, "InvalidLimit")


def test_schedules_are_created_and_deleted_and_functions_are_refused(http: httpx.Client, client: Client) -> None:
    tidy = {"name": "tidy", "queue": "jobs", "task": "tidy", "body": {"depth": 3}, "interval": "10m"}
    assert http.post("/schedules", json=tidy).status_code == 204
    assert problem(http.post("/schedules", json=tidy)) == (409, "ScheduleNameTaken")
    assert problem(http.post("/schedules", json=tidy | {"name": "other", "run": "os:abort"})) == (422, "InvalidRequest")
    wrong = http.post("/schedules", json={"name": "other", "queue": "jobs", "cron": "61 * * * *"})
    assert (problem(wrong), wrong.json()["field"]) == ((422, "InvalidSchedule"), "cron")
    large = http.post("/schedules", json=tidy | {"name": "large", "body": "x" * 200_000})
    assert (problem(large), large.json()["field"]) == ((422, "InvalidSchedule"), "body")
    [stored] = client.database.read(read_stored_schedules).schedules
    assert (stored.name, stored.interval, stored.body) == ("tidy", 600.0, '{"depth":3}')
    assert http.delete("/schedules/tidy").status_code == 204
    assert problem(http.delete("/schedules/tidy")) == (404, "ScheduleNotFound")


def test_what_no_node_can_answer_is_an_error_with_its_cause(http: httpx.Client, client: Client) -> None:
    client.database.run(register_incarnation, "gone", "life", replaces=None)
    client.database.run(mark_node_silent, "gone", "life")
    shown = http.get("/nodes/gone")
    assert (shown.status_code, shown.json()["live"]) == (200, None)
    assert "its heartbeats have ended" in shown.json()["problem"]
    assert problem(http.post("/nodes/gone/reload")) == (504, "NodeUnreachable")
    assert problem(http.post("/nodes/unknown/scale", json={"kind": "video", "count": 1})) == (404, "NodeNotFound")
    assert problem(http.get("/nodes/requests/1")) == (404, "NodeRequestNotFound")
    assert problem(http.get("/tasks/1/stack")) == (409, "TaskNotRunning")


def test_what_a_request_has_too_much_is_refused_by_name(http: httpx.Client) -> None:
    for response, field in (
        (http.get("/tasks", params={"stauts": "dead"}), "stauts"),
        (http.post("/tasks", json={"queue": "q", "prio": 1}), "prio"),
        (http.post("/tasks", json={"queue": "q", "start_in": -1}), "start_in"),
        (http.get("/tasks", params={"limit": 10**9}), "limit"),
        (http.get("/tasks/0"), "task_id"),
        (http.get(f"/tasks/{2**63}"), "task_id"),
    ):
        assert problem(response) == (422, "InvalidRequest")
        assert field in response.json()["field"]


def test_errors_of_unknown_paths_and_methods_are_problems_too(http: httpx.Client) -> None:
    assert problem(http.get("/nope")) == (404, "NotFound")
    assert problem(http.put("/tasks")) == (405, "MethodNotAllowed")
    assert "GET" in http.put("/tasks").headers["allow"]
    assert problem(http.post("/tasks", content=b"\xff", headers={"content-type": "application/json"}))[0] == 400


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


def test_no_answer_is_cached_or_taken_for_a_page(http: httpx.Client) -> None:
    for path in ("/tasks", "/tasks/1", "/openapi.json", "/nope"):
        headers = http.get(path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff"), path
        assert headers["content-security-policy"].startswith("default-src 'none'"), path
        assert "json" in headers["content-type"], path


def test_every_status_has_a_name_in_the_document(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["components"]["schemas"]["Status"]["enum"] == [str(status) for status in Status]
    operations = [(path, one) for path, methods in document["paths"].items() for one in methods.values()]
    assert [path for path, one in operations if not one["summary"] or "503" not in one["responses"]] == []
