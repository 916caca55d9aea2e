"""Each page and each action × each role, and × an actor of another queue: as strict as the operations behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from peerd import Client, Right, Role
from peerd.domain.access import RIGHTS_OF
from peerd.web.pages.actions import PageAction
from peerd.web.pages.dashboard import ACTIONS
from tests.pages.addresses import ADDRESSES, ASK_A_NODE, FILE, FOR_ADMINS, NODE, SCHEDULE
from tests.pages.conftest import Visit
from tests.pages.test_forms import token_of
from tests.pages.test_pages import parse
from tests.web.access_world import bearer, serving

VIDEO_TEXTS: Final = ("transcode", "0.mp4", "1.5 MB", 'href="/storage', 'href="/disks')
"""What only tasks of the queue that is hidden have, and what belongs to no queue."""
OF_TASK: Final = tuple(f"/tasks/{{key:id}}{one}" for one in ("", "/stack", "/download/body", "/download/result"))
OF_ALL_QUEUES: Final = ("/schedules", "/schedules/show", "/storage", "/files", "/files/list", "/files/show", "/disks")
OF_ANOTHER_QUEUE: Final = (
    dict.fromkeys((*OF_TASK, "/bulk/{key:id}"), 404)
    | dict.fromkeys(("/queues/show", "/disks/{key:id}", *OF_ALL_QUEUES, *FOR_ADMINS), 403)
    | {"/tasks/find": 303}
)
"""What an actor of another queue gets; 200 from all other pages."""
KEYS = {"queues": "video", "limits": "video", "users": "viewer", "nodes": NODE}
KEYS |= {"schedules": SCHEDULE, "files": FILE}


def key_of(action: PageAction) -> str:
    return "1" if action.subject.has_id else KEYS[action.subject]


@pytest.fixture
def stranger(client: Client) -> Iterator[httpx.Client]:
    """With a token of another queue, which may do there whatever an operator may."""
    secret = client.tokens.create("stranger", [Right.VIEW, Right.ENQUEUE, Right.OPERATE], queues=["other"]).secret
    with serving(client) as address, httpx.Client(base_url=address, headers=bearer(secret)) as http:
        yield http


def test_a_role_may_do_what_its_rights_permit(visit_as: Visit) -> None:
    wrong: list[tuple[object, ...]] = []
    for role in Role:
        http = visit_as(role)
        wrong += [(role, path) for path in FOR_ADMINS if http.get(path).is_success is not (role is Role.ADMIN)]
        token = token_of(http, "/account")
        for action in ACTIONS:
            is_refused = action.right not in RIGHTS_OF[role]
            # What is done is done to what does not exist, so that the other actions find what they need.
            missing = action.address("999999" if action.subject.has_id else "missing")
            form, done = http.get(action.address(key_of(action))), http.post(missing, data={"csrf_token": token})
            codes = [form.status_code, done.status_code]
            if [code == 403 for code in codes] != [is_refused, is_refused] or 500 in codes:
                wrong.append((role, action.id, *codes))
    assert wrong == []


def test_what_is_refused_by_a_form_is_in_the_audit_log(visit_as: Visit, client: Client) -> None:
    http = visit_as(Role.OPERATOR)
    form = {"csrf_token": token_of(http, "/account"), "name": "eve", "role": "admin", "password": "hunter2 hunter2"}
    refused = [http.post(path, data=form) for path in ("/users/add", "/users/role?name=viewer", "/tokens")]
    assert [answer.status_code for answer in refused] == [403] * 3
    entries = client.audit.page(limit=3).items
    assert [entry.operation for entry in entries] == ["tokens.create", "users.change", "users.add"]
    assert {(entry.actor, entry.outcome) for entry in entries} == {(Role.OPERATOR, "refused")}
    assert "hunter2" not in str(entries)


def test_pages_show_nothing_of_other_queues(stranger: httpx.Client) -> None:
    shown = {route: stranger.get(ADDRESSES[route]) for route in ADDRESSES.keys() - ASK_A_NODE}
    assert {route: answer.status_code for route, answer in shown.items()} == {
        route: OF_ANOTHER_QUEUE.get(route, 200) for route in shown
    }
    assert [(route, text) for route, answer in shown.items() for text in VIDEO_TEXTS if text in answer.text] == []
    links = parse(stranger.get("/account")).links
    assert {stranger.get(link).status_code for link in links if link.startswith("/")} == {200}, "the navigation"
    nodes = shown["/nodes/show"].text + shown["/nodes"].text
    of_all_queues = [f"/{action.subject}/{action.verb}" for action in ACTIONS if action.needs_all_queues]
    buttons = [path for path in of_all_queues if re.search(rf'href="[^"]*{path}\b', nodes)]
    assert buttons == [], "what would be refused is not shown"


def test_what_one_actor_has_read_is_shown_to_none_that_may_see_less(client: Client) -> None:
    rights = [Right.VIEW, Right.READ_FILES]
    of_all = client.tokens.create("all", rights).secret
    of_some = {name: client.tokens.create(name, rights, file_scopes=["other/"]).secret for name in ("ann", "bob")}
    with serving(client) as address, httpx.Client(base_url=address) as http:
        for path in (*(ADDRESSES[one] for one in ("/files/show", "/files/list", "/storage")), "/metrics/cluster"):
            for name, secret in of_some.items():
                assert http.get(path, headers=bearer(of_all)).status_code == 200, path
                refused = http.get(path, headers=bearer(secret))
                assert (refused.status_code, name in refused.text) == (403, True), (path, refused.text)


def test_an_actor_of_another_queue_can_do_no_action(stranger: httpx.Client, client: Client) -> None:
    def state() -> tuple[object, ...]:
        """What an action would change."""
        groups = client.queues, client.limits, client.nodes, client.schedules, client.users, client.bulk
        disks = [disk.state for disk in client.disks.list()]
        return client.tasks.list(limit=100), [list(group.list()) for group in groups], client.files.list("films"), disks

    before = state()
    given = {"duration": "1h", "queue": "video", "priority": "3", "limit": "5", "kind": "video", "count": "1"}
    given |= {"role": "viewer", "password": "another long password", "node": "", "name": "video"}
    created = {"name": "x", "queue": "video", "interval": "1h", "running": "1", "role": "admin"}
    for action in sorted(ACTIONS, key=lambda one: one.creates):
        address, values = (action.address(), created) if action.creates else (action.address(key_of(action)), given)
        answer = stranger.post(address, data=values)
        assert answer.status_code in ({403} if action.creates else {403, 404}), (action.id, answer.text)
        assert ("must not do enqueue: the queue video" in answer.text) == (action.id == "tasks.enqueue")
    assert state() == before
