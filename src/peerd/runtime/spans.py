"""The spans of tasks by the messaging conventions of OpenTelemetry (1.44): `send QUEUE`, and `process QUEUE`.

A span of an attempt is a child of the span that enqueued the task, and linked to it: the link is what the conventions
ask for, the parent makes it one trace and has its sampling hold for the attempts. Needs the extra `otel`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from peerd.domain.outcome import Canceled, Failed, Outcome
from peerd.domain.task import Task

SYSTEM: Final = "peerd"
OTHER_ERROR: Final = "_OTHER"
"""What the conventions have for an error without a class."""
MAX_DESCRIPTION: Final = 1_000  # characters of an error in a span
_PROPAGATOR: Final = TraceContextTextMapPropagator()
MAX_TEXT: Final = 512  # characters of the column
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def start_send_span(queues: Sequence[str]) -> Span | None:
    """The span of an enqueue of one task for each of these queues; None where no span would be recorded or passed on.

    Args:
        queues: of the tasks; equal ones are one destination.
    """
    destination = queues[0] if len(set(queues)) == 1 else None
    attributes = _attributes("send", destination)
    if len(queues) != 1:
        attributes["messaging.batch.message_count"] = len(queues)
    name = f"send {destination}" if destination else "send"
    span = _tracer().start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
    return span if span.get_span_context().is_valid else None


def end_send_span(span: Span, error: BaseException | None, message_id: int | None) -> None:
    """End the span of an enqueue, which has failed with an error or has written a task."""
    if error is not None:
        _set_error(span, f"{type(error).__module__}.{type(error).__qualname__}", str(error))
    elif message_id is not None:
        span.set_attribute("messaging.message.id", str(message_id))
    span.end()


def text_of_span(span: Span) -> str | None:
    """The text for the column `trace_context` that leads to a span."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, trace.set_span_in_context(span))
    return format_trace_context(headers)


def current_trace_context() -> str | None:
    """The text for the column `trace_context` that leads to the current span; None without one."""
    return text_of_span(trace.get_current_span())


@contextmanager
def current_remote(text: str | None) -> Iterator[None]:
    """Make a span of another process the current one."""
    token = context.attach(_PROPAGATOR.extract(parse_trace_context(text)))
    try:
        yield
    finally:
        context.detach(token)


class AttemptTracer:
    """Makes the spans of the attempts of one process.

    Args:
        node: the name of its node.
        slot: its slot.
    """

    def __init__(self, node: str, slot: str) -> None:
        self._client_id = f"{node}/{slot}"
        self._tracer = _tracer()

    @contextmanager
    def span_of(self, task: Task) -> Iterator[Span]:
        """The span of an attempt, which is the current one in the block."""
        creation = _PROPAGATOR.extract(parse_trace_context(task.trace_context))
        creation_span = trace.get_current_span(creation).get_span_context()
        attributes = _attributes("process", task.queue) | {
            "messaging.message.id": str(task.id),
            "messaging.client.id": self._client_id,
            "peerd.handler": task.name,
            "peerd.attempt": task.attempts + 1,
        }
        with self._tracer.start_as_current_span(
            f"process {task.queue}",
            context=creation,
            kind=SpanKind.CONSUMER,
            links=[Link(creation_span)] if creation_span.is_valid else [],
            attributes=attributes,
        ) as span:
            yield span

    def record(self, span: Span, outcome: Outcome) -> None:
        """Write the outcome of an attempt into its span."""
        match outcome:
            case Failed():
                span.set_attribute("peerd.outcome", outcome.label)
                _set_error(
                    span, outcome.label if outcome.label == "timeout" else _class_in(outcome.error), outcome.error
                )
            case Canceled():
                span.set_attribute("peerd.outcome", "canceled")
            case _:
                span.set_attribute("peerd.outcome", type(outcome).__name__.lower())


def _tracer() -> trace.Tracer:
    return trace.get_tracer("peerd")


def _attributes(operation: str, destination: str | None) -> dict[str, Any]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    return attributes | ({"messaging.destination.name": destination} if destination else {})


def _set_error(span: Span, kind: str, description: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, description[:MAX_DESCRIPTION]))


def _class_in(error: str) -> str:
    """The class of the exception that the text of an error begins with.

    >>> _class_in("ValueError: not yet"), _class_in("it was late")
    ('ValueError', '_OTHER')
    """
    name = error.partition(":")[0]
    return name if name.isascii() and name.replace(".", "").isidentifier() else OTHER_ERROR


# ---------------------------------------------------------------- trace context


def format_trace_context(headers: Mapping[str, str]) -> str | None:
    """The text for the headers of a propagator; None without a traceparent.

    Of a tracestate that is too long, the members at its end are left out, as W3C has it.

    >>> format_trace_context({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"})
    '00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01 vendor=1'
    """
    traceparent = headers.get("traceparent", "")
    if _TRACEPARENT.fullmatch(traceparent) is None:
        return None
    members = [member for member in headers.get("tracestate", "").split(",") if member.strip()]
    while members and len(traceparent) + 1 + len(",".join(members)) > MAX_TEXT:
        members.pop()
    return f"{traceparent} {','.join(members)}" if members else traceparent


def parse_trace_context(text: str | None) -> dict[str, str]:
    """The headers for a propagator; none of what is no trace context: any program may have written it.

    >>> parse_trace_context(f"00-{'a' * 32}-{'b' * 16}-01 vendor=1")["tracestate"], parse_trace_context("garbage")
    ('vendor=1', {})
    """
    traceparent, _, tracestate = (text or "").partition(" ")
    if _TRACEPARENT.fullmatch(traceparent) is None:
        return {}
    return {"traceparent": traceparent} | ({"tracestate": tracestate} if tracestate else {})
