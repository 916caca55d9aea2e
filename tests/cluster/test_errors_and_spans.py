"""What a node sends to other tools: errors to the hook of a tracker, and spans to an OpenTelemetry collector."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan

pytestmark = pytest.mark.slow
PRODUCER, CONSUMER = 4, 5
ENQUEUED_BY = ("a" * 32, "b" * 16)
SAMPLED, NOT_SAMPLED = (f"00-{ENQUEUED_BY[0]}-{ENQUEUED_BY[1]}-{flag}" for flag in ("01", "00"))


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver().running() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster, receiver: OtlpReceiver) -> Cluster:
    cluster = module_cluster("sqlite")
    cluster.copy("tracked.py", "traced.py")
    cluster.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    workers = {
        "jobs": {**WORKER, "tasks": ["tracked:tracked", "tracked:refusing"], "timeout_grace": "300ms"},
        "traced": {**WORKER, "tasks": "traced:traced"},
        "round": {"worker": "tracked:Round", "update": "500ms"},
        "raising": cluster.worker("raising", "tracked"),
        "hanging": cluster.worker("hanging", "tracked"),
    }
    sections = {
        "telemetry": {"opentelemetry": True},
        "errors": {"hook": "tracked:note"},
        "schedules.once": {"run": "tracked:scheduled", "interval": "1h", "immediate": True, "workers": ["jobs"]},
        "web.site": {"app": "tracked:app", "bind": "127.0.0.1:0"},
    }
    cluster.up("one", workers=workers, sections=sections)
    return cluster


@pytest.fixture
def collector(receiver: OtlpReceiver) -> OtlpReceiver:
    receiver.spans.clear()
    return receiver


def wait_for_spans(collector: OtlpReceiver, count: int, name: str, **attributes: object) -> list[ReceivedSpan]:
    def found() -> list[ReceivedSpan]:
        spans = collector.named(name, **attributes)
        assert len(spans) == count, collector.spans
        return spans

    return eventually(found, timeout=WITHIN)


def test_attempts_are_linked_to_what_enqueued_them_however_they_run(collector: OtlpReceiver, cluster: Cluster) -> None:
    first = cluster.client.enqueue("traced", name="coroutine", trace_context=f"{SAMPLED} vendor=1")
    cluster.client.enqueue("traced", name="process", trace_context=SAMPLED)
    (attempt,) = wait_for_spans(collector, 1, "process traced", peerd__handler="coroutine")
    assert (attempt.kind, attempt.trace_id, attempt.parent_id, attempt.links) == (CONSUMER, *ENQUEUED_BY, [ENQUEUED_BY])
    assert attempt.attributes == {
        "messaging.system": "peerd",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "traced",
        "messaging.message.id": str(first.id),
        "messaging.client.id": "one/traced-1",
        "peerd.handler": "coroutine",
        "peerd.attempt": 1,
        "peerd.outcome": "done",
    }
    assert (attempt.resource["service.name"], attempt.resource["peerd.slot"]) == ("peerd", "traced-1")

    (user_span,) = wait_for_spans(collector, 1, "in the coroutine")
    (sent,) = wait_for_spans(collector, 1, "send traced")
    assert (user_span.parent_id, sent.kind, sent.parent_id) == (attempt.span_id, PRODUCER, user_span.span_id)
    (next_attempt,) = wait_for_spans(collector, 1, "process traced", peerd__handler="thread")
    assert (next_attempt.trace_id, next_attempt.links) == (ENQUEUED_BY[0], [(ENQUEUED_BY[0], sent.span_id)])
    assert sent.attributes["messaging.message.id"] == next_attempt.attributes["messaging.message.id"]
    (in_thread,) = wait_for_spans(collector, 1, "in the thread")
    assert in_thread.parent_id == next_attempt.span_id

    (process_attempt,) = wait_for_spans(collector, 1, "process traced", peerd__handler="process")
    (in_process,) = wait_for_spans(collector, 1, "in the process")
    assert (in_process.trace_id, in_process.parent_id) == (ENQUEUED_BY[0], process_attempt.span_id)


def test_each_attempt_has_a_span_and_a_failure_its_error(collector: OtlpReceiver, cluster: Cluster) -> None:
    cluster.client.enqueue("traced", name="fails_once", trace_context=SAMPLED)
    attempts = wait_for_spans(collector, 2, "process traced", peerd__handler="fails_once")
    first, second = sorted(attempts, key=lambda span: int(str(span.attributes["peerd.attempt"])))
    assert first.links == second.links == [ENQUEUED_BY]
    assert (first.is_error, first.attributes["error.type"]) == (True, "ValueError")
    assert first.description == "ValueError: not yet"
    assert (second.is_error, second.attributes["peerd.outcome"]) == (False, "done")


def test_what_a_schedule_enqueues_has_a_span_of_the_agent(collector: OtlpReceiver, cluster: Cluster) -> None:
    schedules = cluster.client.schedules
    schedules.create("tidy", queue="traced", task="thread", interval="1h")
    eventually(lambda: "tidy" in {one.name for one in schedules.list()}, timeout=WITHIN, message=cluster.describe)
    schedules.run("tidy")
    (attempt,) = wait_for_spans(collector, 1, "process traced")
    (sent,) = wait_for_spans(collector, 1, "send traced")
    assert (sent.resource["peerd.slot"], sent.kind, sent.parent_id, sent.is_error) == ("agent", PRODUCER, "", False)
    assert (attempt.trace_id, attempt.links) == (sent.trace_id, [(sent.trace_id, sent.span_id)])


ERRORS = (
    ("of a coroutine", "handler", "tracked/coroutine"),
    ("of a thread", "handler", "tracked/thread"),
    ("of a process", "handler", "tracked/process"),
    ("of a round", "loop", "Round"),
    ("of a schedule", "schedule", "once"),
    ("of a message handler", "message", "news"),
    ("of background work", "background", None),
    ("of a hook", "hook", "after_attempt"),
    ("of a careless thread", "uncaught", "thread careless"),
    ("of a finalizer", "uncaught", "a finalizer"),
    ("of a request", "request", "GET /page"),
)
COMPLAINT = "the hook of [errors] failed"


def test_each_kind_of_error_comes_once_with_its_traceback_and_hooks_that_fail_harm_nothing(
    collector: OtlpReceiver, cluster: Cluster, node: ClusterNode
) -> None:
    client, folder = cluster.client, cluster.folder
    for text in (NOT_SAMPLED, "garbage\n" * 60, "ünïcode"):  # of which none is a parent, and the first is not sent
        cluster.done(client.enqueue("traced", name="thread", trace_context=text))
    assert httpx.get(f"http://127.0.0.1:{node.port()}/page").status_code == 500
    failing = {name: client.enqueue("tracked", name=name) for name in ("coroutine", "thread", "process", "late")}
    for job in failing.values():
        cluster.wait_until(job, Status.DEAD)
    again = client.enqueue("tracked", name="asks_for_another")
    cluster.done(again)
    for queue, name in (("refusing", "listens"), ("tracked", "does_the_rest"), ("tracked", "leaves_uncaught")):
        cluster.done(client.enqueue(queue, name=name))
    for name in ("stuck", "dies"):
        failing[name] = client.enqueue("tracked", name=name)
        cluster.wait_until(failing[name], Status.DEAD)
    cluster.done(client.enqueue("tracked", name="leaves_a_finalizer"))
    eventually(lambda: "of a finalizer" in (folder / "errors").read_text(), timeout=WITHIN)
    for kind in ("raising", "hanging"):
        for _ in range(5):
            cluster.wait_until(client.enqueue(kind, name="coroutine"), Status.DEAD)
        cluster.done(client.enqueue(kind, name="asks_for_another"))
    eventually(lambda: COMPLAINT in node.log_text() and (folder / "hangs").exists(), timeout=WITHIN)
    assert node.stop() == 0, "its end waits a moment only"
    [line] = [line for line in node.log_text().splitlines() if COMPLAINT in line and "slot=raising-1" in line]
    assert "the error tracker is away" in line

    spans = collector.named("process traced")
    assert [(span.parent_id, span.links) for span in spans] == [("", [])] * 2, "the last are sent at the end"

    found = [json.loads(line) for line in (folder / "errors").read_text().splitlines()]
    by_error = {one["error"]: one for one in found if one.get("queue") != "traced"}
    for text, kind, what in ERRORS:
        one = by_error[f"LookupError: {text}"]
        assert (one["kind"], one["node"]) == (kind, "one")
        assert what in (None, one["what"]), one
        assert one["traceback"].rstrip().endswith(f"LookupError: {text}")
        assert one["raised"] == (None if text == "of a process" else "LookupError")
    assert len(by_error) == len([one for one in found if one.get("queue") != "traced"]), f"each comes once: {found}"
    of_thread = by_error["LookupError: of a thread"]
    expected = {"task_id": str(failing["thread"].id), "queue": "tracked", "handler": "thread"}
    assert of_thread.items() >= (expected | {"attempt": "1", "will_retry": "False", "slot": "jobs-1"}).items()
    by_task = {one["task_id"]: one for one in found if one.get("task_id")}
    assert "it ran longer than its timeout" in by_task[str(failing["late"].id)]["error"]
    assert "in stuck" in by_task[str(failing["stuck"].id)]["traceback"]
    assert by_task[str(failing["stuck"].id)]["slot"] == "agent"
    [crash] = [one for one in found if one["kind"] == "crash"]
    assert (crash["what"], "exit status 9" in crash["error"]) == (f"tasks {failing['dies'].id}", True)
    assert str(again.id) not in by_task, "asking for another attempt is no error"
    assert len([one for one in found if one["kind"] == "process"]) == 1, found
