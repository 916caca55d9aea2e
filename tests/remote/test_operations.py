"""Each operation of each group does the same by a server as by the database, blocking and awaited."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple
from unittest.mock import call

import msgspec
import pytest

from peerd import Client, Job, PeerdError, Queue, TaskFilter
from peerd.domain.access import FileAccessKey
from peerd.domain.bulk import BulkCancel, BulkMove, BulkRetry, BulkSnooze
from peerd.domain.errors import NodeUnreachable
from peerd.domain.limit import Rate
from peerd.operate.client import AioClient
from peerd.operate.nodes import ReloadResult
from peerd.operate.remote.modes import ServerMode
from peerd.operate.wire.operations import wire_operations
from tests.remote.conftest import ACCESS_KEY, PASSWORD, UPLOAD, Copies, ServedApp, answering_node

LATER = datetime(2031, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
video = Queue("video")


@video.task(limit_key="source")
def transcode(source: str, height: int = 720) -> None: ...


BY_ID = [call(1), call(99), call(2**63), call(10**30), call("1"), call(True)]
ACTION = [call(99), call("1"), *map(call, range(1, 10))]
FILTERS = [call(), call(queue="video", limit=2), call(name="transcode", bodies=False), call(queue="\ud800")]
FILTERS += [call(search="DISK", where=["priority>=20"], node="video-1"), call(node="nowhere"), call(limit=0)]
BULK = [call(1), call(2), call(99), call(10**30), call("1")]
DEAD = TaskFilter(status="dead")
SINCE = [call(), call("10m"), call("soon"), call(1), call(queue="video"), call(queue="no spaces")]
SERIES = [*SINCE, call("1d", by="handler"), call(by="node", node="video-1"), call(by="x"), call(node="nowhere")]
NODES = [call("video-1"), call("old"), call("nowhere"), call(7)]
OLD = call("old", timeout=0.2)
PATHS = [call("films/2026/Größe.mov"), call("films/x"), call("films"), call("films/\ud800"), call(7)]
DISKS = [call(1), call(2), call(99), call("1")]
SCHEDULES = [call("refresh"), call("nightly"), call("x"), call(None)]
NUMBERS = {"a": [1, 1.5, None, "ä", 2**62]}
LATE = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
KEY = {"scopes": ["films", "team-*/2026/"], "expires_in": "1h"}
PLACE = {"place": "s3+https://s3.example/copies/peerd"}
ON_VIDEO = {"path": "/srv/c", "node": "video-1"}
# fmt: off
EXAMPLES: dict[str, list[Any]] = {
    "audit.page": [call(limit=1), call(operation_name="limits.set"), call(since="1d"), call(after="x")],
    "audit.newer": [call(after="0", limit=2), call(after="1", target_kind="user", target="ann"), call(after="x")],
    "now": [call()],
    "examine": [call(), call(max_update=0.001)],
    "tasks.list": FILTERS,
    "tasks.page": [*FILTERS, call(after="nothing")],
    "tasks.recent": [call(), call([3, 99, 2**70], limit=1), call(range(2000)), call(["1"])],
    "tasks.get": BY_ID,
    "tasks.find": BY_ID,
    "tasks.attempts": [call(1), call(2), call(99), call("1")],
    "tasks.counts": [call()],
    "tasks.logs": [call(1), call(99), call("1"), call(1, limit=1), call(1, level="loud"), call(1, after="1.2")],
    "tasks.search_logs": [
        call("e"), call("E", limit=1), call("e", level="error", queue="video"), call(""), call("e", after="x"), call(7),
    ],
    "tasks.last_logs": [call(1), call(99), call(1, limit=1), call(1, limit=0)],
    "tasks.stack": [call(4, timeout=30), call(1), call(99), call("4"), call(4, timeout="soon")],
    "queues.list": [call()],
    "queues.why": [call("video"), call("mail"), call("no spaces")],
    "queues.prospects": [call()],
    "queues.misfit": [call("video", "x", "{}"), call("other", "x"), call("video", 7), call("video", "x", "\0")],
    "queues.is_known": [call("video"), call("viedo"), call(7)],
    "limits.list": [call(), call("video"), call(queue="other"), call(7)],
    "nodes.list": [call()],
    "nodes.processes": [call(), call(ended=True)],
    "nodes.loads": [call()],
    "nodes.lost_tasks": [call()],
    "nodes.get": NODES,
    "nodes.state": [call("video-1"), OLD, call("nowhere"), call(7), call("old", timeout="soon")],
    "nodes.reload": [call("video-1", ["video"], config_only=True), OLD, call("nowhere"), call("video-1", "video")],
    "nodes.scale": [call("video-1", "video", 3), call("nowhere", "video", 1), call("video-1", "no kind\n", 1)],
    "nodes.request_reload": [call("video-1", ["video"]), call("nowhere"), call("video-1", "video")],
    "nodes.request_scale": [call("video-1", "video", 3), call("nowhere", "video", 3), call("video-1", "video", -1)],
    "nodes.get_request": [call(1), call(99), call(-1)],
    "bulk.preview": [
        call(BulkRetry(), DEAD), call(BulkRetry()), call(BulkRetry(), all_tasks=True), call("retry", DEAD),
        call(BulkMove("nowhere"), TaskFilter(queue="mail")), call(BulkCancel(), DEAD, within=3.0),
    ],
    "bulk.list": [call(), call(states=["canceled"]), call(states=["well"]), call(limit=1)],
    "bulk.get": BULK,
    "bulk.has_manager": [call()],
    "statistics.summary": [*SERIES, call("1d", by="handler", against="7d"), call(against="soon")],
    "statistics.errors": [call(), call("1h", queue="mail"), call("soon"), call(name="transcode"), call(queue="\n")],
    "statistics.series": [*SERIES, call(step="1m"), call(step="2m"), call(by="handler", most=1)],
    "statistics.counts": [call(), call(queue="video"), call(queue="other"), call(queue="\n")],
    "statistics.depths": SINCE,
    "statistics.overview": [call(), call(max_wait="soon"), call(max_wait="1d")],
    "alerts.list": [call(), call(on=True), call(on=False, limit=1), call(kinds=["backlog"], since="1d")],
    "files.list": [call("films"), call("films", delimiter="/", after="2026/"), call("x"), call("films", "\0"), call(7)],
    "files.stat": PATHS,
    "files.usage": [call()],
    "files.kept": [call("films"), call("films", "2026/", delimiter="/", limit=1), call("x"), call("films", limit=501)],
    "files.overview": [call()],
    "files.are_used": [call()],
    "files.at_risk": [
        call("unchecked", limit=1), call("ill"),
        call("unchecked", after="1 unchecked 2026-01-01T00:00:00+00:00 7", counted=False),
    ],
    "files.uploads.list": [call(), call("films", "2026/", after="7"), call(prefix="2026/"), call("x")],
    "files.keys.list": [call()],
    "buckets.list": [call()],
    "file_classes.list": [call()],
    "disks.list": [call()],
    "disks.balance": [call()],
    "disks.last_copies": [call(1)],
    "users.list": [call()],
    "tokens.list": [call()],
    "schedules.list": [call()],
    "schedules.get": SCHEDULES,
    "schedules.runs": [call(), call("refresh", limit=1), call("x"), call(limit=0)],
    "schedules.get_run": [call(1), call(99), call(-1)],
    "schedules.get_runs": [call(1), call(99)],
    "enqueue": [
        call("video"), call(transcode.with_args("a.mp4", height=1080)), call("no spaces"), call("mail", prio=7),
        call(7), call("video", name="x", body=NUMBERS, priority=-(2**63) + 1, start_at=LATER),
        call("video", bytes=b"\xff", start_in="10m", finish_in=7200, node="video-1", timeout="1h", trace_context="0"),
        call("mail", unique="once"), call("mail", idempotency_key="a"), call("mail", body=float("nan")),
        call("mail", unique="twice", unique_for="forever", limit_key="k", max_attempts=5, finish_at=LATER, text="t"),
        call("mail", node="nowhere"), call("mail", start_at=LATER.replace(tzinfo=None)),
    ],
    "enqueue_many": [call(["video", transcode.with_args("a.mp4")], priority=7), call([]), call([7])],
    "enqueue_batch": [
        call([("video", {"priority": 3}), (transcode.with_args("a.mp4"), {"start_in": 5.5}), ("m", {"bytes": b"a"})]),
        call([("mail", {})], idempotency_key="b"), call([("mail", {"prio": 1})]),
    ],
    "tasks.change": [call(5, priority=7, body={"b": 1}), call(5, body=None), call(5), call(1, priority=7)],
    "tasks.snooze": [call(5, "1h"), call(4, 60), call(1, 60), call(5, "soon"), call(5, -1)],
    "tasks.move": [call(5, "video-1"), call(5, node=None), call(4, "old"), call(5, "nowhere"), call(1, None)],
    "tasks.move_to_queue": [call(5, "other"), call(1, "other"), call(5, "no spaces")],
    "tasks.kick": ACTION,
    "tasks.bury": ACTION,
    "tasks.cancel": [call(5, "späte Einsicht"), call(5, reason=7), *ACTION],
    "tasks.retry": ACTION,
    "tasks.delete": ACTION,
    "queues.pause": [call("video"), call("new", "1h"), call("video", 500), call("video", "soon"), call("no spaces")],
    "queues.resume": [call("mail"), call("new")],
    "queues.kick": [call("mail"), call("mail", limit=1), call("video", 0)],
    "limits.set": [
        call("video", running=0), call("other", key="k", rate=Rate(5, 60.0)), call("other", key="*", running=1),
        call("other", each_key=True, rate="5/s", running=2), call("other"), call("other", rate="often"),
    ],
    "limits.remove": [call("video"), call("mail", each_key=True), call("mail"), call("mail", key="a", each_key=True)],
    "nodes.drain": NODES,
    "nodes.undrain": NODES,
    "nodes.forget": NODES,
    "bulk.create": [
        call(BulkRetry(), DEAD, digest="other"), call(BulkRetry()), call(BulkRetry(), TaskFilter(queue="a b")),
        call(BulkSnooze(60.0), TaskFilter(status="scheduled"), most=1), call(BulkRetry(), DEAD, most=0),
    ],
    "bulk.pause": BULK,
    "bulk.resume": BULK,
    "bulk.carry_out": [*BULK, call(1, 501), call(1, tasks=1)],
    "bulk.cancel": [call(3), *BULK],
    "users.add": [call("bo", "operator", PASSWORD), call("ann", "admin"), call("di", "viewer", "short")],
    "users.change": [call("ann", role="viewer"), call("ann", disabled=True), call("ann"), call("x", disabled=True)],
    "users.set_password": [call("ann", PASSWORD), call("ann", "short"), call("x", PASSWORD)],
    "users.remove": [call("ann"), call("x"), call(7)],
    "tokens.create": [
        call("ci", {"enqueue"}, queues=["video"], expires_in="1h"), call("ci", ["fly"]),
        call("ci", ["read-files"], queues=["video"], file_scopes=["films/2026/"]),
    ],
    "tokens.revoke": [call(2), call(99), call("2")],
    "files.move": [call("films/c.mov", "empty/ä.mov"), call("films/x", "films/y"), call("films", "x/y")],
    "files.verify": PATHS,
    "files.fsck": [call(), call("films", verify=True), call(limit=1), call("x"), call(after="x")],
    "files.remove": PATHS,
    "files.remove_below": [call("films", "2026/", limit=1), call("x", ""), call("films", "", limit=0)],
    "files.uploads.abort": [call(UPLOAD), call(UPLOAD), call("x"), call(7)],
    "files.keys.create": [call("laptop"), call("laptop", "read", **KEY), call("laptop", "fly"), call(7)],
    "files.keys.revoke": [call(ACCESS_KEY), call(ACCESS_KEY), call("x"), call(7)],
    "buckets.create": [call("music", class_name="safe", quota="500GB"), call("films"), call("more", quota=-1)],
    "buckets.change": [call("films", class_name="safe"), call("films", no_quota=True), call("x", quota=1)],
    "buckets.delete": [call("music"), call("films"), call("x"), call(7)],
    "file_classes.set": [call("fast", copies=1), call("safe", durable=3), call("No"), call("x", copies=0)],
    "file_classes.remove": [call("unused"), call("safe"), call("default"), call("x")],
    "disks.rebalance": [call()],
    "disks.stop_rebalance": [call()],
    "disks.register": [call("ef" * 16, **ON_VIDEO), call("x", **ON_VIDEO), call("ee" * 16, path="/", node="nowhere")],
    "disks.register_object_store": [call("de" * 16, **PLACE), call("ab" * 16, **PLACE), call("ee" * 16, place="")],
    "disks.activate": DISKS,
    "disks.readonly": DISKS,
    "disks.drain": DISKS,
    "disks.lost": DISKS,
    "disks.remove": DISKS,
    "schedules.run": [call("refresh", "b", 7), call("refresh", source="b", name="n"), call("nightly", 1), call("x")],
    "schedules.create": [
        call("new", queue="jobs", task="tidy", body={"depth": [3, None]}, **LATE),
        call("often", queue="jobs", interval=60.0, immediate=True, overlap="queue", jitter="5s", enabled=False),
        call("refresh", queue="jobs", interval="10m"), call("n", queue="jobs", cron="often"),
    ],
    "schedules.delete": [call("tidy"), call("refresh"), call("x"), call(None)],
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


DURATION = re.compile(r"\ba minute\b|\b\d+m\b")
"""In sentences of findings."""


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
        case str():
            value = DURATION.sub("so long", value)
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


def outcomes(client: Client, name: str, calls: Sequence[Any]) -> list[Any]:
    operation = attrgetter(name)(client)
    return [outcome(partial(operation, *one.args, **one.kwargs)) for one in calls]


async def awaited_outcomes(client: Client, calls: Mapping[str, Any]) -> dict[str, Any]:
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
        assert outcomes(shown, name, [call()]) == outcomes(local, name, [call()]), name


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
    decode = wire_operations()["bulk.create"].decode_arguments
    with pytest.raises(msgspec.ValidationError, match="unknown field `stauts`"):
        decode(b'{"action": {"type": "delete"}, "tasks": {"stauts": "dead"}}')


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


def test_what_waits_for_a_node_takes_no_thread_from_other_operations(
    served_app: ServedApp, database_client: Client, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_app.show(database_client)
    monkeypatch.setattr(ServerMode, "threads", 1)

    async def wait_and_ask(client: AioClient) -> None:
        waiting = [asyncio.ensure_future(one("video-1")) for one in (client.nodes.reload, client.nodes.state)]
        await asyncio.sleep(0)
        assert (await asyncio.wait_for(client.tasks.get(1), 10)).id == 1
        with answering_node(database_client):
            assert (await asyncio.gather(*waiting))[0] == ReloadResult(kinds={"video": "done"})

    with Client(served_app.address, token=token) as remote:
        asyncio.run(wait_and_ask(remote.aio))
