"""What surrounds a login: hosts, proxies, single sign-on, mounting, the first user, masks, and tokens that leak."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from peerd import Actor, BulkChange, Client, Right, Role
from peerd.config.settings import AccessSettings
from peerd.domain.access import ActorKind
from peerd.runtime.observability import events
from peerd.runtime.observability.log_messages import log_message_of
from peerd.web import create_app
from tests.web.access_world import API, HOST, PASSWORD, bearer, log_in, problem, serving

HEADER = "x-remote-user"
SSO = AccessSettings(allowed_hosts=(HOST,), proxy_user_header=HEADER)
PROXY = ("127.0.0.1",)


def forwarded(user: str | bytes | None = None) -> list[tuple[str, Any]]:
    named = [] if user is None else [(HEADER, user)]
    return [("x-forwarded-for", "10.0.0.7"), ("x-forwarded-host", HOST), ("x-forwarded-proto", "https"), *named]


def get(address: str, path: str = "/session", headers: Any = None) -> httpx.Response:
    return httpx.get(f"{address}{API}{path}", headers=headers)


PASSWORD_FIELD = 'name="password"'


def test_without_users_nothing_is_served_and_the_page_says_how_the_first_one_is_made(client: Client) -> None:
    with serving(client) as address:
        for headers in ({}, {"host": "127.0.0.1:8080"}):  # as a proxy of this machine sends it for anybody
            assert problem(get(address, "/tasks", headers)) == (401, "Unauthorized")
        assert httpx.get(f"{address}/").headers["location"] == "/login?next=%2F"
        page = httpx.get(f"{address}/login").text
        assert ("peerd users add NAME --role admin" in page, PASSWORD_FIELD in page) == (True, False)
        client.users.add("ann", "admin", PASSWORD)
        assert PASSWORD_FIELD in httpx.get(f"{address}/login").text
        assert log_in(address, "ann").get("/tasks").status_code == 200


async def test_a_websocket_is_closed_and_a_route_without_an_actor_is_not_served(users: Client) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    app = create_app(users)
    await app({"type": "websocket", "path": f"{API}/tasks", "headers": [], "query_string": b""}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    app = create_app(users)
    app.user_middleware = []
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get(f"{API}/tasks")).status_code == 500


def test_a_host_is_allowed_by_its_whole_name(users: Client) -> None:
    secret = bearer(users.tokens.create("t", ["view"]).secret)
    with serving(users, AccessSettings(allowed_hosts=(HOST, "10.0.0.9"))) as address:
        for host in (f"{HOST}:8080", HOST.upper(), "10.0.0.9:80", "localhost:1"):
            assert get(address, headers=secret | {"host": host}).status_code == 200, host
        for host in (f"{HOST}.evil.example", f"evil-{HOST}", "example.com", f"x@{HOST}", "10.0.0.99"):
            assert problem(get(address, headers=secret | {"host": host})) == (403, "Forbidden"), host
        claimed = secret | {"host": "evil.example", "x-forwarded-host": HOST}
        assert problem(get(address, headers=claimed)) == (403, "Forbidden"), "no trusted proxy has said it"


def test_a_trusted_proxy_names_the_user(users: Client) -> None:
    with serving(users, SSO, proxies=PROXY) as address:
        shown = get(address, headers=forwarded("operator")).json()
        assert (shown["name"], shown["kind"], "operate" in shown["rights"]) == ("operator", "proxy", True)
        cancel = f"{address}{API}/tasks/1/cancel"
        crossed = httpx.post(cancel, headers=[*forwarded("operator"), ("origin", "https://x.example")])
        assert problem(crossed) == (403, "Forbidden")
        assert httpx.post(cancel, headers=forwarded("operator")).status_code == 200
        entry = users.audit.page(operation_name="tasks.cancel").items[0]
        assert (entry.actor, entry.actor_kind, entry.address) == ("operator", "proxy", "10.0.0.7")
        users.users.change("operator", disabled=True)
        for unknown in ("operator", "stranger"):  # there is no proxy_role
            assert problem(get(address, headers=forwarded(unknown))) == (403, "Forbidden")
        wrong = [forwarded(name) for name in (None, "", "a\u00adb".encode(), b"\xff", "x" * 300)]
        wrong += [[*forwarded("viewer"), (HEADER, "admin")], [*forwarded(), ("x_remote_user", "admin")]]
        assert [get(address, headers=headers).status_code for headers in wrong] == [401] * len(wrong)
    with serving(users, AccessSettings(proxy_user_header=HEADER, proxy_role=Role.VIEWER), proxies=PROXY) as address:
        assert get(address, headers={HEADER: "stranger"}).json()["rights"] == ["read-files", "view"]


def test_nothing_but_a_trusted_proxy_names_the_user_or_the_address(users: Client) -> None:
    secret = bearer(users.tokens.create("t", ["operate"]).secret)
    with serving(users, SSO, proxies=("10.0.0.0/8", "127.0.0.10", "localhost")) as address:
        for forged in ({HEADER: "admin"}, {HEADER: "admin", "x-forwarded-for": "127.0.0.1"}):
            assert problem(get(address, headers=forged)) == (401, "Unauthorized")
        httpx.post(f"{address}{API}/tasks/1/cancel", headers=secret | {"x-forwarded-for": "192.0.2.66"})
        assert users.audit.page(operation_name="tasks.cancel").items[0].address == "127.0.0.1"
    with serving(users, AccessSettings(), proxies=PROXY) as address:
        assert problem(get(address, headers={HEADER: "admin"})) == (401, "Unauthorized"), "no header is configured"


async def test_a_site_uses_its_own_login(users: Client) -> None:
    def authenticate(request: Request) -> Actor | None:
        name = request.headers.get("x-site-session")
        kind, rights = ActorKind.PYTHON, frozenset({Right.VIEW, Right.OPERATE})
        return None if name is None else Actor(name=name, kind=kind, rights=rights, queues=frozenset({"mail"}))

    site = FastAPI()
    site.mount("/jobs", create_app(users, authenticate=authenticate))
    transport, own = httpx.ASGITransport(site), {"x-site-session": "ann"}
    async with httpx.AsyncClient(transport=transport, base_url="https://site.example/jobs/api/v1") as http:
        assert (await http.get("https://site.example/jobs/health/live")).status_code == 200
        assert problem(await http.get("/tasks")) == (401, "Unauthorized")
        shown = (await http.get("/session", headers=own)).json()
        assert (shown["name"], shown["kind"], shown["queues"]) == ("ann", "site", ["mail"]), "whatever kind it says"
        assert problem(await http.post("/queues/video/pause", headers=own)) == (403, "NotPermitted")
        assert (await http.post("/queues/mail/pause", headers=own)).status_code == 204
        crossed = await http.post("/queues/mail/resume", headers=own | {"sec-fetch-site": "cross-site"})
        assert problem(crossed) == (403, "Forbidden")
        token = bearer(users.tokens.create("t", ["view"]).secret)
        assert (await http.get("/session", headers=token)).json()["kind"] == "token"
        cookie = {"cookie": "peerd_session=" + "a" * 43}
        assert problem(await http.get("/session", headers=cookie)) == (401, "Unauthorized")
    entry = users.audit.page(operation_name="queues.pause").items[0]
    assert (entry.actor, entry.actor_kind, entry.way) == ("ann", "site", "api")


def test_a_token_is_in_no_log_and_no_answer(users: Client, caplog: pytest.LogCaptureFixture) -> None:
    secret = users.tokens.create("t", ["view"]).secret
    seen: list[events.Event] = []
    with serving(users, listener=seen.append) as address, caplog.at_level(logging.DEBUG):
        answers = [
            get(address, f"/tasks?{query}={secret}") for query in ("token", "ACCESS_TOKEN", "a=1&token", "bearer")
        ]
        assert {problem(refused) for refused in answers} == {(400, "TokenInAddress")}
        answers += [get(address, path, bearer(secret)) for path in ("/tasks", f"/tasks/{secret}")]
        answers += [get(address, "/tasks", bearer(secret + "x"))]
    logged = [str(log_message_of(event)) for event in seen if isinstance(event, events.WebRequestAnswered)]
    assert len(logged) == len(answers)
    of_the_server = [one.getMessage() for one in caplog.records if not one.name.startswith(("httpx", "httpcore"))]
    everything = "\n".join([*map(repr, seen), *logged, *(one.text for one in answers), *of_the_server])
    assert secret[-20:] not in everything + str(users.audit.page().items)


def test_masked_values_are_shown_to_nothing_but_programs(users: Client) -> None:
    body = {"Password": "hunter2", "deep": [{"card": {"number": 4111}}], "source": "a.mp4"}
    with Client(users.database, mask=["password", "card"]) as program, serving(program) as address:
        task = program.enqueue("video", body=body).id
        text = program.enqueue("video", text="login with password=hunter2 please").id
        raw = program.enqueue("video", bytes=b'{"password": "hunter2"}').id
        program.tasks.cancel(task, "refused: password: 'hunter2', card=4111")
        admin, operator = (bearer(program.tokens.create("t", rights).secret) for rights in (list(Right), ["operate"]))
        shown = get(address, f"/tasks/{task}", operator).json()
        assert shown["body"] == {"Password": "***", "deep": [{"card": "***"}], "source": "a.mp4"}
        assert shown["error"] == "refused: password: ***, card=***"
        assert get(address, f"/tasks/{text}", operator).json()["text"] == "login with password=*** please"
        changed = httpx.patch(f"{address}{API}/tasks/{text}", json={"body": body}, headers=operator)
        pages = [get(address, path, operator) for path in (f"/tasks/{raw}", "/tasks", "/tasks?status=canceled")]
        change = {"action": {"type": "change", "body": body}, "filter": {"queue": "video"}}
        pages += [httpx.post(f"{address}{API}/bulk", json=change, headers=operator), get(address, "/bulk", operator)]
        assert [one.status_code for one in pages] == [200, 200, 200, 202, 200]
        assert program.bulk.list()[0].action == BulkChange(body=json.dumps(body, separators=(",", ":")))
        assert "hunter2" not in "".join(one.text for one in (*pages, changed, get(address, "/audit", admin)))
        for query in ("search=hunter2", "where=body~hunter2", "where=error~hunter", "where=result=x"):
            refused = get(address, f"/tasks?{query}", operator)
            assert problem(refused) == (403, "NotPermitted"), "a search would find out what is masked"
            assert get(address, f"/tasks?{query}", admin).status_code == 200
        assert program.tasks.get(task).json == body, "a program works with the values"
