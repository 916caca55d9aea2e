"""An ASGI app with the metrics of a node and nothing else, for nodes that serve no API.

It answers every client that its address can be reached from, as exporters of metrics do: bind it accordingly.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from peerd.runtime.metrics.node_metrics import MetricsNotAvailable, NotServedByNode
from peerd.web.node_metrics import expose_node_metrics

TEXT: Final = "text/plain; charset=utf-8"
INDEX: Final = b"peerd: /metrics, /health/live\n"


async def metrics_app(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request: ``/metrics`` and ``/health/live``."""
    if scope["type"] == "lifespan":
        await _run_lifespan(receive, send)
    elif scope["type"] != "http":
        await send({"type": "websocket.close"})
    elif scope["method"] not in {"GET", "HEAD"}:
        await _answer(scope, send, HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
    else:
        await _answer(scope, send, *await _route(scope))


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


async def _answer(scope: Any, send: Any, status: HTTPStatus, body: bytes, media_type: str = TEXT) -> None:
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
