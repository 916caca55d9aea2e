"""Which right each operation and each route needs: one that is in no table fails here.

Operations are carried out by a client that acts as an actor, without HTTP; of their routes, which are all made alike,
one for each right is asked. The other routes are all asked.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import httpx
import pytest

from peerd import Actor, BulkRetry, Client, PeerdError, Right, TaskFilter
from peerd.operate.wire.operations import wire_operations
from peerd.store.schema.tables import api_tokens, nodes
from peerd.store.schema.types import seconds_from_now
from peerd.web import create_app
from peerd.web.problems import STATUS_OF
from peerd.web.routes.combined import OF_ALL_QUEUES
from tests.web.access_world import API, bearer, problem, serving

OPEN = {"/health/live", "/health/ready"}
LOGIN = ("POST", f"{API}/session")
ANY = {("GET", f"{API}/session"), ("DELETE", f"{API}/session"), ("PUT", f"{API}/session/password")}
"""Each actor may ask for itself; a password has a user that has logged in by it."""
VIEW, ENQUEUE, OPERATE, READ_FILES, WRITE_FILES, ADMIN = Right
OPERATIONS: dict[tuple[Right, int], str] = {
    (VIEW, 200): """
        now tasks.list tasks.page tasks.recent tasks.find tasks.last_logs tasks.search_logs tasks.counts
        queues.prospects bulk.list
        bulk.has_manager queues.list limits.list nodes.list nodes.processes nodes.loads nodes.lost_tasks
        statistics.summary
        statistics.series statistics.errors statistics.counts alerts.list""",
    (VIEW, 403): """
        examine bulk.preview queues.is_known queues.why nodes.state nodes.get_request schedules.list schedules.get
        schedules.runs schedules.get_run schedules.get_runs statistics.depths statistics.overview files.overview
        files.are_used files.usage files.at_risk buckets.list file_classes.list disks.list disks.balance
        disks.last_copies""",
    (VIEW, 404): "tasks.get tasks.attempts tasks.logs tasks.stack bulk.get nodes.get",
    (ENQUEUE, 403): "enqueue enqueue_many enqueue_batch queues.misfit",
    (OPERATE, 403): """
        tasks.move_to_queue bulk.create queues.pause queues.resume queues.kick limits.set limits.remove
        nodes.drain nodes.undrain nodes.forget nodes.reload nodes.scale nodes.request_reload nodes.request_scale
        schedules.run schedules.create schedules.delete schedules.enable schedules.disable files.verify
        files.fsck buckets.create buckets.change buckets.delete file_classes.set file_classes.remove
        disks.rebalance disks.stop_rebalance disks.register disks.register_object_store disks.activate
        disks.readonly disks.drain disks.lost disks.remove""",
    (OPERATE, 404): """
        tasks.retry tasks.cancel tasks.bury tasks.kick tasks.delete tasks.move tasks.snooze tasks.change
        bulk.pause bulk.resume bulk.cancel bulk.carry_out""",
    (READ_FILES, 403): "files.list files.stat files.kept files.uploads.list",
    (WRITE_FILES, 403): "files.move files.remove files.remove_below files.uploads.abort",
    (ADMIN, 403): """
        files.keys.list files.keys.create files.keys.revoke users.list users.add users.change users.set_password
        users.remove tokens.list tokens.create tokens.revoke audit.page audit.newer""",
}
"""By the right that each needs, and what an actor of another queue gets. Names of nodes are no secret of a queue."""
TASK, VIDEO, NODE, USER, SCHEDULE = {"task_id": 1}, {"name": "video"}, {"name": "n"}, {"name": "viewer"}, {"name": "s"}
BULK, FILE, BUCKET, DISK = {"bulk_id": 1}, {"path": "films/a"}, {"bucket": "films"}, {"number": 1}
SCALE = NODE | {"kind": "video", "count": 2}
MOVE_ALL = {"action": {"type": "move_to_queue", "queue": "mail"}, "all_tasks": True}
# fmt: off
ARGUMENTS: dict[str, Any] = {
    "enqueue": {"what": "video"}, "enqueue_many": {"what": ["other", "video"]},
    "enqueue_batch": {"tasks": [["other", {}], ["video", {}]]}, "tasks": TASK, "tasks.recent": {"ids": [1]},
    "tasks.search_logs": {"text": "e"}, "tasks.delete": {"task_id": 2}, "tasks.move": TASK | {"node": None},
    "tasks.move_to_queue": TASK | {"queue": "mail"}, "tasks.snooze": TASK | {"duration": "1h"},
    "tasks.change": TASK | {"priority": 3}, "bulk": BULK, "bulk.preview": MOVE_ALL, "bulk.create": MOVE_ALL,
    "queues": VIDEO, "limits.set": {"queue": "video", "running": 3}, "limits.remove": {"queue": "video"}, "nodes": NODE,
    "queues.misfit": VIDEO | {"handler": "x"},
    "nodes.get_request": {"request_id": 1}, "nodes.scale": SCALE,
    "nodes.request_scale": SCALE, "schedules": SCHEDULE, "schedules.runs": {},
    "schedules.get_run": {"run_id": 1}, "schedules.get_runs": {"run_id": 1},
    "schedules.create": {"name": "y", "queue": "video", "interval": "1h"}, "schedules.delete": {"name": "y"},
    "files": FILE, "files.list": BUCKET, "files.kept": BUCKET, "files.move": {"source": "films/a", "target": "films/b"},
    "files.remove_below": BUCKET | {"prefix": "2026/"}, "files.uploads.list": BUCKET,
    "files.uploads.abort": {"upload_id": "0" * 32}, "files.keys.create": {"name": "backup", "rights": "read"},
    "files.keys.revoke": {"key_id": "PEERDX"}, "buckets": {"name": "films"},
    "buckets.change": {"name": "films", "quota": 5}, "file_classes.set": {"name": "safe", "durable": 2},
    "file_classes.remove": {"name": "safe"}, "disks": DISK,
    "disks.register": {"identity": "ab" * 16, "path": "/srv/a", "node": "n"},
    "disks.register_object_store": {"identity": "ab" * 16, "place": "s3+https://s3.example/copies"},
    "users.add": {"name": "eve", "role": "viewer"}, "users.change": USER | {"disabled": False},
    "users.set_password": USER | {"password": "another long password"}, "users.remove": {"name": "eve"},
    "tokens.create": {"name": "t", "rights": ["view"]}, "tokens.revoke": {"token_id": 999},
}
# fmt: on
"""Of an operation, or of those of a group that have others' names for their parameters."""
ROUTES: dict[tuple[Right, int], str] = {
    (VIEW, 200): """
        GET /tasks, GET /queues, GET /limits, GET /nodes, GET /nodes/processes, GET /events, GET /bulk,
        GET /statistics, GET /statistics/series, GET /errors, GET /logs, GET /alerts""",
    (VIEW, 403): """
        GET /schedules, GET /schedules/{schedule}, GET /schedules/{schedule}/runs,
        GET /nodes/requests/{request_id}, GET /queues/{queue}/why, GET /statistics/depths, GET /overview, GET /metrics,
        GET /metrics/cluster""",
    (VIEW, 404): """
        GET /tasks/{task_id}, GET /tasks/{task_id}/logs, GET /tasks/{task_id}/logs/stream,
        GET /tasks/{task_id}/stack, GET /nodes/{node}, GET /bulk/{bulk_id}""",
    (ENQUEUE, 403): "POST /tasks, POST /tasks/batch",
    (OPERATE, 403): """
        POST /tasks/{task_id}/move, POST /queues/{queue}/pause, POST /queues/{queue}/resume,
        POST /queues/{queue}/kick, PUT /limits/{queue}, DELETE /limits/{queue}, POST /nodes/{node}/drain,
        POST /nodes/{node}/resume, DELETE /nodes/{node}, POST /schedules/{schedule}/run,
        POST /schedules/{schedule}/enable, POST /schedules/{schedule}/disable, POST /nodes/{node}/reload,
        POST /nodes/{node}/scale, POST /schedules, DELETE /schedules/{schedule}, POST /bulk""",
    (OPERATE, 404): """
        PATCH /tasks/{task_id}, POST /tasks/{task_id}/retry,
        POST /tasks/{task_id}/cancel, POST /tasks/{task_id}/bury, POST /tasks/{task_id}/kick,
        POST /tasks/{task_id}/snooze, POST /bulk/{bulk_id}/pause, POST /bulk/{bulk_id}/resume,
        POST /bulk/{bulk_id}/cancel, DELETE /tasks/{task_id}""",
    (READ_FILES, 403): "GET /files/{bucket}/{key}, HEAD /files/{bucket}/{key}",
    (WRITE_FILES, 403): """
        PUT /files/{bucket}/{key}, DELETE /files/{bucket}/{key}, GET /uploads/{bucket}/{key},
        POST /uploads/{bucket}/{key}, GET /uploads/{upload_id}, PUT /uploads/{upload_id},
        POST /uploads/{upload_id}, DELETE /uploads/{upload_id}""",
    (ADMIN, 403): """
        GET /users, POST /users, PATCH /users/{user}, PUT /users/{user}/password, DELETE /users/{user},
        GET /tokens, POST /tokens, DELETE /tokens/{token_id}, GET /audit""",
}
"""As `OPERATIONS`."""
# fmt: off
BODIES: dict[str, Any] = {
    "POST /tasks": {"queue": "video"}, "POST /tasks/batch": {"tasks": [{"queue": "other"}, {"queue": "video"}]},
    "PATCH /tasks/{task_id}": {"priority": 3}, "POST /tasks/{task_id}/cancel": {"reason": "x"},
    "POST /tasks/{task_id}/snooze": {"duration": "1h"}, "POST /tasks/{task_id}/move": {"queue": "mail"},
    "PUT /limits/{queue}": {"running": 3}, "POST /users": {"name": "bob", "role": "viewer"},
    "PATCH /users/{user}": {"disabled": False}, "PUT /users/{user}/password": {"password": "another long password"},
    "POST /tokens": {"name": "t", "rights": ["view"]}, "POST /nodes/{node}/scale": {"kind": "video", "count": 2},
    "POST /schedules": {"name": "x", "queue": "video", "interval": "1h"},
    "POST /bulk": {"action": {"type": "move_to_queue", "queue": "mail"}, "all": True},
    "PUT /files/{bucket}/{key}": {"any": "body"}, "PUT /uploads/{upload_id}": {"any": "body" * 10},
}
# fmt: on
QUERIES = {
    "GET /logs": "?text=e",
    "PUT /uploads/{upload_id}": "?offset=0",
    "POST /uploads/{upload_id}": f"?size=1&blake3={'0' * 64}",
}
ENDLESS = {"GET /events", "GET /tasks/{task_id}/logs/stream"}
"""They answer for as long as there is something to tell."""
NAMES = {"task_id": 1, "queue": "video", "node": "n", "schedule": "s", "user": "viewer", "bulk_id": 1, "token_id": 999}
NAMES |= {"request_id": 1, "bucket": "films", "key": "a", "upload_id": "0" * 32}


def wanted(table: Mapping[tuple[Right, int], str], separator: str | None) -> dict[str, tuple[Right, int]]:
    """The right that each needs, and what an actor of another queue gets."""
    names = {key: " ".join(text.split()).split(separator) for key, text in table.items()}
    return {name: key for key, of_key in names.items() for name in of_key}


OF_OPERATIONS, OF_ROUTES = wanted(OPERATIONS, None), wanted(ROUTES, ", ")


def routes() -> set[tuple[str, str]]:
    """All routes of the app: they are in its document, since none is left out of it."""
    app = create_app()
    routers: list[Any] = [one for one in (getattr(route, "original_router", None) for route in app.routes) if one]
    assert all(route.include_in_schema for router in routers for route in router.routes)
    return {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}


def arguments_of(name: str) -> dict[str, Any]:
    """The arguments of an operation in JSON."""
    given: dict[str, Any] = ARGUMENTS.get(name, ARGUMENTS.get(name.partition(".")[0], {}))
    is_taken = {*given} <= {*wire_operations()[name].arguments.names()}
    return given if is_taken or name in ARGUMENTS else {}


def outcome(client: Client, name: str, actor: Actor) -> tuple[int, str]:
    """The status of an operation that an actor does, and the text of its refusal."""
    args, kwargs = wire_operations()[name].decode_arguments(json.dumps(arguments_of(name)).encode())
    try:
        attrgetter(name)(client.acting_as(actor))(*args, **kwargs)
    except PeerdError as error:
        return next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), str(error)
    return 200, ""


def send(http: httpx.Client, route: str, headers: Mapping[str, str]) -> httpx.Response:
    """Ask a route; the answer of an endless one has no text."""
    method, path = f"{route}{QUERIES.get(route, '')}".split(" ", 1)
    address = API * (not path.startswith("/metrics")) + path.format_map(NAMES)
    of_operation = path.removeprefix("/operations/")
    body = BODIES.get(route) if of_operation == path else arguments_of(of_operation)
    if route not in ENDLESS:
        return http.request(method, address, json=body, headers=headers)
    with http.stream(method, address, headers=headers) as answer:
        text = b"" if answer.is_success else answer.read()
        return httpx.Response(answer.status_code, headers=answer.headers, content=text)


@pytest.fixture
def client(users: Client) -> Client:
    users.bulk.create(BulkRetry(), TaskFilter(queue="video"))  # bulk action 1, of all queues
    return users


@pytest.fixture
def http(client: Client) -> Iterator[httpx.Client]:
    with serving(client) as address, httpx.Client(base_url=address) as http:
        yield http


def test_every_operation_and_every_route_is_of_a_table_and_the_tables_have_no_other() -> None:
    assert OF_OPERATIONS.keys() == wire_operations().keys()
    of_operations = {("POST", f"{API}/operations/{name}") for name in OF_OPERATIONS}
    shown = {tuple(route.split(" ")) for route in OF_ROUTES}
    of_api = {(method, path if path.startswith("/metrics") else API + path) for method, path in shown}
    assert {route for route in routes() if route[1] not in OPEN} == of_api | of_operations | ANY | {LOGIN}
    for name, found in wire_operations().items():
        right, foreign = OF_OPERATIONS[name]
        assert found.operation.needs in (None, right), name
        assert found.operation.in_queues or foreign == 403, name


WITHOUT = {right: frozenset(Right) - {right, *([OPERATE] if right is VIEW else [])} for right in Right}
"""All rights but one. What may operate may view, so that it is no narrower."""


def test_an_operation_needs_its_right_and_its_queue(client: Client) -> None:
    foreign = Actor(name="foreign", rights=frozenset({VIEW, ENQUEUE, OPERATE}), queues=frozenset({"other"}))
    wrong = []
    for name, (right, of_foreign) in OF_OPERATIONS.items():
        narrow = outcome(client, name, Actor(name="narrow", rights=WITHOUT[right]))
        of_others = outcome(client, name, foreign)
        allowed = outcome(client, name, Actor(name="exact", rights=frozenset({right})))
        told = "video" in of_others[1] and of_foreign != 403
        if (narrow[0], of_others[0], told) != (403, of_foreign, False) or allowed[0] in {401, 403}:
            wrong.append((name, narrow, of_others, allowed))
    assert wrong == []


def test_a_route_needs_its_right_and_its_queue(http: httpx.Client, client: Client) -> None:
    foreign = bearer(client.tokens.create("foreign", [VIEW, ENQUEUE, OPERATE], queues=["other"]).secret)
    exact = {right: bearer(client.tokens.create("exact", [right]).secret) for right in Right}
    narrow = {right: bearer(client.tokens.create("narrow", WITHOUT[right]).secret) for right in Right}
    of_operations = {f"POST /operations/{next(iter(names.split()))}": key for key, names in OPERATIONS.items()}
    for route, (right, of_foreign) in {**OF_ROUTES, **of_operations}.items():
        refused, of_others, allowed = (send(http, route, headers) for headers in (narrow[right], foreign, exact[right]))
        assert problem(refused) == (403, "NotPermitted"), route
        assert of_others.status_code == of_foreign, (route, of_others.text)
        assert "video" not in of_others.text or of_foreign == 403, route
        assert allowed.status_code not in {401, 403}, route


def test_nothing_is_served_without_a_valid_credential(http: httpx.Client, client: Client) -> None:
    revoked = client.tokens.create("revoked", list(Right))
    client.tokens.revoke(revoked.id)
    expired = client.tokens.create("expired", list(Right), expires_in="1h")
    past = api_tokens.update().where(api_tokens.c.prefix == expired.prefix)
    client.database.run(lambda connection: connection.execute(past.values(expires_at=seconds_from_now(-1.0))).close())
    secret = client.tokens.create("good", list(Right)).secret
    invalid: tuple[dict[str, str], ...] = (
        {},
        bearer(revoked.secret),
        bearer(expired.secret),
        bearer(secret[:-1] + ("A" if secret[-1] != "A" else "B")),
        {"authorization": secret},
        {"authorization": f"Basic {secret}"},
        {"cookie": f"peerd_session={secret}"},
    )
    # No route asks for a credential by itself: each is tried with one of these, in turn.
    protected = sorted(route for route in routes() if route[1] not in OPEN and route != LOGIN)
    for (method, path), headers in zip(protected, itertools.cycle(invalid), strict=False):
        answer = http.request(method, path.replace("{task_id}", "1"), headers=headers)
        assert problem(answer) == (401, "Unauthorized"), (method, path, headers)
        assert answer.headers["www-authenticate"] == "Bearer"
    for path in (f"{API}/openapi.json", f"{API}/nope", "/health/livex", "/metrics"):
        assert http.get(path).status_code == 401, path
    for path in ("/", "/tasks/export.csv", "/nope"):
        assert http.get(path).headers["location"].startswith("/login?next="), path
        assert http.post(path).status_code == 401, path
    for path in OPEN:
        answer = http.get(path, headers={"host": "evil.example"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_an_actor_of_some_queues_sees_them_and_no_live_node(http: httpx.Client, client: Client) -> None:
    for queue in ("mail", "video"):
        client.limits.set(queue, running=1)
    client.database.run(lambda connection: connection.execute(nodes.insert().values(name="n")))
    mine = bearer(client.tokens.create("mine", [VIEW, OPERATE], queues=["mail"]).secret)

    def get(path: str, headers: Mapping[str, str] = mine) -> Any:
        return http.get(f"{API}/{path}", headers=headers).json()

    listed = get("tasks")["items"]
    assert {task["queue"] for task in listed} == {"mail"}
    assert get("tasks?queue=video")["items"] == []
    assert [queue["name"] for queue in get("queues")] == [limit["queue"] for limit in get("limits")] == ["mail"]
    [task_id, *_] = [task["id"] for task in listed if task["status"] == "scheduled"]
    assert http.post(f"{API}/tasks/{task_id}/kick", headers=mine).status_code == 200
    moved = http.post(f"{API}/tasks/{task_id}/move", json={"queue": "video"}, headers=mine)
    assert problem(moved) == (403, "NotPermitted")
    both = bearer(client.tokens.create("both", [VIEW], queues=["mail", "video"]).secret)
    page = get("tasks?limit=3", both)
    assert len(page["items"] + get(f"tasks?after={page['next']}", both)["items"]) == 8
    assert http.get(f"{API}/tasks?after={page['next']}", headers=mine).status_code == 422
    all_queues = bearer(client.tokens.create("all", [VIEW]).secret)
    assert get("nodes/n", all_queues)["problem"] not in {None, OF_ALL_QUEUES}
    assert [get("nodes/n")[name] for name in ("name", "live", "problem")] == ["n", None, OF_ALL_QUEUES]
    assert "nodes" not in str(client.audit.page(actor="mine").items), "nothing was asked of the node"
