"""Each page and each action × each role, and × an actor of another queue: as strict as the operations behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from peerd import Client, Right, Role
from peerd.config.settings import AccessSettings
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
OF_ANOTHER_QUEUE: Final = {
    "/tasks/{key:id}": 404,
    "/tasks/{key:id}/stack": 404,
    "/tasks/{key:id}/download/body": 404,
    "/tasks/{key:id}/download/result": 404,
    "/bulk/{key:id}": 404,
    "/queues/show": 403,
    "/schedules": 403,
    "/schedules/show": 403,
    "/storage": 403,
    "/files": 403,
    "/files/list": 403,
    "/files/show": 403,
    "/disks": 403,
    "/disks/{key:id}": 403,
    "/tasks/find": 303,
} | dict.fromkeys(FOR_ADMINS, 403)
"""What an actor of another queue gets; 200 from all other pages."""
KEYS: Final = {
    "queues": "video",
    "limits": "video",
    "nodes": NODE,
    "schedules": SCHEDULE,
    "users": "viewer",
    "files": FILE,
}


def key_of(action: PageAction) -> str:
    return "1" if action.subject.has_id else KEYS[action.subject]


@pytest.fixture
def stranger(client: Client) -> Iterator[httpx.Client]:
    """With a token of another queue, which may do there whatever an operator may."""
    secret = client.tokens.create("stranger", [Right.VIEW, Right.ENQUEUE, Right.OPERATE], queues=["other"]).secret
    with serving(client, AccessSettings()) as address, httpx.Client(base_url=address, headers=bearer(secret)) as http:
        yield http


@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_its_rights_permit(visit_as: Visit, role: Role) -> None:
    http = visit_as(role)
    token = token_of(http, "/account")
    for action in ACTIONS:
        is_permitted = action.right in RIGHTS_OF[role]
        form = http.get(action.address(key_of(action)))
        assert (form.status_code == 403) is not is_permitted, action.id
        # Of what does not exist, so that nothing is done to what the other actions need.
        missing = action.address("999999" if action.subject.has_id else "missing")
        done = http.post(missing, data={"csrf_token": token})
        assert (done.status_code == 403) is not is_permitted, (action.id, done.text)


@pytest.mark.parametrize("route", sorted(ADDRESSES.keys() - ASK_A_NODE))
def test_a_page_shows_nothing_of_other_queues(stranger: httpx.Client, route: str) -> None:
    answer = stranger.get(ADDRESSES[route])
    assert answer.status_code == OF_ANOTHER_QUEUE.get(route, 200), answer.text
    for text in VIDEO_TEXTS:
        assert text not in answer.text


def test_an_actor_of_another_queue_can_do_no_action(stranger: httpx.Client, client: Client) -> None:
    before = state_of(client)
    for action in ACTIONS:
        if not action.creates:
            answer = stranger.post(action.address(key_of(action)), data=values_of(action))
            assert answer.status_code in {403, 404}, (action.id, answer.text)
    created = {"name": "x", "queue": "video", "interval": "1h", "running": "1", "role": "admin"}
    for action in ACTIONS:
        if action.creates:
            answer = stranger.post(action.address(), data=created)
            assert answer.status_code == 403, (action.id, answer.text)
    assert state_of(client) == before


@pytest.mark.parametrize("action", [action for action in ACTIONS if action.needs_all_queues], ids=lambda one: one.id)
def test_a_button_that_would_be_refused_is_not_shown(stranger: httpx.Client, action: PageAction) -> None:
    shown = stranger.get(ADDRESSES["/nodes/show"]).text + stranger.get("/nodes").text
    assert not re.search(rf'href="[^"]*/{action.subject}/{action.verb}\b', shown)


def test_the_navigation_leads_to_no_page_that_is_refused(stranger: httpx.Client) -> None:
    links = parse(stranger.get("/account")).links
    assert {stranger.get(link).status_code for link in links if link.startswith("/")} == {200}


def values_of(action: PageAction) -> dict[str, str]:
    """What its form needs to be complete."""
    given = {"duration": "1h", "queue": "video", "priority": "3", "limit": "5", "kind": "video", "count": "1"}
    return given | {"role": "viewer", "password": "another long password", "node": "", "name": "video"}


def state_of(client: Client) -> tuple[object, ...]:
    """What an action would change."""
    return (
        client.tasks.list(limit=100),
        client.queues.list(),
        client.limits.list(),
        client.nodes.list(),
        client.schedules.list(),
        client.users.list(),
        client.bulk.list(),
        client.files.list("films"),
        [disk.state for disk in client.disks.list()],
    )
