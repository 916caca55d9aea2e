"""Log lines over HTTP: pages, and streams that end with their task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.domain.log_line import LogCursor
from peerd.operate.tasks import TaskOperations
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.log_lines import LoggedLine, write_lines
from peerd.testing import eventually
from peerd.web import create_app
from peerd.web.streams import hub as stream_hub
from peerd.web.streams import log_lines
from tests.support.served_api import ShownApp, served
from tests.web.access_world import API, bearer, problem

HOSTILE = '</script><script>alert(1)</script>\x1b[2J\u202e\r\n\ndata: {"forged": 1}\n\nevent: end'


def write(client: Client, task_id: int, *messages: str, first: int = 0, level: str = "info") -> None:
    rows = [
        LoggedLine(task_id, 1, number, 1, datetime.now(UTC), level, "app", message, '{"size": 3}')
        for number, message in enumerate(messages, start=first)
    ]
    client.database.run(write_lines, rows)


def end_long_ago(client: Client, task_id: int) -> None:
    values = {"status": "done", "finished_at": seconds_from_now(-60)}
    client.database.run(sa.Connection.execute, sa.update(tasks).where(tasks.c.id == task_id).values(values))


Event = tuple[str, Any]


def events_of(response: httpx.Response) -> Iterator[Event]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def read_stream(http: httpx.Client, task_id: int, **more: Any) -> list[Event]:
    with http.stream("GET", f"/tasks/{task_id}/logs/stream", timeout=60, **more) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["x-accel-buffering"] == "no"
        return list(events_of(response))


def test_lines_are_shown_page_by_page_and_wrong_requests_refused(http: httpx.Client, client: Client) -> None:
    write(client, 1, "one", "two", HOSTILE)
    write(client, 1, "bad", first=3, level="error")
    first = http.get("/tasks/1/logs?limit=2").json()
    assert (first["next"], first["has_more"], first["ended"]) == ("1-1", True, False)
    of_line = {"lease": "1", "attempt": 1, "level": "info", "logger": "app", "fields": {"size": 3}, "message": "one"}
    assert first["items"][0] | of_line == first["items"][0]
    for query, messages in (("after=1-1", [HOSTILE, "bad"]), ("level=warning", ["bad"]), ("attempt=2", [])):
        assert [line["message"] for line in http.get(f"/tasks/1/logs?{query}").json()["items"]] == messages
    refused = "1/logs?after=x", "1/logs?level=loud", "1/logs?limit=1001", "1/logs/stream?after=1"
    wrong = dict.fromkeys(refused, 422) | {"999/logs": 404, "999/logs/stream": 404}
    assert {path: problem(http.get(f"/tasks/{path}"))[0] for path in wrong} == wrong


def test_a_stream_follows_a_task_to_its_end(http: httpx.Client, client: Client) -> None:
    write(client, 1, "before", HOSTILE)
    with ThreadPoolExecutor() as threads, http.stream("GET", "/tasks/1/logs/stream", timeout=60) as response:
        events = events_of(response)
        assert [next(events)[1]["message"] for _ in range(2)] == ["before", HOSTILE]
        second = threads.submit(read_stream, http, 1, params={"level": "error"})
        write(client, 1, "while it runs", first=2)
        assert next(events)[1]["message"] == "while it runs"
        write(client, 1, "the last", first=3, level="error")
        end_long_ago(client, 1)
        assert next(events)[1]["cursor"] == "1-3"
        assert list(events) == [("end", {"task_id": "1"})]
        assert [data.get("message") for _, data in second.result(30)] == ["the last", None]
    continued = read_stream(http, 1, headers={"last-event-id": "1-1"}, params={"after": "0-0"})
    assert [data.get("message") for _, data in continued] == ["while it runs", "the last", None]
    assert read_stream(http, 1, params={"after": "1-3"}) == [("end", {"task_id": "1"})]


def test_many_watchers_cost_one_reading_and_a_slow_one_misses_nothing(
    http: httpx.Client, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "MAX_BEHIND", 3)
    readings: list[int] = []
    logs = TaskOperations.logs.__wrapped__

    def counted(group: Any, task_id: int, **wanted: Any) -> Any:
        readings.extend([task_id] * (wanted["limit"] == 2 * log_lines.PAGE))
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


def test_who_watches_from_a_place_beyond_all_lines_keeps_none_from_others(
    http: httpx.Client, shown_app: ShownApp, client: Client
) -> None:
    write(client, 1, "one")
    topics = shown_app.app.state.peerd_log_streams.topics
    with ExitStack() as opened:
        opened.enter_context(http.stream("GET", "/tasks/1/logs/stream?after=999-0", timeout=60))
        eventually(lambda: [topic.begin for topic in topics.values()] == [LogCursor(999, 0)])
        events = events_of(opened.enter_context(http.stream("GET", "/tasks/1/logs/stream", timeout=20)))
        assert next(events)[1]["message"] == "one"
        write(client, 1, "two", first=1)
        assert next(events)[1]["message"] == "two"


def test_there_are_only_so_many_streams_which_get_comments_and_end_with_a_deleted_task(
    http: httpx.Client, shown_app: ShownApp, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_app.app.state.peerd_log_streams.max_viewers = 2
    monkeypatch.setattr(stream_hub, "KEEP_ALIVE", 0.2)
    with http.stream("GET", "/tasks/1/logs/stream", timeout=60) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith(":")) == ": nothing new"
        refused = http.get("/tasks/2/logs/stream")
        assert (refused.status_code, refused.json()["code"]) == (503, "TooManyLogStreams")
        assert refused.headers["retry-after"]
        client.tasks.delete(1)
        assert [line for line in lines if line and not line.startswith(":")] == ["event: end", 'data: {"task_id":"1"}']
    write(client, 2, "two")
    end_long_ago(client, 2)
    eventually(lambda: http.get("/tasks/2/logs/stream").status_code == 200, message="the first one is over")


def test_a_stream_ends_with_the_rights_of_its_watcher(
    address: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = client.tokens.create("t", ["view"])
    monkeypatch.setattr(stream_hub, "RECHECK_EVERY", 0.1)
    monkeypatch.setattr(stream_hub, "KEEP_ALIVE", 0.05)
    write(client, 1, "one")
    with (
        httpx.Client(base_url=address + API, headers=bearer(token.secret)) as http,
        http.stream("GET", "/tasks/1/logs/stream", timeout=60) as response,
    ):
        events = events_of(response)
        assert next(events)[1]["message"] == "one"
        client.tokens.revoke(token.id)
        assert list(events) == [("bye", {"task_id": "1"})], "the client asks again, and is refused"
        assert problem(http.get("/tasks/1/logs/stream")) == (401, "Unauthorized")


@pytest.mark.parametrize("is_first", [False, True])
def test_a_stream_ends_when_its_task_leaves_the_queues_of_its_watcher(
    address: str, client: Client, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    monkeypatch.setattr(log_lines, "READ_EVERY", 0.05)
    write(client, 1, "one")
    scopes = sorted([["video"], None], key=lambda scope: (scope is None) is is_first)
    tokens = [client.tokens.create("t", ["view"], queues=scope) for scope in scopes]
    with httpx.Client(base_url=address + API, timeout=60) as http, ExitStack() as opened:
        streams = [
            events_of(opened.enter_context(http.stream("GET", "/tasks/1/logs/stream", headers=bearer(token.secret))))
            for token in tokens
        ]
        for one in streams:
            next(one)
        client.tasks.move_to_queue(1, "mail")
        assert list(streams[scopes.index(["video"])]) == [("end", {"task_id": "1"})]
        write(client, 1, "of another queue", first=1)
        assert next(streams[scopes.index(None)])[1]["message"] == "of another queue"


def test_lines_are_those_of_the_queues_of_the_actor_and_are_masked(client: Client) -> None:
    with Client(client.database, mask=["password"]) as program, served(create_app(program)) as address:
        write(program, 1, "login with password=hunter2 please")
        deep = f'{{"deep": {"[" * 900}{{"Password": "hunter2"}}{"]" * 900}}}'
        rows = [
            LoggedLine(1, 1, number, 1, datetime.now(UTC), "info", "app", "x", fields)
            for number, fields in enumerate(('{"Password": "hunter2", "size": 3}', deep), start=1)
        ]
        program.database.run(write_lines, rows)
        end_long_ago(program, 1)
        video, mail = (bearer(program.tokens.create(one, ["view"], queues=[one]).secret) for one in ("video", "mail"))
        with httpx.Client(base_url=address + API) as http:

            def ask(name: str, headers: dict[str, str]) -> httpx.Response:
                return http.post(f"/operations/{name}", json={"task_id": 1}, headers=headers)

            page = http.get("/tasks/1/logs", headers=video).json()["items"]
            assert [line["message"] for line in page] == ["login with password=*** please", "x", "x"]
            assert [line["fields"] for line in page[1:]] == [{"Password": "***", "size": 3}, {"deep": "***"}]
            stream = http.get("/tasks/1/logs/stream", headers=video)
            for answer in (stream, ask("tasks.logs", video), ask("tasks.last_logs", video)):
                found = answer.status_code, "***" in answer.text, "hunter2" in answer.text
                assert found == (200, True, False), answer.url
            refused = [http.get(f"/tasks/1/logs{path}", headers=mail) for path in ("", "/stream")]
            assert {problem(one) for one in (*refused, ask("tasks.logs", mail))} == {(404, "TaskNotFound")}
            assert ask("tasks.last_logs", mail).json()["items"] == []
        assert "hunter2" in program.tasks.logs(1).items[0].message, "a program works with the values"
