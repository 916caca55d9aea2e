"""Users and tokens from the first to the last one, as an admin does it in a browser."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.pages.live.conftest import Open
from tests.pages.live.studio import Studio
from tests.pages.live.test_actions import confirm
from tests.pages.live.visible import assert_seen
from tests.web.access_world import PASSWORD

pytestmark = pytest.mark.slow


def log_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.locator("[name=name]").fill(name)
    page.locator("[name=password]").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_users_and_tokens(open_page: Open, studio: Studio, admin: str) -> None:
    page = open_page("/tasks?status=done")
    expect(page.locator("h1")).to_have_text("Log in")
    log_in(page, admin)
    expect(page).to_have_url(re.compile(r"/tasks\?status=done$"))

    page.goto("/users")
    confirm(page, page.get_by_role("link", name="Add a user"), {"name": "ben", "password": PASSWORD, "role": "viewer"})
    row = page.locator("tr", has_text="ben")
    expect(row).to_contain_text("viewer")
    for verb, given, told in (
        ("role", {"role": "operator"}, "operator"),
        ("disable", {}, "disabled"),
        ("enable", {}, "enabled"),
        ("password", {"password": "another pass phrase"}, "operator"),
    ):
        confirm(page, row.locator(f"a[href*='/users/{verb}']"), given)
        expect(row).to_contain_text(told)
    confirm(page, row.locator("a[href*='/users/remove']"), {})
    expect(row).to_have_count(0)
    assert {user.name for user in studio.client.users.list()} == {admin}

    page.goto("/tokens/new")
    page.locator("[name=name]").fill("importer")
    page.locator("[name=right-view]").check()
    page.get_by_role("button", name="Create the token").click()
    secret = page.locator("#secret").inner_text()
    headers = {"authorization": f"Bearer {secret}"}
    assert httpx.get(f"{studio.address}/api/v1/tasks", headers=headers).status_code == 200
    page.goto("/tokens")
    assert secret not in page.content()
    token = page.locator("tr", has_text="importer").first
    confirm(page, token.locator("a[href*='/revoke']"), {})
    expect(token).to_contain_text("revoked")

    page.goto("/account")
    for name, value in (("current", PASSWORD), ("new", "a longer pass phrase")):
        page.locator(f"[name={name}]").fill(value)
    page.get_by_role("button", name="Change the password").click()
    assert_seen(page, "Your password was changed. Your other sessions have ended.")
    page.get_by_role("button", name="Log out").click()
    expect(page.locator("h1")).to_have_text("Log in")


def test_a_login_that_fails_or_ends_is_said_on_a_live_page(open_page: Open, studio: Studio, admin: str) -> None:
    page = open_page("/", may_fail=True, javascript=False)
    log_in(page, admin, "wrong password")
    assert_seen(page, "the name or the password is wrong")
    expect(page.locator("[name=name]")).to_have_value(admin)
    expect(page.locator("h1")).to_have_text("Log in")
    log_in(page, admin)
    expect(page.locator("h1")).to_have_text("Overview")
    page = open_page("/", may_fail=True)
    log_in(page, admin)
    expect(page.locator("#live-state")).to_have_text("live", timeout=20_000)
    studio.client.users.set_password(admin, "changed by another admin")
    expect(page.locator("#lost")).to_contain_text("Your login has ended", timeout=40_000)
    assert_seen(page, "Your login has ended. Load the page again to log in.")
