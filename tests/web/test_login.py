"""Logins: sessions, their cookies and CSRF tokens, the rate limit, and work that does not tell which users exist."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from typing import Any

import argon2
import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.config.settings import AccessSettings
from peerd.operate import passwords
from peerd.store import users as user_rows
from peerd.store.schema.tables import login_failures, sessions
from peerd.store.schema.tables import users as user_table
from peerd.store.schema.types import seconds_from_now
from peerd.store.users import digest
from peerd.testing import eventually
from peerd.web.access.login import UNKNOWN_USER
from tests.web.access_world import API, HOST, PASSWORD, bearer, browser, log_in, problem, serving

VIEWER = {"name": "viewer", "password": PASSWORD}
OWN_PASSWORD = {"current": PASSWORD, "new": "another long password"}


@pytest.fixture
def address(users: Client) -> Iterator[str]:
    with serving(users, AccessSettings(allowed_hosts=(HOST,)), proxies=("127.0.0.1",)) as address:
        yield address


def cookie_of(answer: httpx.Response) -> Any:
    [morsel] = SimpleCookie(answer.headers["set-cookie"]).values()
    return morsel


def execute(client: Client, statement: sa.Update) -> None:
    client.database.run(sa.Connection.execute, statement)


def rows(client: Client, table: Any) -> list[Any]:
    return client.database.read(lambda connection: list(connection.execute(table.select())))


def known(address: str, headers: dict[str, str]) -> int:
    """The status of the question who asks."""
    return httpx.get(f"{address}{API}/session", headers=headers).status_code


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
    assert known(address, {"cookie": f"peerd_session={session}"}) == 401
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
    for cookie, headers, status in (
        (f"__Host-peerd={secure.value}", forwarded, 200),
        (f"__Host-peerd={secure.value}; __Host-peerd=x", forwarded, 401),
        (f"peerd_session={secure.value}", forwarded, 401),  # over https, it may be of another site of the domain
        (f"__Host-peerd={secure.value}", {}, 401),
    ):
        assert known(address, headers | {"cookie": cookie}) == status, cookie
    stored = str(rows(users, sessions))
    assert (secure.value in stored, digest(secure.value) in stored) == (False, True)


def test_a_session_that_was_planted_is_not_taken_over(address: str, users: Client) -> None:
    planted = "a" * 43
    browser(address, cookies={"peerd_session": planted}).post("/session", json=VIEWER)
    assert digest(planted) not in str(rows(users, sessions))
    cookie = {"cookie": f"peerd_session={log_in(address, 'viewer').cookies['peerd_session']}"}
    httpx.post(f"{address}{API}/session", json=VIEWER, headers=cookie)
    assert known(address, cookie) == 401, "the one before has ended"


def test_a_change_by_a_session_needs_the_token_of_that_session(address: str) -> None:
    http, other = log_in(address, "operator"), log_in(address, "operator")
    right = http.headers.pop("x-csrf-token")
    wrong: list[dict[str, str]] = [{"x-csrf-token": one} for one in ("", right[:-1], other.headers["x-csrf-token"])]
    for headers in ({}, *wrong):
        for method, path in (("POST", "/tasks/1/cancel"), ("DELETE", "/session"), ("PUT", "/session/password")):
            refused = http.request(method, path, headers=headers, json=OWN_PASSWORD if method == "PUT" else None)
            assert problem(refused) == (403, "CsrfTokenMissing"), (headers, path)
    assert http.get("/tasks").status_code == 200, "what reads needs none"
    assert http.post("/tasks/1/cancel", headers={"x-csrf-token": right}).status_code == 200


def test_a_user_changes_its_own_password_and_its_other_sessions_end(address: str, users: Client) -> None:
    http, other, foreign = log_in(address, "viewer"), log_in(address, "viewer"), log_in(address, "operator")
    old = http.cookies["peerd_session"]
    changed = http.put("/session/password", json=OWN_PASSWORD)
    assert (changed.status_code, changed.json()["name"]) == (200, "viewer")
    http.headers["x-csrf-token"] = changed.json()["csrf_token"]
    for ended in (old, other.cookies["peerd_session"]):
        assert known(address, {"cookie": f"peerd_session={ended}"}) == 401
    assert foreign.get("/session").status_code == 200
    assert len(rows(users, sessions)) == 2
    assert problem(browser(address).post("/session", json=VIEWER)) == (401, "LoginFailed")
    again = http.put("/session/password", json={"current": OWN_PASSWORD["new"], "new": PASSWORD})
    assert again.status_code == 200, "with the session and the token that the change has made"
    entry = users.audit.page(operation_name="session.set_password").items[-1]
    assert (entry.actor, entry.target_kind, entry.target, entry.outcome) == ("viewer", "user", "viewer", "done")
    assert OWN_PASSWORD["new"] not in str(users.audit.page().items)


def test_a_change_of_the_own_password_needs_a_login_the_present_one_and_a_form(
    address: str, users: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_rows, "MOST_OF_PAIR", 3)
    http = log_in(address, "viewer")
    token = bearer(users.tokens.create("viewer", ["view", "admin"]).secret)
    of_program = httpx.put(f"{address}{API}/session/password", json=OWN_PASSWORD, headers=token)
    assert problem(of_program) == (403, "NotPermitted"), "it has no login"
    assert "peerd users password" in of_program.json()["detail"]
    composed = http.put("/session/password", json=OWN_PASSWORD | {"new": "e\u0301" * 6})
    assert (problem(composed), composed.json()["field"]) == ((422, "InvalidAccess"), "new")
    wrong = OWN_PASSWORD | {"current": "not this password"}
    refused = [problem(http.put("/session/password", json=one)) for one in [wrong] * 4 + [OWN_PASSWORD]]
    assert refused == [(403, "WrongPassword")] * 3 + [(429, "TooManyLogins")] * 2
    login = browser(address).post("/session", json=VIEWER)
    assert problem(login) == (429, "TooManyLogins"), "they count as logins"
    assert http.get("/session").status_code == 200, "the session goes on"
    entries = users.audit.page(operation_name="session.set_password").items
    assert [(one.actor, one.outcome) for one in entries] == [("viewer", "refused")] * 3


def test_a_session_ends_with_its_age_its_rest_and_every_change_of_its_user(users: Client) -> None:
    with serving(users, AccessSettings(session_idle=100.0, session_age=1000.0)) as address:
        for column, seconds, status in (
            ("seen_at", 90, 200),
            ("seen_at", 110, 401),
            ("created_at", 990, 200),
            ("created_at", 1010, 401),
        ):
            http = log_in(address, "viewer")
            execute(users, sessions.update().values({column: seconds_from_now(-float(seconds))}))
            assert http.get("/session").status_code == status, (column, seconds)
        for change in (
            lambda: users.users.set_password("viewer", PASSWORD),
            lambda: users.users.change("viewer", role="operator"),
            lambda: users.users.change("viewer", disabled=True),
            lambda: users.users.remove("viewer"),
        ):
            users.users.change("viewer", disabled=False)
            http = log_in(address, "viewer")
            change()
            assert http.get("/session").status_code == 401


def test_a_login_costs_and_says_the_same_whatever_is_wrong(
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


def test_guesses_are_limited_and_do_not_lock_the_user_out(users: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_rows, "MOST_OF_PAIR", 3)
    monkeypatch.setattr(user_rows, "MOST_OF_NAME", 5)

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
        execute(users, login_failures.update().values(began_at=seconds_from_now(-user_rows.WINDOW - 1)))
        assert attempt(other, "192.0.2.1", PASSWORD).status_code == 201, "when the time is over"


def test_right_passwords_at_once_lock_nobody_out_and_leave_room_for_other_addresses(
    users: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, verify = threading.Event(), argon2.PasswordHasher.verify

    def wait_and_verify(self: Any, *args: Any) -> bool:
        compare.wait(60)
        return verify(self, *args)

    def attempt(peer: str) -> int:
        return httpx.post(
            f"{address}{API}/session", json=VIEWER, headers={"x-forwarded-for": peer}, timeout=60
        ).status_code

    monkeypatch.setattr(argon2.PasswordHasher, "verify", wait_and_verify)
    with serving(users, proxies=("127.0.0.1",)) as address, ThreadPoolExecutor(31) as browsers:
        logins = [browsers.submit(attempt, "10.0.0.7") for _ in range(30)]
        eventually(lambda: sum(login.done() for login in logins) == 10, 30)
        other = browsers.submit(attempt, "10.0.0.8")
        assert attempt("10.0.0.7") == 503
        compare.set()
        assert other.result() == 201
        assert Counter(login.result() for login in logins) == {201: 20, 503: 10}
        assert attempt("10.0.0.7") == 201
    assert {row.failures for row in rows(users, login_failures)} == {0}


def test_passwords_are_hashed_anew_when_the_parameters_change(address: str, users: Client) -> None:
    admin = log_in(address, "admin")
    for password in ("short", "x" * 1001):
        answer = admin.put("/users/viewer/password", json={"password": password})
        assert (answer.status_code, password in answer.text) == (422, False)
    users.users.set_password("viewer", "Gr\u00fc\u00dfe aus K\u00f6ln")
    log_in(address, "viewer", "Gru\u0308\u00dfe aus Ko\u0308ln")
    weak = argon2.PasswordHasher(time_cost=2, memory_cost=8, parallelism=1).hash(PASSWORD)
    execute(users, user_table.update().values(password_hash=weak))
    log_in(address, "viewer")
    [rehashed] = [row.password_hash for row in rows(users, user_table) if row.name == "viewer"]
    assert (rehashed != weak, passwords.needs_rehash(rehashed)) == (True, False)
