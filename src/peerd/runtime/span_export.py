"""Sets up OpenTelemetry in a process of a node: spans go to an OTLP collector over HTTP. Needs the extra `otel`.

The standard variables OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and others hold. A provider that the user's code
has set is used as it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

FLUSH_WITHIN: Final = 2.0
"""Seconds that the last spans of a process may take; a collector that does not answer must not delay its end."""


def set_up_tracing(node: str, slot: str) -> Callable[[], None]:
    """Export the spans of this process; return the function that sends the last ones at its end.

    Args:
        node: the name of the node.
        slot: the slot of the process.
    """
    present = trace.get_tracer_provider()
    if isinstance(present, TracerProvider):
        return _flusher(present)
    attributes = {"service.instance.id": f"{node}/{slot}", "peerd.node": node, "peerd.slot": slot}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = "peerd"
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return _flusher(provider)


def _flusher(provider: TracerProvider) -> Callable[[], None]:
    def flush() -> None:
        thread = threading.Thread(target=provider.force_flush, name="peerd-spans", daemon=True)
        thread.start()
        thread.join(FLUSH_WITHIN)

    return flush
