"""Counts the requests of the storage server, and the bytes of their bodies, for the metrics of the node."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.storage.server.http_io import ZERO_COPY, Receive, Send

METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
KINDS: Final = frozenset({"contents", "files", "uploads", "health"})
ABORTED: Final = "aborted"
"""The status of a request that had no response."""


class RequestCount:
    """Counts one request while it is served.

    Args:
        metrics: of the process.
        kind: what it is for: ``contents``, ``files``, ``uploads``, ``health`` or ``s3``.
        method: of HTTP.
        receive: of ASGI.
        send: of ASGI.
    """

    def __init__(self, metrics: MetricsRegistry, kind: str, method: str, receive: Receive, send: Send) -> None:
        self._metrics = metrics
        self._labels = (kind if kind in KINDS or kind == "s3" else "other", method if method in METHODS else "other")
        self._receive = receive
        self._send = send
        self._received = 0
        self._sent = 0
        self._status = ABORTED

    async def receive(self) -> MutableMapping[str, Any]:
        """As ASGI's; counts the bytes of the request's body."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """As ASGI's; counts the bytes of the response's body."""
        await self._send(message)
        if message["type"] == "http.response.start":
            self._status = f"{message['status'] // 100}xx"
        elif message["type"] == ZERO_COPY:
            self._sent += message["count"]
        else:
            self._sent += len(message.get("body", b""))

    def end(self) -> None:
        """Add it to the metrics."""
        kind, method = self._labels
        self._metrics.count("peerd_storage_requests_total", kind, method, self._status)
        if self._received:
            self._metrics.count("peerd_storage_received_bytes_total", kind, by=self._received)
        if self._sent:
            self._metrics.count("peerd_storage_sent_bytes_total", kind, by=self._sent)
