from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from peerd import Client
from peerd.domain.errors import InvalidTask, NodeNotFound
from peerd.domain.task import NewTask
from peerd.runtime import enqueue_span, spans
from peerd.runtime.spans import MAX_TEXT, format_trace_context, parse_trace_context
from peerd.store.schema.migrate import migrate

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Recorder:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")

    def sent(self) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("send")]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(spans, "_tracer", lambda: recorder.tracer)
    return recorder


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(f"sqlite:///{tmp_path / 'traced.sqlite'}") as client:
        migrate(client.database)
        yield client


def context_of(span: ReadableSpan) -> str:
    found: Any = span.get_span_context()
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


@given(st.text(max_size=600))
def test_any_text_of_the_column_is_a_parent_or_none(text: str) -> None:
    headers = parse_trace_context(text)
    assert headers == {} or set(headers) <= {"traceparent", "tracestate"}
    with spans.current_remote(text):
        trace.get_current_span()


@given(st.lists(st.text("abc=1;_-", max_size=200), max_size=40))
def test_the_text_fits_into_the_column_and_loses_members_at_the_end(members: list[str]) -> None:
    state = ",".join(members)
    text = format_trace_context({"traceparent": PARENT, "tracestate": state})
    assert text is not None
    assert len(text) <= MAX_TEXT
    kept = parse_trace_context(text).get("tracestate", "")
    wanted = [member for member in members if member.strip()]
    assert kept.split(",") == wanted[: len(kept.split(","))] or kept == ""
    NewTask(queue="q", trace_context=text)


async def test_an_enqueue_has_a_span_and_the_task_leads_to_it(client: Client, recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("request") as request:
        jobs = [client.enqueue("mail", name="greet", body={})]
    jobs.append(await client.aio.enqueue("mail"))
    with client.database.engine.begin() as connection:
        jobs.append(client.enqueue_in(connection, "mail"))
    sent = recorder.sent()
    assert [client.tasks.get(job.id).trace_context for job in jobs] == [context_of(one) for one in sent]
    assert sent[0].parent == request.get_span_context()
    assert (sent[0].name, sent[0].kind) == ("send mail", trace.SpanKind.PRODUCER)
    attributes = dict(sent[0].attributes or {})
    assert attributes["messaging.message.id"] == str(jobs[0].id)
    assert attributes["messaging.destination.name"] == "mail"


def test_many_tasks_have_one_span_which_a_repetition_does_not_change(client: Client, recorder: Recorder) -> None:
    batch: list[tuple[str, Any]] = [("mail", {}), ("video", {}), ("video", {"trace_context": PARENT})]
    jobs = client.enqueue_batch(batch, idempotency_key="key")
    (sent,) = recorder.sent()
    assert (sent.name, dict(sent.attributes or {})["messaging.batch.message_count"]) == ("send", 3)
    contexts = [client.tasks.get(job.id).trace_context for job in jobs]
    assert contexts == [context_of(sent), context_of(sent), PARENT], "a context that is given stays"
    again = client.enqueue_batch(batch, idempotency_key="key")
    assert ([job.id for job in again], len(recorder.sent())) == ([job.id for job in jobs], 2)
    with pytest.raises(NodeNotFound):
        client.enqueue("mail", node="missing")
    with pytest.raises(InvalidTask):
        client.enqueue("no spaces")
    [_, _, failed] = recorder.sent()
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"] == "peerd.domain.errors.NodeNotFound"


def test_without_a_provider_nothing_is_written(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert enqueue_span.begin_enqueue_span([NewTask(queue="mail")]) is None
    assert client.tasks.get(client.enqueue("mail").id).trace_context is None
    monkeypatch.setattr(spans, "start_send_span", lambda _: pytest.fail("OpenTelemetry is not loaded"))
    monkeypatch.setattr(enqueue_span, "_API", "opentelemetry.absent")
    assert enqueue_span.begin_enqueue_span([NewTask(queue="mail")]) is None
