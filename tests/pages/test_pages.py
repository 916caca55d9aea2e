"""Each page answers each role, as far as it may see it, with headers that let it load nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import httpx
import sqlalchemy as sa

from peerd import Client
from peerd.domain.alert import AlertReport
from peerd.store.alerts import ReportAge, record_alert
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.schema.tables import depths, nodes, processes
from peerd.store.schema.types import seconds_from_now
from peerd.store.time_series import SAMPLE
from peerd.web.pages import rendering
from peerd.web.pages.dashboard import ACTIONS
from tests.pages.addresses import ADDRESSES, ASK_A_NODE, NODE, routes_of
from tests.pages.conftest import Visit
from tests.pages.test_forms import token_of

TEMPLATES = Path(rendering.__file__).with_name("templates")
VOID = {"meta", "link", "input", "img", "br", "hr"}
UNLABELLED = {"hidden", "submit"}
"""Types of fields that need no label."""


class Page(HTMLParser):
    """The elements of a page, and what is wrong with them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.problems: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self._fields: list[str] = []
        self._labels: set[str] = set()
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self.open]
        self.problems += [f"id {one} is there twice" for one in {*self.ids} if self.ids.count(one) > 1]
        self.problems += [f"the field {one} has no label" for one in self._fields if one not in self._labels]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.problems += [f"{tag} {name}" for name in given if name.startswith("on") or name == "style"]
        if "id" in given:
            self.ids.append(str(given["id"]))
        if tag == "a":
            self.links.append(str(given.get("href")))
        if tag == "label" and "for" in given:
            self._labels.add(str(given["for"]))
        is_field = tag in {"select", "textarea"} or (tag == "input" and given.get("type") not in UNLABELLED)
        if is_field and "label" not in self.open and "aria-label" not in given:
            self._fields.append(str(given.get("id", given.get("name"))))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")


def parse(answer: httpx.Response) -> Page:
    page = Page(answer.text)
    assert page.problems == [], answer.url
    return page


def faults_of(answer: httpx.Response) -> list[str]:
    policy = answer.headers["content-security-policy"]
    faults = [] if answer.status_code in {200, 303} else [f"{answer.status_code}: {answer.text[:300]}"]
    if "default-src 'none'" not in policy or "unsafe" in policy:
        faults.append(policy)
    if answer.headers["referrer-policy"] != "same-origin":
        faults.append("it tells other sites where its viewer comes from")
    if answer.headers.get("content-type", "").startswith("text/html"):
        page = Page(answer.text)
        faults += page.problems
        faults += [f"{page.tags.count(tag)} of {tag}" for tag in ("title", "main", "h1") if page.tags.count(tag) != 1]
    return faults


def test_each_page_is_whole_and_loads_nothing_from_elsewhere(visitor: httpx.Client) -> None:
    assert routes_of("page") == ADDRESSES.keys() | {action.route for action in ACTIONS}, "there is an address of each"
    found = {route: faults_of(visitor.get(ADDRESSES[route])) for route in ADDRESSES.keys() - ASK_A_NODE}
    assert {route: faults for route, faults in found.items() if faults} == {}


def test_the_overview_says_each_fact_once_as_a_link_with_its_remedy(visit_as: Visit, client: Client) -> None:
    silent = sa.update(nodes).values(active=False, checked_at=seconds_from_now(-600.0))
    client.database.run(sa.Connection.execute, silent)
    report = AlertReport(kind="inactive-nodes", subject=NODE, node=NODE, text="it fell silent")
    client.database.run(record_alert, report, ReportAge())
    answer = visit_as("viewer").get("/")
    assert 'class="verdict red"' in answer.text
    assert (answer.text.count("has been silent for 10m"), "it fell silent" in answer.text) == (1, False)
    assert f"/nodes/show?{urlencode({'name': NODE})}" in parse(answer).links
    assert "start it again with peerd up" in answer.text
    assert re.findall(r'status=\w+"><span class="chip \w+">(.+?)<', answer.text) == ["pending –", "working –"]


def test_a_queue_says_why_its_tasks_wait_and_leads_to_what_moves_them(visitor: httpx.Client, client: Client) -> None:
    pinned = client.enqueue("paper", node=NODE)
    client.queues.pause("paper")
    client.queues.resume("paper")
    client.database.run(sa.Connection.execute, sa.update(nodes).values(active=False))
    answer = visitor.get("/queues/show?name=paper")
    assert "1 of 1 waiting tasks is pinned to" in answer.text
    assert answer.text.count(" in this time.") == 1, "of five charts in which nothing is"
    client.database.run(write_depths, client.database.read(sample_depths))
    more = {"step": SAMPLE, "at": seconds_from_now(-300.0), "queue": "paper", "status": "pending", "count": 10}
    client.database.run(sa.Connection.execute, sa.insert(depths).values(more))
    for address in ("/", "/queues"):
        assert visitor.get(address).text.count("<span>in about a minute</span>") == 1, address
    client.database.run(sa.Connection.execute, sa.update(processes).values(ended_at=None))
    for address in ("/processes", f"/nodes/show?{urlencode({'name': NODE})}", f"/tasks/{pinned.id}"):
        text = visitor.get(address).text
        assert ('class="chip bad">silent</span>' in text, ">alive<" in text) == (True, False), address
    filtered = urlencode({"queue": "paper", "node": NODE, "status": "pending"})
    assert f"/bulk/new?{filtered}&verb=move" in parse(answer).links


def test_a_death_leads_to_its_task_and_the_task_says_what_may_be_missing(visitor: httpx.Client) -> None:
    answer = visitor.get("/processes?ended=1")
    [row] = re.findall(r'<tr id="process-1">.*?</tr>', answer.text, re.DOTALL)
    assert 'href="/tasks/1"' in row
    assert "killed by SIGABRT): the next worker process that starts on its node writes its last lines" in re.sub(
        r"\s+", " ", visitor.get("/tasks/1").text
    )


def test_what_is_unfolded_stays_so_on_a_live_page() -> None:
    without_id = {path.name for path in TEMPLATES.rglob("*.html") if re.search(r"<details(?! id=)", path.read_text())}
    assert without_id == set(), "the script knows it by its id"


def test_an_unknown_page_is_an_error_with_a_way_back(visitor: httpx.Client) -> None:
    answer = visitor.get("/nowhere")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "/" in parse(answer).links
    assert visitor.get("/logout").status_code == 405
    assert visitor.post("/nowhere").headers["content-type"] == "application/problem+json"


def test_a_defect_of_a_page_is_a_page_too(visitor: httpx.Client, client: Client) -> None:
    client.database.run(lambda connection: connection.execute(sa.text("DROP TABLE task_logs")).close())
    answer = visitor.get("/tasks/1")
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert "the log of the web process" in answer.text
    parse(answer)


def test_a_viewer_sees_no_action(visit_as: Visit) -> None:
    http = visit_as("viewer")
    for route in ADDRESSES.keys() - {"/login", "/account", "/bulk/new", *ASK_A_NODE}:
        text = http.get(ADDRESSES[route]).text
        assert "data-dialog" not in text, route
        forms = set(re.findall(r'<form[^>]*?action="([^"]*)"[^>]*method="post"', text))
        assert forms <= {"/theme", "/logout"}, route
    sent = {"csrf_token": token_of(http, "/account"), "id": "1", "verb": "retry", "name": "x"}
    assert [http.post(path, data=sent).status_code for path in ("/tasks/selection", "/tokens")] == [403, 403]
