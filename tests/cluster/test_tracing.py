"""Spans of real nodes, as an OpenTelemetry collector receives them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster
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
    cluster.copy("traced.py")
    cluster.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    workers = {"traced": {**WORKER, "tasks": "traced:traced"}}
    cluster.up("one", workers=workers, sections={"telemetry": {"opentelemetry": True}})
    return cluster


@pytest.fixture
def collector(receiver: OtlpReceiver) -> OtlpReceiver:
    receiver.spans.clear()
    return receiver


def wait_for_spans(collector: OtlpReceiver, count: int, name: str, **attributes: object) -> list[ReceivedSpan]:
    found = eventually(lambda: collector.named(name, **attributes)[count - 1 :] and collector.named(name, **attributes),
                       WITHIN, message=lambda: str(collector.spans))  # fmt: skip
    assert len(found) == count
    return found


def test_attempts_are_linked_to_what_enqueued_them_however_they_run(collector: OtlpReceiver, cluster: Cluster) -> None:
    first = cluster.client.enqueue("traced", name="coroutine", trace_context=f"{SAMPLED} vendor=1")
    other = cluster.client.enqueue("traced", name="process", trace_context=SAMPLED)
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
    assert user_span.parent_id == attempt.span_id
    (sent,) = wait_for_spans(collector, 1, "send traced")
    assert (sent.kind, sent.parent_id) == (PRODUCER, user_span.span_id)
    (next_attempt,) = wait_for_spans(collector, 1, "process traced", peerd__handler="thread")
    assert (next_attempt.trace_id, next_attempt.links) == (ENQUEUED_BY[0], [(ENQUEUED_BY[0], sent.span_id)])
    assert sent.attributes["messaging.message.id"] == next_attempt.attributes["messaging.message.id"]
    (in_thread,) = wait_for_spans(collector, 1, "in the thread")
    assert in_thread.parent_id == next_attempt.span_id

    cluster.done(other)
    (process_attempt,) = wait_for_spans(collector, 1, "process traced", peerd__handler="process")
    (in_process,) = wait_for_spans(collector, 1, "in the process")
    assert (in_process.trace_id, in_process.parent_id) == (ENQUEUED_BY[0], process_attempt.span_id)


def test_each_attempt_has_a_span_and_a_failure_its_error(collector: OtlpReceiver, cluster: Cluster) -> None:
    cluster.done(cluster.client.enqueue("traced", name="fails_once", trace_context=SAMPLED))
    attempts = wait_for_spans(collector, 2, "process traced", peerd__handler="fails_once")
    first, second = sorted(attempts, key=lambda span: int(str(span.attributes["peerd.attempt"])))
    assert first.links == second.links == [ENQUEUED_BY]
    assert (first.is_error, first.attributes["error.type"]) == (True, "ValueError")
    assert first.description == "ValueError: not yet"
    assert (second.is_error, second.attributes["peerd.outcome"]) == (False, "done")


def test_what_a_schedule_enqueues_has_a_span_of_the_agent(collector: OtlpReceiver, cluster: Cluster) -> None:
    cluster.client.schedules.create("tidy", queue="traced", task="coroutine", interval="1h")
    eventually(cluster.client.schedules.list, timeout=WITHIN, message=cluster.describe)
    cluster.client.schedules.run("tidy")
    (attempt,) = wait_for_spans(collector, 1, "process traced", peerd__handler="coroutine")
    sent = next(span for span in wait_for_spans(collector, 2, "send traced") if span.resource["peerd.slot"] == "agent")
    wait_for_spans(collector, 1, "process traced", peerd__handler="thread")
    assert (sent.kind, sent.parent_id, sent.is_error) == (PRODUCER, "", False)
    assert (attempt.trace_id, attempt.links) == (sent.trace_id, [(sent.trace_id, sent.span_id)])
    assert sent.attributes["messaging.message.id"] == attempt.attributes["messaging.message.id"]


def test_what_is_not_sampled_is_not_sent_and_garbage_is_no_parent(collector: OtlpReceiver, cluster: Cluster) -> None:
    for text in (NOT_SAMPLED, "garbage\n" * 60, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ünïcode"):
        cluster.done(cluster.client.enqueue("traced", name="thread", trace_context=text))
    assert cluster.nodes[0].stop() == 0
    found = collector.named("process traced")
    assert len(found) == 3, "the last spans are sent at the end, and the first attempt is not sampled"
    assert {(span.parent_id, *span.links) for span in found} == {("",)}


@pytest.mark.slow
def test_a_collector_that_is_away_harms_nothing(cluster: Cluster) -> None:
    [node] = cluster.nodes
    cluster.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    assert node.stop() == 0
    node.up()
    cluster.done(cluster.client.enqueue("traced", name="coroutine", trace_context=SAMPLED))
    assert node.stop() == 0
    assert "killed" not in node.log_text()
