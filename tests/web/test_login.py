"""Logins: sessions, their cookies and CSRF tokens, the rate limit, and work that does not tell which users exist."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.cookies import SimpleCookie
from typing import Any

import argon2
import httpx
import pytest

from peerd import Client
from peerd.config.settings import AccessSettings
from peerd.operate import passwords
from peerd.store.access import login_limits
from peerd.store.access.sessions import digest
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import login_failures, sessions
from peerd.store.schema.tables import users as user_table
from peerd.web.access.login import UNKNOWN_USER
from tests.web.access_world import API, HOST, PASSWORD, browser, log_in, problem, serving

VIEWER = {"name": "viewer", "password": PASSWORD}


@pytest.fixture
def address(users: Client) -> Iterator[str]:
    with serving(users, AccessSettings(allowed_hosts=(HOST,)), proxies=("127.0.0.1",)) as address:
        yield address


def cookie_of(answer: httpx.Response) -> Any:
    [morsel] = SimpleCookie(answer.headers["set-cookie"]).values()
    return morsel


def execute(statement: Any, connection: Any) -> None:
    connection.execute(statement)


def rows(client: Client, table: Any) -> list[Any]:
    return client.database.read(lambda connection: list(connection.execute(table.select())))


def test_a_user_logs_in_is_known_and_logs_out(address: str, users: Client) -> None:
    http = log_in(address, "operator")
    shown = http.get("/session").json()
    assert (shown["name"], shown["kind"]) == ("operator", "user")
    assert shown["rights"] == ["enqueue", "operate", "read-files", "view", "write-files"]
    assert http.post("/tasks/1/cancel").status_code == 200
    assert problem(http.get("/users")) == (403, "NotPermitted")
    assert users.users.list()[1].logged_in_at is not None
    session = http.cookies["peerd_session"]
    assert http.delete("/session").status_code == 204
    assert rows(users, sessions) == []
    assert problem(http.get("/tasks", headers={"cookie": f"peerd_session={session}"})) == (401, "Unauthorized")
    opened = [entry.operation for entry in users.audit.page(actor="operator").items]
    assert opened == ["session.close", "users.list", "tasks.cancel", "session.open"]


def test_the_cookie_is_the_browsers_alone(address: str, users: Client) -> None:
    http = browser(address)
    plain = cookie_of(http.post("/session", json=VIEWER))
    assert (plain.key, plain["httponly"], plain["samesite"], plain["path"]) == ("peerd_session", True, "lax", "/")
    assert (plain["secure"], plain["domain"]) == ("", "")
    forwarded = {"x-forwarded-proto": "https", "x-forwarded-for": "10.0.0.7", "x-forwarded-host": HOST}
    secure = cookie_of(http.post("/session", json=VIEWER, headers=forwarded))
    assert (secure.key, secure["secure"]) == ("__Host-peerd", True)
    for name, headers, status in (
        ("__Host-peerd", forwarded, 200),
        ("peerd_session", forwarded, 401),  # over https, a plain cookie may be of another site of the domain
        ("__Host-peerd", {}, 401),
    ):
        cookie = {"cookie": f"{name}={secure.value}"}
        assert httpx.get(f"{address}{API}/session", headers=headers | cookie).status_code == status
    twice = {"cookie": f"__Host-peerd={secure.value}; __Host-peerd=x"}
    assert httpx.get(f"{address}{API}/session", headers=forwarded | twice).status_code == 401
    assert secure.value not in str(rows(users, sessions))
    assert digest(secure.value) in str(rows(users, sessions))


def test_a_session_that_was_planted_is_not_taken_over(address: str, users: Client) -> None:
    planted = "a" * 43
    http = browser(address, cookies={"peerd_session": planted})
    http.post("/session", json=VIEWER)
    assert digest(planted) not in str(rows(users, sessions))
    old = log_in(address, "viewer").cookies["peerd_session"]
    cookie = {"cookie": f"peerd_session={old}"}
    again = httpx.post(f"{address}{API}/session", json=VIEWER, headers=cookie)
    assert cookie_of(again).value != old
    assert httpx.get(f"{address}{API}/session", headers=cookie).status_code == 401, "the one before has ended"


def test_a_change_by_a_session_needs_the_token_of_that_session(address: str) -> None:
    http, other = log_in(address, "operator"), log_in(address, "operator")
    right = http.headers.pop("x-csrf-token")
    for wrong in ("", "x", right[:-1], right + "0", other.headers["x-csrf-token"], None):
        headers = {} if wrong is None else {"x-csrf-token": wrong}
        for method, path in (("POST", "/tasks/1/cancel"), ("DELETE", "/session")):
            assert problem(http.request(method, path, headers=headers)) == (403, "CsrfTokenMissing"), wrong
    assert http.get("/tasks").status_code == 200, "what reads needs none"
    assert http.post("/tasks/1/cancel", headers={"x-csrf-token": right}).status_code == 200


def test_a_page_of_another_site_changes_nothing_with_any_credential(address: str, users: Client) -> None:
    http = log_in(address, "admin")
    token = {"authorization": f"Bearer {users.tokens.create('t', ['operate']).secret}"}
    for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://evil.test"}):
        for credential in ({}, token):
            assert problem(http.post("/tasks/1/cancel", headers=headers | credential)) == (403, "Forbidden"), headers
        planted = httpx.post(f"{address}{API}/session", json=VIEWER, headers=headers)
        assert problem(planted) == (403, "Forbidden"), "nor logs the browser in as another user"


OWN_PASSWORD = {"current": PASSWORD, "new": "another long password"}


def test_a_user_changes_its_own_password_and_its_other_sessions_end(address: str, users: Client) -> None:
    http, other, foreign = log_in(address, "viewer"), log_in(address, "viewer"), log_in(address, "operator")
    old = http.cookies["peerd_session"]
    changed = http.put("/session/password", json=OWN_PASSWORD)
    assert (changed.status_code, changed.json()["name"]) == (200, "viewer")
    assert http.get("/session").status_code == 200
    assert http.cookies["peerd_session"] != old
    http.headers["x-csrf-token"] = changed.json()["csrf_token"]
    for ended in (f"peerd_session={old}", f"peerd_session={other.cookies['peerd_session']}"):
        assert httpx.get(f"{address}{API}/session", headers={"cookie": ended}).status_code == 401
    assert foreign.get("/session").status_code == 200
    assert len(rows(users, sessions)) == 2
    refused = browser(address).post("/session", json=VIEWER)
    assert problem(refused) == (401, "LoginFailed")
    log_in(address, "viewer", OWN_PASSWORD["new"])
    again = http.put("/session/password", json={"current": OWN_PASSWORD["new"], "new": PASSWORD})
    assert again.status_code == 200, "with the session and the token that the change has made"
    entry = users.audit.page(operation_name="session.set_password").items[-1]
    assert (entry.actor, entry.target_kind, entry.target, entry.outcome) == ("viewer", "user", "viewer", "done")
    assert OWN_PASSWORD["new"] not in str(users.audit.page().items)


def test_a_change_of_the_own_password_needs_a_login_the_present_one_the_csrf_token_and_a_form(
    address: str, users: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_limits, "MOST_OF_PAIR", 3)
    http = log_in(address, "viewer")
    wrong = OWN_PASSWORD | {"current": "not this password"}
    token = {"authorization": f"Bearer {users.tokens.create('viewer', ['view', 'admin']).secret}"}
    of_program = httpx.put(f"{address}{API}/session/password", json=OWN_PASSWORD, headers=token)
    assert problem(of_program) == (403, "NotPermitted"), "it has no login"
    assert "peerd users password" in of_program.json()["detail"]
    crossed = http.put("/session/password", json=OWN_PASSWORD, headers={"x-csrf-token": "x"})
    assert problem(crossed) == (403, "CsrfTokenMissing")
    for new in ("short", "x" * 1001):
        assert http.put("/session/password", json=OWN_PASSWORD | {"new": new}).status_code == 422
    composed = http.put("/session/password", json=OWN_PASSWORD | {"new": "e\u0301" * 6})
    assert (problem(composed), composed.json()["field"]) == ((422, "InvalidAccess"), "new")
    refused = [problem(http.put("/session/password", json=one)) for one in [wrong] * 4 + [OWN_PASSWORD]]
    assert refused == [(403, "WrongPassword")] * 3 + [(429, "TooManyLogins")] * 2
    login = browser(address).post("/session", json=VIEWER)
    assert problem(login) == (429, "TooManyLogins"), "they count as logins"
    assert http.get("/session").status_code == 200, "the session goes on"
    entries = users.audit.page(operation_name="session.set_password").items
    assert [(one.actor, one.outcome, one.problem) for one in entries] == (
        [("viewer", "refused", "the current password is wrong")] * 3
    )


def test_a_session_ends_with_its_age_its_rest_and_every_change_of_its_user(users: Client) -> None:
    with serving(users, AccessSettings(session_idle=100.0, session_age=1000.0)) as address:
        for column, seconds, status in (
            ("seen_at", 90, 200),
            ("seen_at", 110, 401),
            ("created_at", 990, 200),
            ("created_at", 1010, 401),
        ):
            http = log_in(address, "viewer")
            past = sessions.update().values({column: seconds_from_now(-float(seconds))})
            users.database.run(partial(execute, past))
            assert http.get("/session").status_code == status, (column, seconds)
        for change in (
            lambda: users.users.set_password("viewer", PASSWORD),
            lambda: users.users.change("viewer", role="operator"),
            lambda: users.users.change("viewer", disabled=True),
            lambda: users.users.remove("viewer"),
        ):
            users.users.change("viewer", disabled=False)
            http = log_in(address, "viewer")
            assert http.get("/session").status_code == 200
            change()
            assert http.get("/session").status_code == 401
        assert problem(httpx.post(f"{address}{API}/session", json=VIEWER)) == (401, "LoginFailed")


def test_a_login_costs_one_comparison_whatever_is_wrong_and_says_the_same(
    address: str, users: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.users.add("proxied", "viewer")
    users.users.change("operator", disabled=True)
    compared: list[str] = []
    verify = argon2.PasswordHasher.verify

    def counted(self: Any, *args: Any) -> bool:
        compared.append(args[0])
        return verify(self, *args)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", counted)
    texts = set()
    for name in ("viewer", "operator", "proxied", "no such user"):
        answer = httpx.post(f"{address}{API}/session", json={"name": name, "password": "wrong password"})
        assert problem(answer) == (401, "LoginFailed")
        texts.add(answer.text)
    assert len(texts) == 1
    assert len(compared) == 4
    assert all(argon2.extract_parameters(one) == argon2.extract_parameters(compared[0]) for one in compared)
    refused = [entry.actor for entry in users.audit.page(operation_name="session.open").items]
    assert refused == [UNKNOWN_USER, "proxied", "operator", "viewer"], "an unknown name may be a password"


def test_guesses_are_limited_over_all_processes_and_do_not_lock_the_user_out(
    users: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_limits, "MOST_OF_PAIR", 3)
    monkeypatch.setattr(login_limits, "MOST_OF_NAME", 5)

    def attempt(address: str, peer: str, password: str = "wrong password") -> httpx.Response:
        body = {"name": "operator", "password": password}
        return httpx.post(f"{address}{API}/session", json=body, headers={"x-forwarded-for": peer})

    with serving(users, proxies=("127.0.0.1",)) as one, serving(users, proxies=("127.0.0.1",)) as other:
        assert attempt(one, "10.0.0.7", PASSWORD).status_code == 201, "the usual place"
        guesses = [attempt(address, "192.0.2.1").status_code for address in (one, other, one, other)]
        assert guesses == [401, 401, 401, 429]
        limited = attempt(one, "192.0.2.1", PASSWORD)
        assert problem(limited) == (429, "TooManyLogins")
        assert limited.headers["retry-after"] == "900"
        assert [attempt(one, f"192.0.2.{n}").status_code for n in (2, 3, 4)] == [401, 401, 429], "strangers together"
        assert attempt(other, "10.0.0.7", PASSWORD).status_code == 201, "strangers do not lock the user out"
        past = login_failures.update().values(began_at=seconds_from_now(-login_limits.WINDOW - 1))
        users.database.run(partial(execute, past))
        assert attempt(other, "192.0.2.1", PASSWORD).status_code == 201, "when the time is over"


def test_passwords_have_a_form_and_are_hashed_anew_when_the_parameters_change(address: str, users: Client) -> None:
    admin = log_in(address, "admin")
    for password in ("short", "x" * 1001):
        answer = admin.put("/users/viewer/password", json={"password": password})
        assert answer.status_code == 422
        assert password not in answer.text
    composed, decomposed = "Gr\u00fc\u00dfe aus K\u00f6ln", "Gru\u0308\u00dfe aus Ko\u0308ln"
    assert admin.put("/users/viewer/password", json={"password": composed}).status_code == 204
    log_in(address, "viewer", decomposed)
    weak = argon2.PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash(PASSWORD)
    is_viewer = user_table.c.name == "viewer"
    users.database.run(partial(execute, user_table.update().where(is_viewer).values(password_hash=weak)))
    log_in(address, "viewer")
    [rehashed] = [row.password_hash for row in rows(users, user_table) if row.name == "viewer"]
    assert (rehashed != weak, passwords.needs_rehash(rehashed)) == (True, False)


def test_the_last_admin_cannot_be_taken_away_over_the_network(address: str, users: Client) -> None:
    admin = log_in(address, "admin")
    for refused in (
        admin.delete("/users/admin"),
        admin.patch("/users/admin", json={"role": "viewer"}),
        admin.patch("/users/admin", json={"disabled": True}),
    ):
        assert problem(refused) == (409, "LastAdmin")
    added = admin.post("/users", json={"name": "root", "role": "admin", "password": PASSWORD})
    assert added.status_code == 201
    assert problem(admin.post("/users", json={"name": "root", "role": "viewer"})) == (409, "UserExists")
    assert admin.delete("/users/admin").status_code == 204
    assert admin.get("/users").status_code == 401, "the session ended with its user"
    users.users.remove("root")
