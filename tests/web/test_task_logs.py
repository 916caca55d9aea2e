"""Log lines over HTTP: pages, and streams that end with their task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.operate.tasks import TaskOperations
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.tasks.log_lines import LoggedLine, write_lines
from peerd.testing import eventually
from peerd.web import log_streams

HOSTILE = '</script><script>alert(1)</script>\x1b[2J\u202e\r\n\ndata: {"forged": 1}\n\nevent: end'


def write(client: Client, task_id: int, *messages: str, first: int = 0, level: str = "info") -> None:
    rows = [
        LoggedLine(task_id, 1, number, 1, datetime.now(UTC), level, "app", message, '{"size": 3}')
        for number, message in enumerate(messages, start=first)
    ]
    client.database.run(write_lines, rows)


def end_long_ago(client: Client, task_id: int) -> None:
    values = {"status": "done", "finished_at": seconds_from_now(-60)}
    client.database.run(
        lambda connection: connection.execute(sa.update(tasks).where(tasks.c.id == task_id).values(values)).rowcount
    )


Event = tuple[str, Any]


def events_of(response: httpx.Response) -> Iterator[Event]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def read_stream(http: httpx.Client, task_id: int, **more: Any) -> list[Event]:
    with http.stream("GET", f"/tasks/{task_id}/logs/stream", timeout=30, **more) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        return list(events_of(response))


def test_pages_of_lines(http: httpx.Client, client: Client) -> None:
    write(client, 1, "one", "two", HOSTILE)
    write(client, 1, "bad", first=3, level="error")
    first = http.get("/tasks/1/logs", params={"limit": 2}).json()
    assert [line["message"] for line in first["items"]] == ["one", "two"]
    assert (first["next"], first["has_more"], first["ended"]) == ("1-1", True, False)
    assert {"lease": "1", "attempt": 1, "level": "info", "logger": "app", "fields": {"size": 3}}.items() <= first[
        "items"
    ][0].items()
    rest = http.get("/tasks/1/logs", params={"after": first["next"]}).json()
    assert [line["message"] for line in rest["items"]] == [HOSTILE, "bad"]
    assert [line["message"] for line in http.get("/tasks/1/logs", params={"level": "warning"}).json()["items"]] == [
        "bad"
    ]
    assert http.get("/tasks/1/logs", params={"attempt": 2}).json()["items"] == []


@pytest.mark.parametrize(
    "path, status",
    [
        ("/tasks/999/logs", 404),
        ("/tasks/999/logs/stream", 404),
        ("/tasks/1/logs?after=x", 422),
        ("/tasks/1/logs?level=loud", 422),
        ("/tasks/1/logs?limit=1001", 422),
        ("/tasks/1/logs?other=1", 422),
        ("/tasks/1/logs/stream?after=1", 422),
        ("/tasks/1/logs/stream?level=x", 422),
        ("/tasks/x/logs/stream", 422),
    ],
)
def test_wrong_requests_are_refused(http: httpx.Client, path: str, status: int) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_stream_follows_a_task_to_its_end(http: httpx.Client, client: Client) -> None:
    write(client, 1, "before", HOSTILE)
    with ThreadPoolExecutor() as threads, http.stream("GET", "/tasks/1/logs/stream", timeout=30) as response:
        events = events_of(response)
        assert [next(events)[1]["message"] for _ in range(2)] == ["before", HOSTILE]
        second = threads.submit(read_stream, http, 1, params={"level": "error"})
        write(client, 1, "while it runs", first=2)
        assert next(events)[1]["message"] == "while it runs"
        write(client, 1, "the last", first=3, level="error")
        end_long_ago(client, 1)
        assert next(events)[1]["cursor"] == "1-3"
        assert list(events) == [("end", {"task_id": "1"})]
        assert [(name, data.get("message")) for name, data in second.result(30)] == [
            ("line", "the last"),
            ("end", None),
        ]


def test_a_stream_continues_after_the_last_event_of_the_browser(http: httpx.Client, client: Client) -> None:
    write(client, 1, "one", "two", "three")
    end_long_ago(client, 1)
    events = read_stream(http, 1, headers={"last-event-id": "1-0"}, params={"after": "0-0"})
    assert [data.get("message") for _, data in events] == ["two", "three", None]
    assert read_stream(http, 1, params={"after": "1-2"}) == [("end", {"task_id": "1"})]


def test_a_deleted_task_ends_its_stream(http: httpx.Client, client: Client) -> None:
    write(client, 1, "one")
    with http.stream("GET", "/tasks/1/logs/stream", timeout=30) as response:
        events = events_of(response)
        next(events)
        client.tasks.delete(1)
        assert list(events) == [("end", {"task_id": "1"})]


def test_many_watchers_cost_one_reading_and_a_slow_one_misses_nothing(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_streams, "MAX_BEHIND", 3)
    readings: list[str] = []
    logs = TaskOperations.logs.__wrapped__  # type: ignore[attr-defined]

    def counted(group: Any, task_id: int, **wanted: Any) -> Any:
        if wanted["limit"] == 2 * log_streams.PAGE:
            readings.append(str(wanted))
        return logs(group, task_id, **wanted)

    monkeypatch.setattr(TaskOperations, "logs", type(TaskOperations.logs)(counted))
    with ThreadPoolExecutor(20) as threads:
        watching = [threads.submit(read_stream, http, 1) for _ in range(20)]
        eventually(lambda: readings)
        for number in range(40):
            write(client, 1, f"line {number}", first=number)
        end_long_ago(client, 1)
        for one in watching:
            messages = [data.get("message") for _, data in one.result(30)]
            assert messages == [*(f"line {number}" for number in range(40)), None]
    assert len(readings) < 10


def test_there_are_only_so_many_streams(http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "MAX_STREAMS", 1)
    write(client, 1, "one")
    with http.stream("GET", "/tasks/1/logs/stream", timeout=30) as response:
        events = events_of(response)
        next(events)
        refused = http.get("/tasks/2/logs/stream")
        assert (refused.status_code, refused.json()["code"]) == (503, "TooManyLogStreams")
        assert refused.headers["retry-after"]
    write(client, 2, "two")
    end_long_ago(client, 2)
    eventually(lambda: http.get("/tasks/2/logs/stream").status_code == 200, message="the first one is over", timeout=20)


def test_a_stream_without_news_gets_comments(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_streams, "COMMENT_EVERY", 1.0)
    with http.stream("GET", "/tasks/1/logs/stream", timeout=30) as response:
        assert next(line for line in response.iter_lines() if line.startswith(":")) == ": nothing new"
