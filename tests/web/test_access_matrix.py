"""Every route × every kind of caller: the routes are those of the app, so that a new one without a right fails here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from peerd import BulkRetry, Client, Right, Role, TaskFilter
from peerd.domain.access import RIGHTS_OF
from peerd.operate.wire.operations import wire_operations
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import api_tokens, nodes
from peerd.web import create_app
from peerd.web.routes.node_requests import OF_ALL_QUEUES
from tests.web.access_world import API, bearer, problem, serving

OPEN = {"/health/live", "/health/ready"}
LOGIN = ("POST", f"{API}/session")
ANY = {("GET", f"{API}/session"), ("DELETE", f"{API}/session"), ("PUT", f"{API}/session/password")}
"""Each actor may ask for itself; a password has a user that has logged in by it."""


class Wanted(NamedTuple):
    """A request to a route, the right that it needs, and what an actor of another queue gets."""

    right: Right
    foreign: int
    body: Any = None
    path: str | None = None


VIEW, ENQUEUE, OPERATE, READ_FILES, WRITE_FILES, ADMIN = Right
NODES = 200
"""Names of nodes are no secret of a queue."""
WANTED: dict[tuple[str, str], Wanted] = {
    ("GET", "/tasks"): Wanted(VIEW, 200),
    ("POST", "/tasks"): Wanted(ENQUEUE, 403, {"queue": "video"}),
    ("POST", "/tasks/batch"): Wanted(ENQUEUE, 403, {"tasks": [{"queue": "other"}, {"queue": "video"}]}),
    ("GET", "/tasks/{task_id}"): Wanted(VIEW, 404),
    ("PATCH", "/tasks/{task_id}"): Wanted(OPERATE, 404, {"priority": 3}),
    ("DELETE", "/tasks/{task_id}"): Wanted(OPERATE, 404, path="/tasks/2"),
    ("POST", "/tasks/{task_id}/retry"): Wanted(OPERATE, 404),
    ("POST", "/tasks/{task_id}/cancel"): Wanted(OPERATE, 404, {"reason": "x"}),
    ("POST", "/tasks/{task_id}/bury"): Wanted(OPERATE, 404),
    ("POST", "/tasks/{task_id}/kick"): Wanted(OPERATE, 404),
    ("POST", "/tasks/{task_id}/snooze"): Wanted(OPERATE, 404, {"duration": "1h"}),
    ("POST", "/tasks/{task_id}/move"): Wanted(OPERATE, 403, {"queue": "mail"}),
    ("GET", "/queues"): Wanted(VIEW, 200),
    ("POST", "/queues/{queue}/pause"): Wanted(OPERATE, 403),
    ("POST", "/queues/{queue}/resume"): Wanted(OPERATE, 403),
    ("POST", "/queues/{queue}/kick"): Wanted(OPERATE, 403),
    ("GET", "/limits"): Wanted(VIEW, 200),
    ("PUT", "/limits/{queue}"): Wanted(OPERATE, 403, {"running": 3}),
    ("DELETE", "/limits/{queue}"): Wanted(OPERATE, 403),
    ("GET", "/nodes"): Wanted(VIEW, NODES),
    ("GET", "/nodes/processes"): Wanted(VIEW, NODES),
    ("POST", "/nodes/{node}/drain"): Wanted(OPERATE, 403),
    ("POST", "/nodes/{node}/resume"): Wanted(OPERATE, 403),
    ("DELETE", "/nodes/{node}"): Wanted(OPERATE, 403),
    ("GET", "/schedules"): Wanted(VIEW, 403),
    ("GET", "/schedules/{schedule}"): Wanted(VIEW, 403),
    ("GET", "/schedules/{schedule}/runs"): Wanted(VIEW, 403),
    ("POST", "/schedules/{schedule}/run"): Wanted(OPERATE, 403),
    ("POST", "/schedules/{schedule}/enable"): Wanted(OPERATE, 403),
    ("POST", "/schedules/{schedule}/disable"): Wanted(OPERATE, 403),
    ("GET", "/users"): Wanted(ADMIN, 403),
    ("POST", "/users"): Wanted(ADMIN, 403, {"name": "bob", "role": "viewer"}),
    ("PATCH", "/users/{user}"): Wanted(ADMIN, 403, {"disabled": False}),
    ("PUT", "/users/{user}/password"): Wanted(ADMIN, 403, {"password": "another long password"}),
    ("DELETE", "/users/{user}"): Wanted(ADMIN, 403),
    ("GET", "/tokens"): Wanted(ADMIN, 403),
    ("POST", "/tokens"): Wanted(ADMIN, 403, {"name": "t", "rights": ["view"]}),
    ("DELETE", "/tokens/{token_id}"): Wanted(ADMIN, 403, path="/tokens/999"),
    ("GET", "/audit"): Wanted(ADMIN, 403),
    ("GET", "/events"): Wanted(VIEW, 200),
    ("GET", "/tasks/{task_id}/logs"): Wanted(VIEW, 404),
    ("GET", "/tasks/{task_id}/logs/stream"): Wanted(VIEW, 404),
    ("GET", "/tasks/{task_id}/stack"): Wanted(VIEW, 404),
    ("GET", "/nodes/{node}"): Wanted(VIEW, 404),
    ("GET", "/nodes/requests/{request_id}"): Wanted(VIEW, 403),
    ("POST", "/nodes/{node}/reload"): Wanted(OPERATE, 403),
    ("POST", "/nodes/{node}/scale"): Wanted(OPERATE, 403, {"kind": "video", "count": 2}),
    ("POST", "/schedules"): Wanted(OPERATE, 403, {"name": "x", "queue": "video", "interval": "1h"}),
    ("DELETE", "/schedules/{schedule}"): Wanted(OPERATE, 403),
    ("GET", "/bulk"): Wanted(VIEW, 200),
    ("POST", "/bulk"): Wanted(OPERATE, 403, {"action": {"type": "move_to_queue", "queue": "mail"}, "all": True}),
    ("GET", "/bulk/{bulk_id}"): Wanted(VIEW, 404),
    ("POST", "/bulk/{bulk_id}/pause"): Wanted(OPERATE, 404),
    ("POST", "/bulk/{bulk_id}/resume"): Wanted(OPERATE, 404),
    ("POST", "/bulk/{bulk_id}/cancel"): Wanted(OPERATE, 404),
    ("GET", "/statistics"): Wanted(VIEW, 200),
    ("GET", "/statistics/series"): Wanted(VIEW, 200),
    ("GET", "/statistics/depths"): Wanted(VIEW, 403),
    ("GET", "/overview"): Wanted(VIEW, 403),
    ("GET", "/alerts"): Wanted(VIEW, 200),
    ("GET", "/files/{bucket}/{key}"): Wanted(READ_FILES, 403),
    ("HEAD", "/files/{bucket}/{key}"): Wanted(READ_FILES, 403),
    ("PUT", "/files/{bucket}/{key}"): Wanted(WRITE_FILES, 403, {"any": "body"}),
    ("DELETE", "/files/{bucket}/{key}"): Wanted(WRITE_FILES, 403),
    ("GET", "/uploads/{bucket}/{key}"): Wanted(WRITE_FILES, 403),
    ("POST", "/uploads/{bucket}/{key}"): Wanted(WRITE_FILES, 403),
    ("GET", "/uploads/{upload_id}"): Wanted(WRITE_FILES, 403),
    ("PUT", "/uploads/{upload_id}"): Wanted(WRITE_FILES, 403, {"any": "body" * 10}, f"/uploads/{'0' * 32}?offset=0"),
    ("POST", "/uploads/{upload_id}"): Wanted(WRITE_FILES, 403, path=f"/uploads/{'0' * 32}?size=1&blake3={'0' * 64}"),
    ("DELETE", "/uploads/{upload_id}"): Wanted(WRITE_FILES, 403),
    ("GET", "/metrics"): Wanted(VIEW, 403),
    ("GET", "/metrics/cluster"): Wanted(VIEW, 403),
}
TASK, OTHER = {"task_id": 1}, {"task_id": 2}
VIDEO, NODE, USER, SCHEDULE, BULK = {"name": "video"}, {"name": "n"}, {"name": "viewer"}, {"name": "s"}, {"bulk_id": 1}
FILE, DISK = {"path": "films/a"}, {"number": 1}
MOVE_ALL = {"action": {"type": "move_to_queue", "queue": "mail"}, "all_tasks": True}
OPERATIONS: dict[str, Wanted] = {
    "now": Wanted(VIEW, 200),
    "examine": Wanted(VIEW, 403),
    "enqueue": Wanted(ENQUEUE, 403, {"what": "video"}),
    "enqueue_many": Wanted(ENQUEUE, 403, {"what": ["other", "video"]}),
    "enqueue_batch": Wanted(ENQUEUE, 403, {"tasks": [["other", {}], ["video", {}]]}),
    "tasks.list": Wanted(VIEW, 200),
    "tasks.page": Wanted(VIEW, 200),
    "tasks.recent": Wanted(VIEW, 200, {"ids": [1]}),
    "tasks.get": Wanted(VIEW, 404, TASK),
    "tasks.find": Wanted(VIEW, 200, TASK),
    "tasks.attempts": Wanted(VIEW, 404, TASK),
    "tasks.logs": Wanted(VIEW, 404, TASK),
    "tasks.last_logs": Wanted(VIEW, 200, TASK),
    "tasks.counts": Wanted(VIEW, 200),
    "tasks.stack": Wanted(VIEW, 404, TASK),
    "tasks.retry": Wanted(OPERATE, 404, TASK),
    "tasks.cancel": Wanted(OPERATE, 404, TASK),
    "tasks.bury": Wanted(OPERATE, 404, TASK),
    "tasks.kick": Wanted(OPERATE, 404, TASK),
    "tasks.delete": Wanted(OPERATE, 404, OTHER),
    "tasks.move": Wanted(OPERATE, 404, TASK | {"node": None}),
    "tasks.move_to_queue": Wanted(OPERATE, 403, TASK | {"queue": "mail"}),
    "tasks.snooze": Wanted(OPERATE, 404, TASK | {"duration": "1h"}),
    "tasks.change": Wanted(OPERATE, 404, TASK | {"priority": 3}),
    "bulk.preview": Wanted(VIEW, 403, MOVE_ALL),
    "bulk.create": Wanted(OPERATE, 403, MOVE_ALL),
    "bulk.list": Wanted(VIEW, 200),
    "bulk.get": Wanted(VIEW, 404, BULK),
    "bulk.pause": Wanted(OPERATE, 404, BULK),
    "bulk.resume": Wanted(OPERATE, 404, BULK),
    "bulk.cancel": Wanted(OPERATE, 404, BULK),
    "bulk.carry_out": Wanted(OPERATE, 404, BULK),
    "bulk.has_manager": Wanted(VIEW, NODES),
    "queues.list": Wanted(VIEW, 200),
    "queues.is_known": Wanted(VIEW, 403, VIDEO),
    "queues.pause": Wanted(OPERATE, 403, VIDEO),
    "queues.resume": Wanted(OPERATE, 403, VIDEO),
    "queues.kick": Wanted(OPERATE, 403, VIDEO),
    "limits.list": Wanted(VIEW, 200),
    "limits.set": Wanted(OPERATE, 403, {"queue": "video", "running": 3}),
    "limits.remove": Wanted(OPERATE, 403, {"queue": "video"}),
    "nodes.list": Wanted(VIEW, NODES),
    "nodes.get": Wanted(VIEW, 404, NODE),
    "nodes.processes": Wanted(VIEW, NODES),
    "nodes.loads": Wanted(VIEW, NODES),
    "nodes.state": Wanted(VIEW, 403, NODE),
    "nodes.get_request": Wanted(VIEW, 403, {"request_id": 1}),
    "nodes.drain": Wanted(OPERATE, 403, NODE),
    "nodes.undrain": Wanted(OPERATE, 403, NODE),
    "nodes.forget": Wanted(OPERATE, 403, NODE),
    "nodes.reload": Wanted(OPERATE, 403, NODE),
    "nodes.scale": Wanted(OPERATE, 403, NODE | {"kind": "video", "count": 2}),
    "nodes.request_reload": Wanted(OPERATE, 403, NODE),
    "nodes.request_scale": Wanted(OPERATE, 403, NODE | {"kind": "video", "count": 2}),
    "schedules.list": Wanted(VIEW, 403),
    "schedules.get": Wanted(VIEW, 403, SCHEDULE),
    "schedules.runs": Wanted(VIEW, 403),
    "schedules.get_run": Wanted(VIEW, 403, {"run_id": 1}),
    "schedules.get_runs": Wanted(VIEW, 403, {"run_id": 1}),
    "schedules.run": Wanted(OPERATE, 403, SCHEDULE),
    "schedules.create": Wanted(OPERATE, 403, {"name": "y", "queue": "video", "interval": "1h"}),
    "schedules.delete": Wanted(OPERATE, 403, {"name": "y"}),
    "schedules.enable": Wanted(OPERATE, 403, SCHEDULE),
    "schedules.disable": Wanted(OPERATE, 403, SCHEDULE),
    "statistics.summary": Wanted(VIEW, 200),
    "statistics.series": Wanted(VIEW, 200),
    "statistics.depths": Wanted(VIEW, 403),
    "statistics.overview": Wanted(VIEW, 403),
    "alerts.list": Wanted(VIEW, 200),
    "files.list": Wanted(READ_FILES, 403, {"bucket": "films"}),
    "files.stat": Wanted(READ_FILES, 403, FILE),
    "files.kept": Wanted(READ_FILES, 403, {"bucket": "films"}),
    "files.overview": Wanted(VIEW, 403),
    "files.are_used": Wanted(VIEW, 403),
    "files.move": Wanted(WRITE_FILES, 403, {"source": "films/a", "target": "films/b"}),
    "files.remove": Wanted(WRITE_FILES, 403, FILE),
    "files.remove_below": Wanted(WRITE_FILES, 403, {"bucket": "films", "prefix": "2026/"}),
    "files.usage": Wanted(VIEW, 403),
    "files.at_risk": Wanted(VIEW, 403),
    "files.verify": Wanted(OPERATE, 403, FILE),
    "files.fsck": Wanted(OPERATE, 403),
    "files.uploads.list": Wanted(READ_FILES, 403, {"bucket": "films"}),
    "files.uploads.abort": Wanted(WRITE_FILES, 403, {"upload_id": "0" * 32}),
    "files.keys.list": Wanted(ADMIN, 403),
    "files.keys.create": Wanted(ADMIN, 403, {"name": "backup", "rights": "read"}),
    "files.keys.revoke": Wanted(ADMIN, 403, {"key_id": "PEERDX"}),
    "buckets.list": Wanted(VIEW, 403),
    "buckets.create": Wanted(OPERATE, 403, {"name": "films"}),
    "buckets.change": Wanted(OPERATE, 403, {"name": "films", "quota": 5}),
    "buckets.delete": Wanted(OPERATE, 403, {"name": "films"}),
    "file_classes.list": Wanted(VIEW, 403),
    "file_classes.set": Wanted(OPERATE, 403, {"name": "safe", "durable": 2}),
    "file_classes.remove": Wanted(OPERATE, 403, {"name": "safe"}),
    "disks.list": Wanted(VIEW, 403),
    "disks.balance": Wanted(VIEW, 403),
    "disks.rebalance": Wanted(OPERATE, 403),
    "disks.stop_rebalance": Wanted(OPERATE, 403),
    "disks.register": Wanted(OPERATE, 403, {"identity": "ab" * 16, "path": "/srv/a", "node": "n"}),
    "disks.register_object_store": Wanted(
        OPERATE, 403, {"identity": "ab" * 16, "place": "s3+https://s3.example/copies"}
    ),
    "disks.activate": Wanted(OPERATE, 403, DISK),
    "disks.readonly": Wanted(OPERATE, 403, DISK),
    "disks.drain": Wanted(OPERATE, 403, DISK),
    "disks.lost": Wanted(OPERATE, 403, DISK),
    "disks.remove": Wanted(OPERATE, 403, DISK),
    "users.list": Wanted(ADMIN, 403),
    "users.add": Wanted(ADMIN, 403, {"name": "eve", "role": "viewer"}),
    "users.change": Wanted(ADMIN, 403, USER | {"disabled": False}),
    "users.set_password": Wanted(ADMIN, 403, USER | {"password": "another long password"}),
    "users.remove": Wanted(ADMIN, 403, {"name": "eve"}),
    "tokens.list": Wanted(ADMIN, 403),
    "tokens.create": Wanted(ADMIN, 403, {"name": "t", "rights": ["view"]}),
    "tokens.revoke": Wanted(ADMIN, 403, {"token_id": 999}),
    "audit.page": Wanted(ADMIN, 403),
    "audit.newer": Wanted(ADMIN, 403),
}
WANTED |= {
    ("POST", f"/operations/{name}"): wanted._replace(body=wanted.body or {}) for name, wanted in OPERATIONS.items()
}
ENDLESS = {f"{API}/events", f"{API}/tasks/{{task_id}}/logs/stream"}
"""They answer for as long as there is something to tell."""
NAMES = {
    "task_id": "1",
    "queue": "video",
    "node": "n",
    "schedule": "s",
    "user": "viewer",
    "bulk_id": "1",
    "request_id": "1",
    "bucket": "films",
    "key": "a",
    "upload_id": "0" * 32,
}


def routes() -> list[tuple[str, str]]:
    """All routes of the app: they are in its document, since none is left out of it."""
    app = create_app()
    for route in app.routes:
        inner: Any = getattr(route, "original_router", None)
        assert all(one.include_in_schema for one in (inner.routes if inner is not None else ()))
    paths = app.openapi()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


def wanted_of(method: str, path: str) -> Wanted:
    assert (method, path.removeprefix(API)) in WANTED, f"{method} {path}: which right does it need?"
    return WANTED[method, path.removeprefix(API)]


def send(http: httpx.Client, method: str, path: str, **headers: str) -> httpx.Response:
    wanted = wanted_of(method, path)
    filled = path if wanted.path is None else API + wanted.path
    for name, value in NAMES.items():
        filled = filled.replace(f"{{{name}}}", value)
    if path not in ENDLESS:
        return http.request(method, filled, json=wanted.body, headers=headers)
    with http.stream(method, filled, headers=headers) as answer:
        return httpx.Response(
            answer.status_code, headers=answer.headers, content=b"" if answer.is_success else answer.read()
        )


def expire(client: Client, prefix: str) -> None:
    is_mine = api_tokens.c.prefix == prefix
    client.database.run(
        lambda connection: connection.execute(
            api_tokens.update().where(is_mine).values(expires_at=seconds_from_now(-1.0))
        )
    )


PROTECTED = [route for route in routes() if route[1] not in OPEN and route != LOGIN and route not in ANY]


@pytest.fixture
def http(users: Client) -> Iterator[httpx.Client]:
    users.bulk.create(BulkRetry(), TaskFilter(queue="video"))  # bulk action 1, of all queues
    with serving(users) as address, httpx.Client(base_url=address) as http:
        yield http


def test_every_route_is_of_the_table_and_the_table_has_no_other() -> None:
    assert {(method, path.removeprefix(API)) for method, path in PROTECTED} == {*WANTED}


def test_what_the_client_executes_needs_the_rights_of_the_table() -> None:
    assert {*OPERATIONS} == {*wire_operations()}
    for name, found in wire_operations().items():
        declared, wanted = found.operation.needs, OPERATIONS[name]
        assert declared in (None, wanted.right), name
        assert found.operation.in_queues or wanted.foreign == 403, name


def test_the_live_state_of_a_node_is_not_shown_to_an_actor_of_some_queues(http: httpx.Client, users: Client) -> None:
    users.database.run(lambda connection: connection.execute(nodes.insert().values(name="n")))
    all_queues = bearer(users.tokens.create("all", [VIEW]).secret)
    some = bearer(users.tokens.create("some", [VIEW, OPERATE], queues=["video"]).secret)
    asked = http.get(f"{API}/nodes/n", headers=all_queues).json()
    assert asked["live"] is None
    assert asked["problem"] not in {None, OF_ALL_QUEUES}
    shown = http.get(f"{API}/nodes/n", headers=some).json()
    assert (shown["name"], shown["live"], shown["problem"]) == ("n", None, OF_ALL_QUEUES)
    assert users.audit.page(actor="some").items == [], "nothing was asked of the node"
    assert [node["name"] for node in http.get(f"{API}/nodes", headers=some).json()] == ["n"]


def test_nothing_is_served_without_a_valid_credential(http: httpx.Client, users: Client) -> None:
    revoked = users.tokens.create("revoked", list(Right))
    users.tokens.revoke(revoked.token.id)
    expired = users.tokens.create("expired", list(Right), expires_in="1h")
    expire(users, expired.token.prefix)
    secret = users.tokens.create("good", list(Right)).secret
    invalid = (
        bearer(revoked.secret),
        bearer(expired.secret),
        bearer(secret[:-1] + ("A" if secret[-1] != "A" else "B")),
        bearer("peerd_"),
        {"authorization": "Bearer"},
        {"authorization": secret},
        {"authorization": f"Basic {secret}"},
        {"cookie": "peerd_session="},
        {"cookie": f"peerd_session={secret}"},
    )
    # No route asks for a credential by itself: each is tried without one and with one of these, in turn.
    for (method, path), one in zip([*PROTECTED, *ANY], itertools.cycle(invalid), strict=False):
        for headers in ({}, one):
            answer = http.request(method, path.replace("{task_id}", "1"), headers=headers)
            assert problem(answer) == (401, "Unauthorized"), (method, path, headers)
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in (f"{API}/openapi.json", f"{API}/nope", "/health/livex", "/health/live/", "/metrics"):
        assert http.get(path).status_code == 401, path
    for path in ("/", "/tasks/1", "/tasks/export.csv", "/nope", "/xhealth/live"):
        assert http.get(path).headers["location"].startswith("/login?next="), path
        assert http.post(path).status_code == 401, path


def test_a_route_needs_its_right_and_its_queue(http: httpx.Client, users: Client) -> None:
    foreign = bearer(users.tokens.create("foreign", [VIEW, ENQUEUE, OPERATE], queues=["other"]).secret)
    exact = {right: bearer(users.tokens.create("exact", [right]).secret) for right in Right}
    narrow = {
        # what may operate may view, so that it is no narrower
        right: bearer(users.tokens.create("narrow", {*Right} - {right, *([OPERATE] if right is VIEW else [])}).secret)
        for right in Right
    }
    for method, path in PROTECTED:
        needed = wanted_of(method, path)
        answers = [send(http, method, path, **credential) for credential in (narrow[needed.right], foreign)]
        assert problem(answers[0]) == (403, "NotPermitted"), (method, path)
        assert answers[1].status_code == needed.foreign, (method, path, answers[1].text)
        assert "video" not in answers[1].text or needed.foreign == 403
        assert send(http, method, path, **exact[needed.right]).status_code not in {401, 403}, (method, path)


def test_a_role_has_its_rights_and_no_others(http: httpx.Client, users: Client) -> None:
    last = ("DELETE", f"{API}/users/{{user}}")  # the others need the user
    for role in Role:
        token = bearer(users.tokens.create(role, RIGHTS_OF[role]).secret)
        for method, path in sorted(PROTECTED, key=lambda route: route == last):
            is_refused = send(http, method, path, **token).status_code == 403
            assert is_refused is (wanted_of(method, path).right not in RIGHTS_OF[role]), (role, method, path)


def test_what_is_open_answers_anything_and_shows_nothing(http: httpx.Client) -> None:
    for path in OPEN:
        answer = http.get(path, headers={"host": "evil.example"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_token_of_a_queue_sees_its_queue_alone(http: httpx.Client, users: Client) -> None:
    users.limits.set("mail", running=1)
    users.limits.set("video", running=1)
    mine = bearer(users.tokens.create("mail", [VIEW, OPERATE], queues=["mail"]).secret)
    listed = http.get(f"{API}/tasks", headers=mine).json()["items"]
    assert {task["queue"] for task in listed} == {"mail"}
    assert http.get(f"{API}/tasks", params={"queue": "video"}, headers=mine).json()["items"] == []
    assert [queue["name"] for queue in http.get(f"{API}/queues", headers=mine).json()] == ["mail"]
    assert [limit["queue"] for limit in http.get(f"{API}/limits", headers=mine).json()] == ["mail"]
    [task_id, *_] = [task["id"] for task in listed if task["status"] == "scheduled"]
    assert http.post(f"{API}/tasks/{task_id}/kick", headers=mine).status_code == 200
    moved = http.post(f"{API}/tasks/{task_id}/move", json={"queue": "video"}, headers=mine)
    assert problem(moved) == (403, "NotPermitted")
    both = bearer(users.tokens.create("both", [VIEW], queues=["mail", "video"]).secret)
    page = http.get(f"{API}/tasks", params={"limit": 3}, headers=both).json()
    rest = http.get(f"{API}/tasks", params={"limit": 50, "after": page["next"]}, headers=both).json()
    assert len(page["items"] + rest["items"]) == 8
    other = bearer(users.tokens.create("other", [VIEW], queues=["mail"]).secret)
    assert http.get(f"{API}/tasks", params={"after": page["next"]}, headers=other).status_code == 422
