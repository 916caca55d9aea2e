"""The ASGI app of a node's storage: who may ask, what for, and the responses to errors."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import to_thread
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from peerd.domain import file_errors
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.storage.auditing import InvalidActor
from peerd.storage.awaiting import TooFewDurable
from peerd.storage.disk.errors import DiskError
from peerd.storage.node import StorageNode
from peerd.storage.receiving import BodyDiffers, NoDiskHasRoom
from peerd.storage.s3_front.front import is_s3_request, serve_s3
from peerd.storage.server import file_routes, node_routes, upload_routes
from peerd.storage.server.http_io import BodyTooLarge, ClientGone, Receive, Request, Response, Scope, Send
from peerd.storage.server.node_routes import BadRequest
from peerd.storage.server.request_counts import RequestCount
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


REFRESH_EVERY: Final = 5.0
"""Seconds between two looks at the disks."""
THREADS: Final = 24


class StorageApp:
    """Serves contents to other nodes and files to clients that have the cluster's secret.

    Args:
        node: whose storage it is; None: that of the process that serves the app.
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
        elif kind == "files":
            await self._serve_file(node, rest, request, response)
        elif kind == "uploads":
            await self._serve_upload(node, rest, request, response)
        else:
            await response.json({"error": "there is nothing of this name", "code": "NotFound"}, 404)

    async def _serve_file(self, node: StorageNode, rest: str, request: Request, response: Response) -> None:
        bucket, _, key = (_decode(part) for part in rest.partition("/"))
        handler: Any = {
            ("PUT", True): file_routes.put,
            ("GET", True): file_routes.get,
            ("HEAD", True): file_routes.get,
            ("DELETE", True): file_routes.delete,
            ("POST", True): file_routes.move,
        }.get((request.method, bool(key)))
        if handler is not None:
            await handler(node, bucket, key, request, response)
        elif request.method == "GET":
            await file_routes.list_bucket(node, bucket, request, response)
        else:
            await response.json({"error": "this cannot be done", "code": "MethodNotAllowed"}, 405)

    async def _serve_upload(self, node: StorageNode, rest: str, request: Request, response: Response) -> None:
        name, _, key = (_decode(part) for part in rest.partition("/"))
        if key and request.method == "POST":
            await upload_routes.begin(node, name, key, request, response)
            return
        handler: Any = {
            "GET": upload_routes.show,
            "PUT": upload_routes.put_part,
            "POST": upload_routes.complete,
            "DELETE": upload_routes.abort,
        }.get(request.method)
        if key or handler is None:
            await response.json({"error": "this cannot be done", "code": "MethodNotAllowed"}, 405)
        else:
            await handler(node, name, request, response)


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
