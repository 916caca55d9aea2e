"""Each operation of each group does the same by a server as by the database, blocking and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pytest

from peerd import Client, Job, PeerdError, Queue, TaskFilter
from peerd.domain.bulk import BulkCancel, BulkMove, BulkRetry, BulkSnooze
from peerd.domain.errors import NodeUnreachable
from peerd.domain.file_access import FileAccessKey
from peerd.domain.limit import Rate
from peerd.operate.wire.operations import wire_operations
from tests.remote.conftest import ACCESS_KEY, PASSWORD, UPLOAD, Copies, ServedApp, answering_node

LATER = datetime(2031, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
video = Queue("video")


@video.task(limit_key="source")
def transcode(source: str, height: int = 720) -> None: ...


class With:
    """Arguments of a call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        return f"({self.args}, {self.kwargs})"


BY_ID = [With(1), With(99), With(2**63), With(10**30), With("1"), With(True)]
ACTION = [With(99), With("1"), With(4, only=TaskFilter(status="dead")), With(4, only=TaskFilter("x y"))]
ACTION += map(With, range(1, 10))
FILTERS = [With(), With(queue="video", limit=2), With(name="transcode", bodies=False), With(queue="\ud800")]
FILTERS += [With(search="DISK", where=["priority>=20"], node="video-1"), With(node="nowhere"), With(limit=0)]
BULK = [With(1), With(2), With(99), With("1")]
DEAD = TaskFilter(status="dead")
SINCE = [With(), With("10m"), With("soon"), With(1), With(queue="video"), With(queue="no spaces")]
SERIES = [*SINCE, With("1d", by="handler"), With(by="node", node="video-1"), With(by="x"), With(node="nowhere")]
NODES = [With("video-1"), With("old"), With("nowhere"), With(7)]
OLD = With("old", timeout=0.2)
PATHS = [With("films/2026/Größe.mov"), With("films/x"), With("films"), With("films/\ud800"), With(7)]
DISKS = [With(1), With(2), With(99), With("1")]
SCHEDULES = [With("refresh"), With("nightly"), With("x"), With(None)]
NUMBERS = {"a": [1, 1.5, None, "ä", 2**62]}
LATE = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
KEY = {"scopes": ["films", "team-*/2026/"], "expires_in": "1h"}
PLACE = {"place": "s3+https://s3.example/copies/peerd"}
ON_VIDEO = {"path": "/srv/c", "node": "video-1"}
# fmt: off
EXAMPLES: dict[str, list[With]] = {
    "audit.page": [With(limit=1), With(operation_name="limits.set"), With(since="1d"), With(after="x")],
    "audit.newer": [With(after="0", limit=2), With(after="1", target_kind="user", target="ann"), With(after="x")],
    "now": [With()],
    "examine": [With(), With(max_update=0.001)],
    "tasks.list": FILTERS,
    "tasks.page": [*FILTERS, With(after="nothing")],
    "tasks.recent": [With(), With([3, 99, 2**70], limit=1), With(range(2000)), With(["1"])],
    "tasks.get": BY_ID,
    "tasks.find": BY_ID,
    "tasks.attempts": [With(1), With(2), With(99), With("1")],
    "tasks.counts": [With()],
    "tasks.logs": [With(1), With(99), With("1"), With(1, limit=1), With(1, level="loud"), With(1, after="1.2")],
    "tasks.last_logs": [With(1), With(99), With(1, limit=1), With(1, limit=0)],
    "tasks.stack": [With(4, timeout=30), With(1), With(99), With("4"), With(4, timeout="soon")],
    "queues.list": [With()],
    "queues.is_known": [With("video"), With("viedo"), With(7)],
    "limits.list": [With(), With("video"), With(queue="other"), With(7)],
    "nodes.list": [With()],
    "nodes.processes": [With(), With(ended=True)],
    "nodes.loads": [With()],
    "nodes.get": NODES,
    "nodes.state": [With("video-1"), OLD, With("nowhere"), With(7), With("old", timeout="soon")],
    "nodes.reload": [With("video-1", ["video"], config_only=True), OLD, With("nowhere"), With("video-1", "video")],
    "nodes.scale": [With("video-1", "video", 3), With("nowhere", "video", 1), With("video-1", "no kind\n", 1)],
    "nodes.request_reload": [With("video-1", ["video"]), With("nowhere"), With("video-1", "video")],
    "nodes.request_scale": [With("video-1", "video", 3), With("nowhere", "video", 3), With("video-1", "video", -1)],
    "nodes.get_request": [With(1), With(99), With(-1)],
    "bulk.preview": [
        With(BulkRetry(), DEAD), With(BulkRetry()), With(BulkRetry(), all_tasks=True), With("retry", DEAD),
        With(BulkMove("nowhere"), TaskFilter(queue="mail")), With(BulkCancel(), DEAD),
        With(BulkRetry(), DEAD, within=3.0),
    ],
    "bulk.list": [With(), With(states=["canceled"]), With(states=["well"]), With(limit=1)],
    "bulk.get": BULK,
    "bulk.has_manager": [With()],
    "statistics.summary": SERIES,
    "statistics.series": [*SERIES, With(step="1m"), With(step="2m"), With(by="handler", most=1)],
    "statistics.depths": SINCE,
    "statistics.overview": [With(), With(max_wait="soon"), With(max_wait="1d")],
    "alerts.list": [
        With(), With(on=True), With(on=False, limit=1), With(kinds=["backlog"], since="1d"), With(on="yes"),
    ],
    "files.list": [With("films"), With("films", delimiter="/", after="2026/"), With("x"), With("films", "\0"), With(7)],
    "files.stat": PATHS,
    "files.usage": [With()],
    "files.kept": [With("films"), With("films", "2026/", delimiter="/", limit=1), With("x"), With("films", limit=501)],
    "files.overview": [With()],
    "files.are_used": [With()],
    "files.at_risk": [
        With("unchecked", limit=1), With("ill"), With(after="x"),
        With("unchecked", after="1 unchecked 2026-01-01T00:00:00+00:00 7", counted=False),
    ],
    "files.uploads.list": [With(), With("films", "2026/", after="7"), With(prefix="2026/"), With("x")],
    "files.keys.list": [With()],
    "buckets.list": [With()],
    "file_classes.list": [With()],
    "disks.list": [With()],
    "disks.balance": [With()],
    "users.list": [With()],
    "tokens.list": [With()],
    "schedules.list": [With()],
    "schedules.get": SCHEDULES,
    "schedules.runs": [With(), With("refresh", limit=1), With("x"), With(limit=0)],
    "schedules.get_run": [With(1), With(99), With(-1)],
    "schedules.get_runs": [With(1), With(99)],
    "enqueue": [
        With("video"), With(transcode.with_args("a.mp4", height=1080)), With("no spaces"), With("mail", prio=7),
        With(7), With("video", name="x", body=NUMBERS, priority=-(2**63) + 1, start_at=LATER),
        With("video", bytes=b"\xff", start_in="10m", finish_in=7200, node="video-1", timeout="1h", trace_context="0"),
        With("mail", unique="once"), With("mail", idempotency_key="a"), With("mail", idempotency_key=""),
        With("mail", unique="twice", unique_for="forever", limit_key="k", max_attempts=5, finish_at=LATER, text="t"),
        With("mail", body=float("nan")), With("mail", body={"a": {1, 2}.__iter__}), With("mail", node="nowhere"),
        With("mail", start_at=LATER.replace(tzinfo=None)),
    ],
    "enqueue_many": [With(["video", transcode.with_args("a.mp4")], priority=7), With([]), With([7])],
    "enqueue_batch": [

        With([("video", {"priority": 3}), (transcode.with_args("a.mp4"), {"start_in": 5.5}), ("m", {"bytes": b"a"})]),
        With([("mail", {})], idempotency_key="b"), With([("mail", {"prio": 1})]),
    ],
    "tasks.change": [
        With(5, priority=7, body={"b": 1}), With(5, body=None), With(5), With(1, priority=7),
        With(5, body=float("inf")), With(5, priority=2**70),
    ],
    "tasks.snooze": [With(5, "1h"), With(4, 60), With(1, 60), With(5, "soon"), With(5, -1)],
    "tasks.move": [With(5, "video-1"), With(5, node=None), With(4, "old"), With(5, "nowhere"), With(1, None)],
    "tasks.move_to_queue": [With(5, "other"), With(1, "other"), With(5, "no spaces")],
    "tasks.kick": ACTION,
    "tasks.bury": ACTION,
    "tasks.cancel": [With(5, "späte Einsicht"), With(5, reason=7), *ACTION],
    "tasks.retry": ACTION,
    "tasks.delete": ACTION,
    "queues.pause": [With("video"), With("new", "1h"), With("video", 500), With("video", "soon"), With("no spaces")],
    "queues.resume": [With("mail"), With("new")],
    "queues.kick": [With("mail"), With("mail", limit=1), With("video", 0)],
    "limits.set": [
        With("video", running=0), With("other", key="k", rate=Rate(5, 60.0)), With("other", key="*", running=1),
        With("other", each_key=True, rate="5/s", running=2), With("other"), With("other", rate="often"),
    ],
    "limits.remove": [With("video"), With("mail", each_key=True), With("mail"), With("mail", key="a", each_key=True)],
    "nodes.drain": NODES,
    "nodes.undrain": NODES,
    "nodes.forget": NODES,
    "bulk.create": [
        With(BulkRetry(), DEAD, digest="other"), With(BulkRetry()), With(BulkRetry(), TaskFilter(queue="a b")),
        With(BulkSnooze(60.0), TaskFilter(status="scheduled"), most=1), With(BulkRetry(), DEAD, most=0),
    ],
    "bulk.pause": BULK,
    "bulk.resume": BULK,
    "bulk.carry_out": [*BULK, With(1, 501), With(1, tasks=1)],
    "bulk.cancel": [With(3), *BULK],
    "users.add": [
        With("bo", "operator", PASSWORD), With("ann", "admin"), With("di", "king"), With("di", "viewer", "short"),
    ],
    "users.change": [With("ann", role="viewer"), With("ann", disabled=True), With("ann"), With("x", disabled=True)],
    "users.set_password": [With("ann", PASSWORD), With("ann", "short"), With("x", PASSWORD)],
    "users.remove": [With("ann"), With("x"), With(7)],
    "tokens.create": [
        With("ci", {"enqueue"}, queues=["video"], expires_in="1h"), With("ci", ["fly"]), With("ci", []),
        With("ci", ["read-files"], queues=["video"], file_scopes=["films/2026/"]), With("ci", ["view"], expires_in=-1),
    ],
    "tokens.revoke": [With(2), With(99), With("2")],
    "files.move": [With("films/c.mov", "empty/ä.mov"), With("films/x", "films/y"), With("films", "x/y")],
    "files.verify": PATHS,
    "files.fsck": [With(), With("films", verify=True), With(limit=1), With("x"), With(after="x")],
    "files.remove": PATHS,
    "files.remove_below": [With("films", "2026/", limit=1), With("x", ""), With("films", "", limit=0)],
    "files.uploads.abort": [With(UPLOAD), With(UPLOAD), With("x"), With(7)],
    "files.keys.create": [
        With("laptop"), With("laptop", "read", **KEY), With("laptop", "fly"), With("laptop", scopes=["No"]),
        With("laptop", expires_in="soon"), With(7), With(""),
    ],
    "files.keys.revoke": [With(ACCESS_KEY), With(ACCESS_KEY), With("x"), With(7)],
    "buckets.create": [
        With("music", class_name="safe", quota="500GB"), With("films"), With("Films"), With("more", quota=-1),
    ],
    "buckets.change": [
        With("films", class_name="safe"), With("films", no_quota=True), With("films"), With("x", quota=1),
    ],
    "buckets.delete": [With("music"), With("films"), With("x"), With(7)],
    "file_classes.set": [With("fast", copies=1), With("safe", durable=3), With("No"), With("x", copies=0)],
    "file_classes.remove": [With("unused"), With("safe"), With("default"), With("x")],
    "disks.rebalance": [With()],
    "disks.stop_rebalance": [With()],
    "disks.register": [
        With("ef" * 16, **ON_VIDEO), With("ab" * 16, **ON_VIDEO), With("x", **ON_VIDEO),
        With("ee" * 16, path="/srv/c", node="nowhere"), With("ee" * 16, path="", node="video-1"),
    ],
    "disks.register_object_store": [With("de" * 16, **PLACE), With("ab" * 16, **PLACE), With("ee" * 16, place="")],
    "disks.activate": DISKS,
    "disks.readonly": DISKS,
    "disks.drain": DISKS,
    "disks.lost": DISKS,
    "disks.remove": DISKS,
    "schedules.run": [With("refresh", "b", 7), With("refresh", source="b", name="n"), With("nightly", 1), With("x")],
    "schedules.create": [
        With("new", queue="jobs", task="tidy", body={"depth": [3, None]}, **LATE),
        With("often", queue="jobs", interval=60.0, immediate=True, overlap="queue", jitter="5s", enabled=False),
        With("refresh", queue="jobs", interval="10m"), With("none", queue="jobs"),
        With("n", queue="jobs", cron="often"),
    ],
    "schedules.delete": [With("tidy"), With("refresh"), With("x"), With(None)],
    "schedules.enable": SCHEDULES,
    "schedules.disable": SCHEDULES,
}
# fmt: on
"""Calls of each operation, those that it refuses too; in an order in which some of each have something to do.

The audit log is read before anything is done: an entry has the actor, which is another one on a server.
"""


OF_THE_CALL = {"created_by", "requested_by", "digest", "prefix", "secret", "last_used_at"}
"""Fields that tell by whom or when a call was made, or are random."""
OF_THE_MOMENT = {"seconds", "per_second", "busy", "utilisation", "oldest"}
"""Fields of which only the type is compared."""


class Refusal(NamedTuple):
    """An error, to be compared."""

    kind: type[Exception]
    text: str
    attributes: dict[str, Any]


def comparable(value: Any) -> Any:
    """A result without the times of this test's run."""
    match value:
        case msgspec.Struct():
            left_out = OF_THE_CALL | ({"id"} if isinstance(value, FileAccessKey) else set())
            fields = [field for field in value.__struct_fields__ if field not in left_out]
            values = {field: getattr(value, field) for field in fields}
            return type(value), {
                field: type(one) if field in OF_THE_MOMENT else comparable(one) for field, one in values.items()
            }
        case Job():
            return "job", value.id, value.created
        case dict():
            return {key: comparable(one) for key, one in value.items()}
        case list() | tuple():
            return type(value), [comparable(one) for one in value]
        case datetime():
            assert value.tzinfo is UTC
            return "about now" if abs(value - datetime.now(UTC)) < timedelta(hours=3) else value
    return type(value), value


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns or raises, to be compared."""
    try:
        return comparable(call())
    except (PeerdError, TypeError) as error:
        return refusal(error)


def refusal(error: Exception) -> Refusal:
    attributes = {name: comparable(value) for name, value in vars(error).items() if not name.startswith("__")}
    return Refusal(type(error), str(error), attributes)


def outcomes(client: Client, name: str, calls: Sequence[With]) -> list[Any]:
    operation = attrgetter(name)(client)
    return [outcome(partial(operation, *one.args, **one.kwargs)) for one in calls]


async def awaited_outcomes(client: Client, calls: Mapping[str, With]) -> dict[str, Any]:
    """What a call of each operation returns or raises, awaited in one event loop."""
    found = {}
    for name, one in calls.items():
        operation = attrgetter(name)(client.aio)
        try:
            found[name] = comparable(await operation(*one.args, **one.kwargs))
        except (PeerdError, TypeError) as error:
            found[name] = refusal(error)
    return found


def node_for(name: str, client: Client) -> AbstractContextManager[None]:
    """A node that answers, unless the operation returns the request as it was made: it may be answered before that."""
    return nullcontext() if name.startswith("nodes.request_") else answering_node(client)


def test_each_operation_does_the_same_by_a_server_as_by_the_database(copies: Copies, served_app: ServedApp) -> None:
    assert EXAMPLES.keys() == wire_operations().keys(), "each operation has examples"
    local, shown = copies.client(), copies.client()
    remote = served_app.show(shown)
    wrong = []
    for name, calls in EXAMPLES.items():
        with node_for(name, local), node_for(name, shown):
            expected, found = outcomes(local, name, calls), outcomes(remote, name, calls)
        wrong += [f"{name}{call}: {a} != {b}" for call, a, b in zip(calls, found, expected, strict=True) if a != b]
        if all(isinstance(one, Refusal) for one in expected):
            wrong.append(f"{name}: no example works: {expected}")
    assert wrong == []
    for one, other in zip(shown.tasks.list(), local.tasks.list(), strict=True):
        assert comparable(one) == comparable(other)
    listed = ("queues.list", "limits.list", "nodes.list", "schedules.list", "schedules.runs", "bulk.list", "disks.list")
    for name in listed:
        assert outcomes(shown, name, [With()]) == outcomes(local, name, [With()]), name


def test_each_operation_does_the_same_awaited(copies: Copies, served_app: ServedApp) -> None:
    calls = {name: examples[0] for name, examples in EXAMPLES.items() if not name.startswith("nodes.request_")}
    local, shown = copies.client(), copies.client()
    remote = served_app.show(shown)
    with answering_node(local), answering_node(shown):
        expected = {name: outcomes(local, name, [call])[0] for name, call in calls.items()}
        assert asyncio.run(awaited_outcomes(remote, calls)) == expected


def test_what_an_operation_does_not_know_is_refused_in_every_depth() -> None:
    types = [one.arguments.type for one in wire_operations().values()]
    _, components = msgspec.json.schema_components(types)
    lenient = [name for name, schema in components.items() if schema.get("additionalProperties") is not False]
    assert lenient == [], "a filter with a misspelt field would select everything: forbid_unknown_fields=True"
    decode = wire_operations()["tasks.delete"].decode_arguments
    with pytest.raises(msgspec.ValidationError, match="unknown field `stauts`"):
        decode(b'{"task_id": 7, "only": {"stauts": "dead"}}')


def test_what_was_previewed_on_a_server_is_created_there(remote: Client) -> None:
    preview = remote.bulk.preview(BulkRetry(), DEAD)
    bulk = remote.bulk.create(BulkRetry(), DEAD, digest=preview.digest)
    assert (bulk.action, bulk.matched) == (BulkRetry(), 1)


def test_a_node_has_the_time_of_the_operation_and_not_only_that_of_an_answer(
    served_app: ServedApp, database_client: Client, token: str
) -> None:
    served_app.show(database_client)
    with Client(served_app.address, token=token, timeout=5.0) as impatient:
        calls: list[Callable[..., Any]] = [
            partial(impatient.nodes.state, "video-1"),
            partial(impatient.nodes.reload, "video-1"),
            partial(impatient.nodes.scale, "video-1", "video", 3),
            partial(impatient.tasks.stack, 4),
            lambda **given: asyncio.run(impatient.aio.nodes.state("video-1", **given)),
        ]

        def is_answered_late(call: Callable[..., Any]) -> None:
            with pytest.raises(NodeUnreachable, match="has not answered in time"):
                call(timeout=5.5)

        with ThreadPoolExecutor(len(calls)) as threads:
            list(threads.map(is_answered_late, calls))
