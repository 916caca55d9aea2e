"""Reads the metrics of the node whose web process serves an app, and answers with them."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from peerd.domain.errors import MessageError
from peerd.runtime.metrics.exposition import expose
from peerd.runtime.metrics.node_metrics import MetricsNotAvailable, NotServedByNode, read_node_metrics
from peerd.runtime.process.process_context import METRICS_ACTION

TIMEOUT: Final = 3.0
"""Seconds for each page; Prometheus itself waits 10 s for all."""


async def expose_node_metrics(process: Any, accept: str) -> tuple[bytes, str]:
    """The metrics of a process's node in the format that an `Accept` header asks for, and their media type.

    Args:
        process: the `ProcessContext`; None where no process of a node serves the app.
        accept: the header.

    Raises:
        NotServedByNode: there is no node.
        MetricsNotAvailable: its metrics are switched off, or its agent does not answer.
    """
    if process is None:
        raise NotServedByNode
    request = partial(process.messenger.request, "agent", METRICS_ACTION, timeout=TIMEOUT)
    try:
        samples = await read_node_metrics(request)
    except MessageError as error:
        raise MetricsNotAvailable(str(error)) from error
    return expose(samples, accept)
