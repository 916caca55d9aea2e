"""Forms change something only for the page that has shown them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx
import sqlalchemy as sa

from peerd import Client
from peerd.store.known_handlers import encode_handlers
from peerd.store.schema.tables import processes
from peerd.store.schema.types import seconds_from_now
from tests.pages.addresses import routes_of
from tests.pages.conftest import Visit
from tests.support.served_api import everyone
from tests.web.access_world import serving


def token_of(http: httpx.Client, address: str) -> str:
    found = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', http.get(address).text)
    assert found is not None
    return found[1]


def test_an_action_is_confirmed_done_and_told_once(visitor: httpx.Client, client: Client) -> None:
    assert "Task 1 ends." in visitor.get("/tasks/1/cancel").text
    form = visitor.get("/queues/pause?name=video").text
    assert ('<h1 id="confirm-title">Pause: video</h1>' in form, '<option value="1h">' in form) == (True, True)
    answer = visitor.post("/tasks/1/cancel", data={"reason": "no longer wanted", "back": "/tasks/1"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/tasks/1")
    shown = [visitor.get("/tasks/1").text for _ in range(2)]
    assert "no longer wanted" in shown[0]
    assert ["Task 1 was canceled." in text for text in shown] == [True, False]
    assert client.tasks.get(1).status == "canceled"
    assert re.search(r"<summary>[^<]*status: pending → canceled", visitor.get("/audit?target=task&key=1").text)


def test_what_is_refused_is_shown_with_what_was_typed(visitor: httpx.Client, client: Client) -> None:
    answer = visitor.post("/tasks/1/snooze", data={"duration": "soon", "back": "/tasks/1"})
    assert (answer.status_code, 'value="soon"' in answer.text) == (422, True)
    known = encode_handlers({"video": {"cut": {"film": ("str", True)}}})
    values = {"handlers": known, "checked_at": seconds_from_now(0.0), "ended_at": None}
    client.database.run(sa.Connection.execute, sa.update(processes).values(values))
    client.enqueue("none")
    misspelt = visitor.post("/tasks/enqueue", data={"queue": "viedo", "name": "cut"})
    assert (misspelt.status_code, "the nearest first: video" in misspelt.text) == (422, True)
    for path, queue, status in (
        ("/tasks/enqueue", "video", 422), ("/tasks/1/again", "video", 422), ("/tasks/1/again", "none", 303)
    ):  # fmt: skip
        form = {"queue": queue, "name": "cut", "priority": "10", "body": '{"flim": 1}'}
        answer = visitor.post(path, data=form)
        assert answer.status_code == status, path
        assert (status == 422) == ("cut takes film; given are: &#39;flim&#39;" in answer.text), path
    assert visitor.post("/tasks/1/cancel", json={"reason": "x"}).status_code == 415
    assert visitor.post("/tasks/1/cancel", data={"reason": "x" * 3_000_000}).status_code == 413


def test_no_task_gets_what_stands_for_a_masked_value(client: Client) -> None:
    with (
        Client(client.database, mask=["password"]) as masking,
        serving(masking, authenticate=everyone) as address,
        httpx.Client(base_url=address) as http,
    ):
        first = client.enqueue("none", body={"password": "hunter2"}).id
        masked = {"queue": "none", "body": '{"password": "***", "a": 1}'}
        answers = [http.post(f"/tasks/{first}/{verb}", data=masked) for verb in ("change", "again")]
        bodies: tuple[dict[str, Any], ...] = {"text": "password=hunter2"}, {"bytes": b"password=hunter2"}
        others = [client.enqueue("none", **body).id for body in bodies]
        masked["body"] = "password=***"
        answers += [http.post(f"/tasks/{task}/again", data=masked) for task in others]
        assert [(one.status_code, "stands for a value" in one.text) for one in answers] == [(422, True)] * 4
        typed = http.post(f"/tasks/{first}/again", data={"queue": "none", "body": '{"password": "other"}'})
        assert (typed.status_code, client.tasks.list(limit=1)[0].json) == (303, {"password": "other"})
        assert client.tasks.get(first).json == {"password": "hunter2"}


def test_a_form_without_its_token_or_of_another_site_changes_nothing(visit_as: Visit, client: Client) -> None:
    http = visit_as("admin")
    token = {"csrf_token": token_of(http, "/tasks/1/cancel")}
    wrong: tuple[dict[str, str], ...] = ({"reason": "x"}, {"csrf_token": "0" * 64}, {"csrf_token": ""})
    refused = [http.post("/tasks/1/cancel", data=data) for data in wrong]
    origins = ("https://evil.example", "null")
    refused += [http.post("/tasks/1/cancel", data=token, headers={"origin": origin}) for origin in origins]
    assert [answer.status_code for answer in refused] == [403] * 5
    assert client.tasks.get(1).status == "pending"
    assert http.post("/tasks/1/cancel", data=token).status_code == 303
    forms = routes_of("form") - {"/login"}
    assert len(forms) > 40
    for path in forms:
        assert http.post(re.sub(r"{key:id}", "1", path), data={"name": "x"}).status_code == 403, path


def test_no_form_and_no_forged_notice_leads_to_another_site(visitor: httpx.Client) -> None:
    assert visitor.post("/tasks/1/cancel", headers={"origin": "null"}).status_code == 403, "without users too"
    for evil in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        for path in ("/theme", "/tasks/1/retry"):
            answer = visitor.post(path, data={"theme": "dark", "back": evil})
            assert "evil" not in answer.headers.get("location", ""), (path, evil)
        assert visitor.post("/theme", data={"theme": "dark", "back": evil}).headers["location"] == "/"
        visitor.cookies.set("peerd_notice", f"done/{quote(evil, safe='')}")
        shown = visitor.get("/limits").text
        assert '<div class="notice" role="status">done</div>' in shown
        assert "evil" not in shown


def test_a_page_without_a_session_leads_to_the_login_and_back(visit_as: Visit) -> None:
    http = visit_as("viewer")
    http.cookies.clear()
    answer = http.get("/tasks?status=dead")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Ftasks%3Fstatus%3Ddead")
    assert "Log in" in http.get(answer.headers["location"]).text


def test_a_form_that_is_refused_says_what_to_do(visitor: httpx.Client) -> None:
    assert visitor.post("/tasks/1/cancel", data={"back": "/"}).status_code == 303
    for path, given, remedy in (
        ("/tasks/2/change", {"body": '{"disk": 7, }'}, 'column 13 (char 12); such as {"source": "a.mp4", "passes": 2}'),
        ("/tasks/1/change", {"priority": "9"}, "or buried; enqueue a new one with other values"),
        ("/tasks/1/bury", {}, "or waiting; retry it first"),
        ("/queues/pause?name=vidoe", {}, "there is no queue 'vidoe'; known are, the nearest first: video, "),
    ):
        assert remedy in unescape(visitor.post(path, data={**given, "back": "/"}).text), path


def test_what_was_done_can_be_undone(visitor: httpx.Client) -> None:
    for path, given, undo in (
        ("/tasks/1/cancel", {}, "/tasks/1/retry"),
        ("/tasks/1/requeue", {"queue": "other"}, "/tasks/1/requeue?queue=video"),
        ("/tasks/1/change", {"priority": "9"}, "/tasks/1/change?priority=0"),
        ("/queues/pause?name=video", {}, "/queues/resume?name=video"),
        ("/schedules/disable?name=nightly", {}, "/schedules/enable?name=nightly"),
    ):
        answer = visitor.post(path, data={**given, "back": "/limits"})
        assert answer.status_code == 303, answer.text
        assert f'href="{undo}">Undo</a>' in visitor.get("/limits").text, path
        form = visitor.get(undo).text
        values = dict(re.findall(r'name="(queue|priority)"[^>]*value="([^"]*)"', form))
        done = visitor.post(undo.partition("?")[0] if given else undo, data={**values, "back": "/"})
        assert done.status_code == 303, undo
