"""The ASGI app of a node's storage: who may ask, what for, the responses to errors, and what is counted of requests."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import to_thread
from collections.abc import Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from peerd.domain import file_errors
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.storage.auditing import InvalidActor
from peerd.storage.awaiting import TooFewDurable
from peerd.storage.disk.errors import DiskError
from peerd.storage.node import StorageNode
from peerd.storage.receiving import BodyDiffers, NoDiskHasRoom
from peerd.storage.s3_front.front import is_s3_request, serve_s3
from peerd.storage.server import file_routes, node_routes, upload_routes
from peerd.storage.server.http_io import ZERO_COPY, BodyTooLarge, ClientGone, Receive, Request, Response, Scope, Send
from peerd.storage.server.node_routes import BadRequest
from peerd.storage.transfer.errors import NoSourceLeft, error_data
from peerd.storage.transfer.node_signature import HEADER, NodeSignatureRefused

STATUS_OF: Final[Mapping[type[Exception], int]] = {
    BadRequest: 400,
    InvalidActor: 400,
    BodyTooLarge: 413,
    NodeSignatureRefused: 403,
    file_errors.InvalidFile: 422,
    BodyDiffers: 422,
    file_errors.FileMissing: 404,
    file_errors.BucketNotFound: 404,
    file_errors.FileClassNotFound: 422,
    file_errors.QuotaExceeded: 413,
    file_errors.FileConditionFailed: 412,
    file_errors.UploadGone: 410,
    file_errors.UploadPositionDiffers: 409,
    NoDiskHasRoom: 507,
    TooFewDurable: 503,
    NoSourceLeft: 503,
    DatabaseUnavailable: 503,
    DiskError: 503,
    PeerdError: 500,
}


_HANDLERS: Final[Mapping[tuple[str, str, bool], Any]] = {
    ("files", "PUT", True): file_routes.put,
    ("files", "GET", True): file_routes.get,
    ("files", "HEAD", True): file_routes.get,
    ("files", "DELETE", True): file_routes.delete,
    ("files", "POST", True): file_routes.move,
    ("files", "GET", False): file_routes.list_bucket,
    ("uploads", "POST", True): upload_routes.begin,
    ("uploads", "GET", False): upload_routes.show,
    ("uploads", "PUT", False): upload_routes.put_part,
    ("uploads", "POST", False): upload_routes.complete,
    ("uploads", "DELETE", False): upload_routes.abort,
}
"""By the first part of the path, the method, and whether the path has a bucket and a key."""

REFRESH_EVERY: Final = 5.0
"""Seconds between two looks at the disks."""
METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
KINDS: Final = frozenset({"contents", "files", "uploads", "health"})
ABORTED: Final = "aborted"
"""The status of a request that had no response."""
THREADS: Final = 24


class StorageApp:
    """Serves contents to other nodes and files to clients that have the cluster's secret.

    Args:
        node: whose storage it is; None: the storage of the process that serves the app.
    """

    def __init__(self, node: StorageNode | None = None) -> None:
        self._node = node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        node = self._node
        assert node is not None, "the lifespan has begun"
        request = Request(scope, receive)
        kind = "s3" if node.options.s3 and is_s3_request(request) else _split_path(request)[0]
        count = RequestCount(node.metrics, kind, request.method, receive, send)
        try:
            await self._answer(node, Request(scope, count.receive), Response(count.send), is_of_s3=kind == "s3")
        finally:
            count.end()

    async def _answer(self, node: StorageNode, request: Request, response: Response, *, is_of_s3: bool) -> None:
        try:
            if is_of_s3:
                await serve_s3(node, request, response)
            else:
                await self._serve(node, request, response)
        except ClientGone:
            return
        except Exception as error:
            status = next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), None)
            if status is None or response.has_begun:
                raise
            body = {"error": str(error), "code": type(error).__name__, "data": error_data(error)}
            await response.json(body, status, {"connection": "close"} if request.method == "PUT" else {})

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            node = self._node
            if node is None:
                node = await to_thread(StorageNode.of_process, scope["state"]["peerd"])
            await to_thread(node.disks.refresh)
            self._node = node
            # Its threads wait for disks, the database and contents of other nodes; puts wait for copies without one.
            threads = ThreadPoolExecutor(THREADS, thread_name_prefix="peerd-storage")
            asyncio.get_running_loop().set_default_executor(threads)
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        refreshing = asyncio.create_task(_refresh_again_and_again(node))
        await receive()
        refreshing.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, node: StorageNode, request: Request, response: Response) -> None:
        kind, rest = _split_path(request)
        if kind == "health":
            await response.json({"node": node.name, "disks": [disk.number for disk in node.disks.usable()]})
            return
        if HEADER not in request.headers:
            raise NodeSignatureRefused("the request is not signed")
        if (kind, request.method) == ("contents", "POST"):
            body = await request.body(node_routes.MAX_REQUEST)
            node.verifier.verify(request.method, request.target, request.headers, body, is_reading=True)
            await node_routes.send_many(node, body, response)
            return
        node.verifier.verify(request.method, request.target, request.headers)
        if (kind, request.method) == ("contents", "GET"):
            await node_routes.send_content(node, rest, request, response)
        elif kind in {"files", "uploads"}:
            first, _, key = (_decode(part) for part in rest.partition("/"))
            handler: Any = _HANDLERS.get((kind, request.method, bool(key)))
            if handler is None:
                await response.json({"error": "this cannot be done", "code": "MethodNotAllowed"}, 405)
            else:
                await handler(node, *((first, key) if key else (first,)), request, response)
        else:
            await response.json({"error": "there is nothing of this name", "code": "NotFound"}, 404)


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
        """Receive a message of ASGI, and count its bytes of the request's body."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message of ASGI, and count its bytes of the response's body."""
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


async def _refresh_again_and_again(node: StorageNode) -> None:
    """Find disks that were added or mounted, and what they are used for now: the manager is another process."""
    while True:
        await asyncio.sleep(REFRESH_EVERY)
        with contextlib.suppress(DatabaseUnavailable):
            await to_thread(node.disks.refresh)


def _split_path(request: Request) -> tuple[str, str]:
    """The first part of the path, and what follows it."""
    kind, _, rest = request.scope["raw_path"].decode("latin-1").lstrip("/").partition("/")
    return kind, rest


def _decode(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise file_errors.InvalidFile("key", "it is not UTF-8") from None


app = StorageApp()
"""Served by `[storage]` of peerd.toml."""
