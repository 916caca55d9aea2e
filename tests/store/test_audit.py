"""Every action leaves an entry in the audit log, by whatever way it came, in the transaction of the action."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Actor, Client, NotPermitted, TaskFilter
from peerd.domain.access import ALL_RIGHTS, ActorKind
from peerd.domain.bulk import BulkRetry
from peerd.domain.errors import InvalidFilter, NodeUnreachable
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.operate.actors import cli_actor, python_actor
from peerd.operate.operations import Operation, OperationGroup
from peerd.store.audit import purge_entries
from peerd.store.files.buckets import get_bucket
from peerd.store.files.disks import remove_disk
from peerd.store.files.uploads import NewUpload, enter_upload
from peerd.store.schema.tables import audit as audit_table
from peerd.store.schema.tables import file_copies, files
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from tests.store.file_steps import Catalogue
from tests.store.plans import analyze, problems_of_plans
from tests.store.world import World

API_ACTOR = Actor(name="ann", kind=ActorKind.USER, rights=ALL_RIGHTS, address="10.0.0.7")
PLACE = "s3+https://s3.example/copies/peerd"
ENQUEUING = {"enqueue", "enqueue_many", "enqueue_batch"}
READING = {
    "now",
    "examine",
    *(f"tasks.{name}" for name in ("list", "page", "recent", "get", "find", "attempts", "counts")),
    *(
        "tasks.logs",
        "tasks.last_logs",
        "tasks.search_logs",
        "tasks.stack",
        "nodes.get",
        "nodes.state",
        "nodes.get_request",
    ),
    *("bulk.preview", "bulk.list", "bulk.get", "bulk.has_manager"),
    *(f"statistics.{name}" for name in ("summary", "series", "errors", "depths", "counts", "overview")),
    *(
        "queues.list",
        "queues.why",
        "queues.misfit",
        "queues.prospects",
        "queues.is_known",
        "limits.list",
        "nodes.list",
        "nodes.processes",
        "nodes.loads",
        "nodes.lost_tasks",
    ),
    *(f"schedules.{name}" for name in ("list", "get", "runs", "get_run", "get_runs")),
    *(f"files.{name}" for name in ("list", "kept", "stat", "usage", "at_risk", "overview", "are_used", "keys.list")),
    "files.uploads.list",
    *("buckets.list", "file_classes.list", "disks.list", "disks.balance", "disks.last_copies"),
    *("alerts.list", "users.list", "tokens.list", "audit.page", "audit.newer"),
}
UPLOAD = "ab" * 16
LEFT_OUT = re.compile(r"\(([\d,]+) more refusals before it have no entry\)$")
CARRYING_OUT = {"bulk.carry_out"}
"""It does what the entry of its `bulk.create` names."""
Steps = list[tuple[str, Callable[[Client], Any], tuple[str, str | None], dict[str, Any] | None, dict[str, Any] | None]]


def all_operations(client: Client) -> set[str]:
    groups: list[OperationGroup[Any]] = [client]
    for group in groups:
        groups += [value for value in vars(group).values() if isinstance(value, OperationGroup)]
    found = set()
    for group in groups:
        for kind in type(group).__mro__:
            names = [name for name, value in vars(kind).items() if isinstance(value, Operation)]
            found |= {f"{group.subject}.{name}" if group.subject else name for name in names}
    return found


def steps(task: int, other: int) -> Steps:
    """Each action, what it acts on, and columns that it changes; None where it makes or deletes something."""
    of_task, of_queue, of_node = ("task", str(task)), ("queue", "q"), ("node", "first")
    of_bob, of_schedule, of_limit = ("user", "bob"), ("schedule", "s"), ("limit", "q")
    drained, undrained = {"draining": True}, {"draining": False}
    disabled, enabled = {"disabled": True}, {"disabled": False}
    video, in_q, viewer, operator = {"queue": "video"}, {"queue": "q"}, {"role": "viewer"}, {"role": "operator"}
    of_films, of_safe, of_disk = ("bucket", "films"), ("file class", "safe"), ("disk", None)
    of_bulk, of_key, of_token, password = ("bulk", None), ("access key", None), ("token", None), "hunter2 hunter2"
    active, readonly, drain, lost = ({"state": state} for state in ("active", "readonly", "drain", "lost"))
    unset, scoped = {"has_password": False}, {"rights": "read", "scopes": ["films"]}
    return [
        ("tasks.bury", lambda c: c.tasks.bury(task), of_task, {"status": "pending"}, {"status": "buried"}),
        ("tasks.kick", lambda c: c.tasks.kick(task), of_task, {"status": "buried"}, {"status": "pending"}),
        ("tasks.snooze", lambda c: c.tasks.snooze(task, 60), of_task, {"status": "pending"}, {"status": "scheduled"}),
        ("tasks.change", lambda c: c.tasks.change(task, priority=3), of_task, {"priority": 10}, {"priority": 3}),
        ("tasks.move", lambda c: c.tasks.move(task, "first"), of_task, {"node_id": None}, {}),
        ("tasks.move_to_queue", lambda c: c.tasks.move_to_queue(task, "q"), of_task, video, in_q),
        ("tasks.cancel", lambda c: c.tasks.cancel(task, "no"), of_task, {"error": None}, {"error": "no"}),
        ("tasks.retry", lambda c: c.tasks.retry(task), of_task, {"status": "canceled"}, {"status": "pending"}),
        ("tasks.delete", lambda c: c.tasks.delete(other), ("task", str(other)), video, None),
        ("queues.pause", lambda c: c.queues.pause("q"), of_queue, None, {"paused": True}),
        ("queues.resume", lambda c: c.queues.resume("q"), of_queue, {"paused": True}, {"paused": False}),
        ("queues.kick", lambda c: c.queues.kick("q"), of_queue, None, {"kicked": 0}),
        ("limits.set", lambda c: c.limits.set("q", running=3), of_limit, None, {"running": 3}),
        ("limits.remove", lambda c: c.limits.remove("q"), of_limit, {"running": 3}, None),
        ("nodes.drain", lambda c: c.nodes.drain("first"), of_node, undrained, drained),
        ("nodes.undrain", lambda c: c.nodes.undrain("first"), of_node, drained, undrained),
        ("nodes.forget", lambda c: c.nodes.forget("gone"), ("node", "gone"), undrained, None),
        ("schedules.disable", lambda c: c.schedules.disable("s"), of_schedule, enabled, disabled),
        ("schedules.enable", lambda c: c.schedules.enable("s"), of_schedule, disabled, enabled),
        ("schedules.run", lambda c: c.schedules.run("s"), of_schedule, None, {}),
        ("nodes.reload", lambda c: unanswered(c.nodes.reload, "first"), of_node, None, None),
        ("nodes.scale", lambda c: unanswered(c.nodes.scale, "first", "video", 2), of_node, None, None),
        ("nodes.request_reload", lambda c: c.nodes.request_reload("first"), of_node, None, None),
        ("nodes.request_scale", lambda c: c.nodes.request_scale("first", "video", 2), of_node, None, None),
        ("schedules.create", lambda c: c.schedules.create("t", queue="q", interval=60), ("schedule", "t"), None, {}),
        ("schedules.delete", lambda c: c.schedules.delete("t"), ("schedule", "t"), {}, None),
        ("bulk.create", lambda c: c.bulk.create(BulkRetry(), all_tasks=True), of_bulk, None, {"action": "retry"}),
        ("bulk.pause", lambda c: c.bulk.pause(newest(c, "bulk")), of_bulk, {}, {"state": "paused"}),
        ("bulk.resume", lambda c: c.bulk.resume(newest(c, "bulk")), of_bulk, {"state": "paused"}, {}),
        ("bulk.cancel", lambda c: c.bulk.cancel(newest(c, "bulk")), of_bulk, {}, {"state": "canceled"}),
        ("users.add", lambda c: c.users.add("bob", "viewer"), of_bob, None, viewer),
        ("users.change", lambda c: c.users.change("bob", role="operator"), of_bob, viewer, operator),
        ("users.set_password", lambda c: c.users.set_password("bob", password), of_bob, unset, {"has_password": True}),
        ("users.remove", lambda c: c.users.remove("bob"), of_bob, operator, None),
        ("file_classes.set", lambda c: c.file_classes.set("safe", durable=2), of_safe, None, {"durable": 2}),
        ("buckets.create", lambda c: c.buckets.create("films", class_name="safe"), of_films, None, {"quota": None}),
        ("buckets.change", lambda c: c.buckets.change("films", quota=99), of_films, {"quota": None}, {"quota": 99}),
        ("disks.register_object_store", register_object_store, of_disk, None, {"path": PLACE, "state": "active"}),
        ("disks.register", register_disk, of_disk, None, {"path": "/srv/a", "state": "active"}),
        ("files.verify", lambda c: c.files.verify("films/a"), ("file", "films/a"), {}, {}),
        ("files.move", lambda c: c.files.move("films/a", "films/b"), ("file", "films/a"), {"size": 10}, None),
        ("files.remove", lambda c: c.files.remove("films/b"), ("file", "films/b"), {"size": 10}, None),
        ("files.remove_below", lambda c: c.files.remove_below("films", "x"), of_films, {}, {}),
        ("files.fsck", lambda c: c.files.fsck("films"), of_films, None, None),
        ("disks.readonly", lambda c: c.disks.readonly(newest(c, "disk")), of_disk, active, readonly),
        ("disks.drain", lambda c: c.disks.drain(newest(c, "disk")), of_disk, readonly, drain),
        ("disks.activate", lambda c: c.disks.activate(newest(c, "disk")), of_disk, drain, active),
        ("disks.rebalance", lambda c: c.disks.rebalance(), ("disk", "all"), None, None),
        ("disks.stop_rebalance", lambda c: c.disks.stop_rebalance(), ("disk", "all"), None, None),
        ("disks.lost", lambda c: c.disks.lost(newest(c, "disk")), of_disk, active, lost),
        ("disks.remove", forget_and_remove_disk, of_disk, lost, None),
        ("files.uploads.abort", abort_upload, ("upload", UPLOAD), {"bucket": "music", "key": "u", "received": 0}, None),
        ("buckets.delete", lambda c: c.buckets.delete("films"), of_films, {"quota": 99}, None),
        ("file_classes.remove", remove_class, of_safe, {"durable": 2}, None),
        ("files.keys.create", lambda c: c.files.keys.create("s3", "read", scopes=["films"]), of_key, None, scoped),
        ("files.keys.revoke", lambda c: c.files.keys.revoke(newest(c, "access key")), of_key, {"revoked_at": None}, {}),
        ("tokens.create", lambda c: c.tokens.create("t", ["view"]), of_token, None, {"rights": ["view"]}),
        ("tokens.revoke", lambda c: c.tokens.revoke(newest(c, "token")), of_token, {"revoked_at": None}, {}),
    ]


def register_object_store(client: Client) -> None:
    client.disks.register_object_store("ef" * 16, place=PLACE)


def register_disk(client: Client) -> None:
    """A disk with the file films/a, which later steps move and remove; that in an object store takes part no more."""
    client.database.run(remove_disk, newest(client, "disk"))
    number = client.disks.register("ab" * 16, path="/srv/a", node="first")
    catalogue = Catalogue(client.database)
    bucket = client.database.read(get_bucket, "films")
    catalogue.put(bucket, "a", number, class_name="safe")


def forget_and_remove_disk(client: Client) -> None:
    """The copies of a lost disk are forgotten, as a check does, and then its row goes."""
    client.database.run(lambda connection: connection.execute(sa.delete(file_copies)))
    client.disks.remove(newest(client, "disk"))


def abort_upload(client: Client) -> None:
    """Of a bucket of its own, which it keeps from being deleted until a node has removed its bytes."""
    bucket = Catalogue(client.database).bucket("music")
    new = NewUpload(id=UPLOAD, key="u", disk_id=1, content_id=1, class_name="default")
    client.database.run(enter_upload, bucket, new)
    client.files.uploads.abort(UPLOAD)


def remove_class(client: Client) -> None:
    """The tombstone of the file has it until its row goes."""
    client.database.run(lambda connection: connection.execute(sa.delete(files)))
    client.file_classes.remove("safe")


def unanswered(request: Callable[..., Any], *args: object) -> None:
    """A request to a node that does not take it; its entry is of the moment of the request."""
    with pytest.raises(NodeUnreachable):
        request(*args, timeout=0.1)


def newest(client: Client, kind: str) -> Any:
    """The id of the newest of its kind: what the latest step has made. A disk may be removed by then."""
    match kind:
        case "bulk":
            return client.bulk.list()[0].id
        case "token":
            return client.tokens.list()[0].id
        case "access key":
            return client.files.keys.list()[-1].id
    if found := client.disks.list():
        return found[-1].id
    return int(client.audit.page(operation_name="disks.register", limit=1).items[0].target or 0)


def prepare(world: World) -> Client:
    client = Client(world.store, secret="the secret of a cluster")
    world.node("first")
    write = "insert into nodes (name) values ('gone')"
    schedule = (
        "insert into schedules (name, node_id, type, definition, fingerprint) values ('s', 0, 'cluster', '{}', 'f')"
    )
    world.run(lambda connection: [connection.exec_driver_sql(text) for text in (write, schedule)])
    return client


def test_every_action_is_in_the_log_with_what_it_has_changed(world: World, impatient: None) -> None:
    program = prepare(world)
    task, other = (program.enqueue("video").id for _ in range(2))
    assert program.audit.page().items == [], "the enqueuing of a program is not its business"
    made, actors = steps(task, other), cycle([python_actor(), cli_actor(), API_ACTOR])
    for actor, (name, act, (kind, target), before, after) in zip(actors, made, strict=False):
        act(program.acting_as(actor))
        entry = program.audit.page(limit=1).items[0]
        assert (entry.operation, entry.outcome, entry.way) == (name, "done", actor.way)
        assert (entry.actor, entry.actor_kind, entry.address) == (actor.name, actor.kind, actor.address)
        assert entry.target_kind == kind
        assert entry.target == (target if target is not None else str(newest(program, kind)))
        for expected, found in ((before, entry.before), (after, entry.after)):
            assert (found is None) is (expected is None), (name, found)
            assert found is None or expected is None or found.items() >= expected.items(), (name, found)
        assert "hunter2" not in str(entry)
    assert len(program.audit.page(limit=100).items) == len(made), "one entry for each action"
    groups = {name: group for name, group in vars(program).items() if isinstance(group, OperationGroup)}
    assert {name: group.subject for name, group in groups.items()} == {name: name for name in groups}
    assert {name for name, *_ in made} == all_operations(program) - READING - ENQUEUING - CARRYING_OUT


def test_enqueuing_is_in_the_log_of_people_and_of_the_api(world: World) -> None:
    program = prepare(world)
    for actor in (cli_actor(), API_ACTOR):
        client = program.acting_as(actor)
        body = {"password": "hunter2", "source": "a.mp4"}
        job = client.enqueue("video", body=body)
        client.enqueue_many(["video", "mail"])
        jobs = client.enqueue_batch([("video", {"priority": 1})] * 30, idempotency_key="k")
        batch, many, one = program.audit.page(limit=3).items
        assert (one.operation, one.target, one.arguments["what"]) == ("enqueue", str(job.id), "video")
        assert one.arguments["body"] == {"password": "***", "source": "a.mp4"}
        assert (many.operation, many.after["count"]) == ("enqueue_many", 2)
        assert (batch.after["count"], batch.after["ids"][0]) == (30, str(jobs[0].id))
        assert batch.arguments["tasks"][-1] == "… and 10 more"
    assert len(program.audit.page().items) == 6


def test_a_body_as_deep_as_json_may_be_is_in_the_log_as_far_as_the_log_has_room(world: World) -> None:
    client = prepare(world).acting_as(cli_actor())
    deep: Any = "end"
    for _ in range(400):
        deep = {"deeper": [deep]}
    for body in (deep, deep["deeper"]):
        job = client.enqueue("video", body=body)
        assert client.tasks.get(job.id).json == body
        assert "…" in str(client.audit.page(limit=1).items[0].arguments["body"])


def test_an_entry_is_undone_with_its_action(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = prepare(world)
    task = client.enqueue("video").id
    client.tasks.cancel(task)
    with pytest.raises(IllegalTransition):
        client.tasks.cancel(task)
    assert [entry.operation for entry in client.audit.page().items] == ["tasks.cancel"]

    def fail(connection: sa.Connection, entry: object) -> None:
        raise RuntimeError("the log cannot be written")

    monkeypatch.setattr("peerd.operate.guard.write_entry", fail)
    with pytest.raises(RuntimeError, match="the log cannot be written"):
        client.tasks.retry(task)
    assert client.tasks.get(task).status == "canceled", "what cannot be logged is not done"


def test_what_is_not_permitted_is_in_the_log_and_nothing_else_happens(world: World) -> None:
    program = prepare(world)
    task = program.enqueue("video").id
    viewer = program.acting_as(Actor.with_role("ann", "viewer"))
    foreign = program.acting_as(Actor.with_role("bob", "operator", queues=["mail"]))
    for refused in (
        lambda: viewer.tasks.cancel(task),
        lambda: viewer.users.add("eve", "admin", "hunter2 hunter2"),
        lambda: foreign.enqueue_many(["mail", "video"]),
    ):
        with pytest.raises(NotPermitted):
            refused()
    entries = program.audit.page().items
    found = [(entry.actor, entry.operation) for entry in reversed(entries)]
    assert found == [("ann", "tasks.cancel"), ("ann", "users.add"), ("bob", "enqueue_many")]
    assert all(entry.outcome == "refused" and "must not do" in str(entry.problem) for entry in entries)
    assert "hunter2" not in str(entries)
    assert program.tasks.get(task).status is Status.PENDING
    with pytest.raises(NotPermitted):
        viewer.enqueue_in(None, "video")  # type: ignore[arg-type]  # it is refused before it is looked at


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_flood_of_refusals_leaves_few_entries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    program = prepare(world)
    viewer = program.acting_as(Actor.with_role("ann", "viewer"))
    for _ in range(300):
        with pytest.raises(NotPermitted):
            viewer.queues.pause("video")
    bob = program.acting_as(Actor.with_role("bob", "viewer"))
    for refused in (viewer.queues.resume, bob.queues.pause):
        with pytest.raises(NotPermitted):
            refused("video")
    of_bob, of_resume, *flood = program.audit.page(limit=1_000).items
    assert (of_bob.actor, of_resume.operation) == ("bob", "queues.resume")
    assert {(entry.actor, entry.operation) for entry in flood} == {("ann", "queues.pause")}
    assert 10 <= len(flood) <= 50, "ten a minute; on a slow machine it takes some minutes"
    monkeypatch.setattr("peerd.operate.guard.WINDOW", 0.0)
    with pytest.raises(NotPermitted):
        viewer.queues.pause("video")
    last = program.audit.page(limit=1).items[0]
    told = sum(int(text.replace(",", "")) for one in [*flood, last] for text in LEFT_OUT.findall(str(one.problem)))
    assert told + len(flood) == 300, "each one has an entry or is counted by the next one"


async def test_an_awaited_operation_is_refused_and_logged_too(world: World) -> None:
    program = prepare(world)
    viewer = program.acting_as(Actor.with_role("ann", "viewer"))
    with pytest.raises(NotPermitted):
        await viewer.aio.queues.pause("video")
    await program.aio.enqueue("video")
    await program.aio.queues.pause("video")
    page = await program.aio.audit.page()
    assert [entry.outcome for entry in page.items] == ["done", "refused"]
    program.close()


def test_large_and_strange_arguments_are_bounded(world: World) -> None:
    client = prepare(world)
    task = client.enqueue("video").id
    client.tasks.cancel(task, "x" * 100_000 + "\ud800")
    client.tasks.retry(task)
    client.tasks.change(task, body={"long": "y" * 100_000})
    for entry in client.audit.page().items:
        assert len(str(entry.arguments)) < 10_000
        assert len(str(entry.after)) < 10_000
    assert "truncated" in client.audit.page(operation_name="tasks.change").items[0].arguments


def test_entries_are_found_by_filters_and_purged_by_their_age(world: World) -> None:
    client = prepare(world)
    ann = client.acting_as(API_ACTOR)
    task = world.task_in(Status.DEAD)
    bulk = client.bulk.create(BulkRetry(), TaskFilter(status="dead"))
    eventually(lambda: client.bulk.carry_out(bulk.id).has_ended)
    client.tasks.cancel(task)
    client.enqueue_many(["a", "b"])
    for _ in range(3):
        client.queues.pause("a")
        ann.queues.pause("b")
    filters: list[tuple[dict[str, Any], int]] = [
        ({"actor": "ann"}, 3),
        ({"target": "a", "target_kind": "queue"}, 3),
        ({"operation_name": "queues"}, 0),
        ({"target": str(task)}, 2),
        ({"target": str(task), "target_kind": "task"}, 2),
        ({"target": str(task), "target_kind": "node"}, 0),
        ({"limit": 4, "after": client.audit.page(limit=4).next}, 4),
    ]
    assert [len(client.audit.page(**wanted).items) for wanted, _ in filters] == [count for _, count in filters]
    world.execute(audit_table.update().where(audit_table.c.target == "a").values(at=seconds_from_now(-7200.0)))
    assert len(client.audit.page(since="1h").items) == 5
    assert [world.run(purge_entries, 3600.0, 2) for _ in range(3)] == [2, 1, 0]
    for wrong in ("x", "-1", "9" * 30):
        with pytest.raises(InvalidFilter):
            client.audit.page(after=wrong)


@pytest.mark.slow
@pytest.mark.every_database
def test_what_follows_the_log_reads_the_end_of_an_index(world: World) -> None:
    entry = {"actor_kind": "user", "address": None, "way": "api", "outcome": "done", "target_kind": "task"}
    some = [
        entry | {"actor": f"user {number % 7}", "operation": f"tasks.{number % 5}", "target": str(number)}
        for number in range(3_000)
    ]
    world.execute(audit_table.insert(), some)
    analyze(world.store, audit_table.name)
    client = Client(world.store)
    end = client.audit.newer()
    assert (end.items, end.has_more) == ([], False)
    near = client.audit.page(limit=100).next
    for wanted in ({}, {"actor": "user 1"}, {"operation_name": "tasks.1"}, {"target": "17"}, {"actor": "none"}):
        follow = partial(client.audit.newer, after=near, **wanted)  # type: ignore[arg-type]
        assert not problems_of_plans(world.store, follow, audit_table.name)
        found = follow()
        assert [one.id for one in found.items] == sorted(one.id for one in found.items)
        assert (found.has_more, len(found.items) == 50) == (wanted == {}, wanted == {})
