"""The metrics of the node whose web process serves an app, and an ASGI app with nothing else.

The app is for nodes that serve no API. It answers every client that its address can be reached from, as exporters of
metrics do: bind it accordingly.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
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


# ---------------------------------------------------------------- an app with nothing else


TEXT: Final = "text/plain; charset=utf-8"
INDEX: Final = b"peerd: /metrics, /health/live\n"


async def metrics_app(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request: ``/metrics`` and ``/health/live``."""
    if scope["type"] == "lifespan":
        await _run_lifespan(receive, send)
    elif scope["type"] != "http":
        await send({"type": "websocket.close"})
    elif scope["method"] not in {"GET", "HEAD"}:
        await _send_answer(scope, send, HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
    else:
        await _send_answer(scope, send, *await _route(scope))


async def _route(scope: Any) -> tuple[HTTPStatus, bytes, str]:
    match scope["path"]:
        case "/metrics":
            accept = b", ".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
            try:
                return HTTPStatus.OK, *await expose_node_metrics(scope.get("state", {}).get("peerd"), accept)
            except (MetricsNotAvailable, NotServedByNode) as error:
                return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(errors="backslashreplace"), TEXT
        case "/health/live":
            return HTTPStatus.OK, b"ok\n", TEXT
        case "/":
            return HTTPStatus.OK, INDEX, TEXT
        case _:
            return HTTPStatus.NOT_FOUND, INDEX, TEXT


async def _send_answer(scope: Any, send: Any, status: HTTPStatus, body: bytes, media_type: str = TEXT) -> None:
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _run_lifespan(receive: Any, send: Any) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
