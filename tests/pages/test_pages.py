"""Each page answers each role, as far as it may see it, with headers that let it load nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.web.pages.dashboard import ACTIONS
from tests.pages.addresses import ADDRESSES, ASK_A_NODE, FOR_ADMINS, routes_of
from tests.pages.conftest import Visit, write_hostile_texts

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Page(HTMLParser):
    """The elements of a page; every one that is opened must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.problems += [f"{tag} {name}" for name in given if name.startswith("on") or name == "style"]
        if "id" in given:
            self.ids.append(str(given["id"]))
        if tag == "a":
            self.links.append(str(given.get("href")))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")


def parse(answer: httpx.Response) -> Page:
    page = Page(answer.text)
    assert page.problems == [], answer.url
    assert page.open == [], answer.url
    assert len(page.ids) == len(set(page.ids)), answer.url
    return page


def test_there_is_an_address_of_every_page() -> None:
    assert routes_of("page") == ADDRESSES.keys() | {action.route for action in ACTIONS}


@pytest.mark.parametrize("route", sorted(ADDRESSES.keys() - ASK_A_NODE))
def test_a_page_answers_where_there_are_no_users(visitor: httpx.Client, route: str) -> None:
    answer = visitor.get(ADDRESSES[route])
    assert answer.status_code in {200, 303}, answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "same-origin"
    if answer.headers.get("content-type", "").startswith("text/html"):
        parse(answer)


def test_an_unknown_page_is_an_error_with_a_way_back(visitor: httpx.Client) -> None:
    answer = visitor.get("/nowhere")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "/" in parse(answer).links
    assert visitor.get("/api/v1/nowhere").headers["content-type"] == "application/problem+json"
    form_only = visitor.get("/logout")
    assert form_only.status_code == 405
    assert "takes a form" in form_only.text
    assert visitor.post("/nowhere").headers["content-type"] == "application/problem+json"


def test_a_defect_of_a_page_is_a_page_too(visitor: httpx.Client, client: Client) -> None:
    client.database.run(lambda connection: connection.execute(sa.text("DROP TABLE task_logs")).close())
    answer = visitor.get("/tasks/1")
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert "the log of the web process" in answer.text
    parse(answer)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_pages_for_admins_are_shown_to_admins_alone(visit_as: Visit, role: str) -> None:
    http = visit_as(role)
    navigation = parse(http.get("/")).links
    for path in FOR_ADMINS:
        answer = http.get(path)
        assert answer.status_code == (200 if role == "admin" else 403)
        if path != "/tokens/new":
            assert (path in navigation) == (role == "admin")


def test_a_viewer_sees_no_action_and_can_do_none(visit_as: Visit, client: Client) -> None:
    http = visit_as("viewer")
    for route, address in ADDRESSES.items():
        if route not in {"/login", "/account", "/bulk/new", *ASK_A_NODE}:
            answer = http.get(address)
            assert "data-dialog" not in answer.text, address
            forms = set(re.findall(r'<form[^>]*?action="([^"]*)"[^>]*method="post"', answer.text))
            assert forms <= {"/theme", "/logout"}, address
    for action in ACTIONS:
        key = "1" if action.subject.has_id else "video"
        assert http.get(action.address(key)).status_code == 403
    assert client.tasks.get(1).status == "pending"


def test_texts_of_tasks_and_nodes_are_no_markup(visitor: httpx.Client, client: Client) -> None:
    write_hostile_texts(client)
    for address in (
        "/",
        "/tasks?column=error&column=progress_note&column=unique_key",
        "/tasks/1",
        "/nodes",
        ADDRESSES["/nodes/show"],
    ):
        answer = visitor.get(address)
        assert answer.status_code == 200
        parse(answer)
        for text in ("<script>alert", "<img src=x", "\u202e", "\x1b", "<b>&"):
            assert text not in answer.text, address
