"""One request of S3 with its response: the body is verified while it is read, the response has an id."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import to_thread
from collections.abc import Callable
from typing import Final

from peerd.domain.access import FileAccessKey
from peerd.storage.auditing import FileAuditor
from peerd.storage.awaiting import Steps, threads_of
from peerd.storage.node import StorageNode
from peerd.storage.s3.bodies import BodyDigests, BodyReader
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.responses import S3Owner, S3Response, error_response
from peerd.storage.s3.signature import VerifiedSignature
from peerd.storage.s3_front.failures import as_s3_error
from peerd.storage.server.http_io import Request, Response

OWNER: Final = S3Owner("peerd", "peerd")
"""All buckets belong to the cluster."""
KEPT_OPEN_EVERY: Final = 10.0
"""Seconds after which a space is sent to a client that waits for a document, as S3 does; clients wait for 60 s."""
DRAINED: Final = 16 * 1024 * 1024
"""Bytes of a refused body that are read, so that the connection can be used again, and the response arrives."""


class S3Exchange:
    """A request that was admitted.

    Args:
        node: which serves it.
        key: by which it was signed.
        verified: its signature.
        http: its head.
        request: with its body.
        response: to it.
        request_id: by which it is named.
    """

    def __init__(
        self,
        node: StorageNode,
        key: FileAccessKey,
        verified: VerifiedSignature,
        http: S3HttpRequest,
        request: Request,
        response: Response,
        request_id: str,
    ) -> None:
        self.node = node
        self.key = key
        self.http = http
        self.request = request
        self.response = response
        self.request_id = request_id
        client = request.scope.get("client")
        self.auditor = FileAuditor.of_access_key(key, None if client is None else str(client[0]))
        self._verified = verified

    def content_reader(self, algorithm: str | None = None) -> BodyReader:
        """What verifies a body that is stored, and computes a checksum of it.

        Raises S3Error: MissingContentLength, and other S3Error for headers that cannot be read.
        """
        if self.http.header("content-length") is None and self.http.header("transfer-encoding") is None:
            raise S3Error(S3Code.MissingContentLength)
        return BodyReader(self.http, self._verified, algorithm=algorithm)

    async def receive(self, reader: BodyReader, write: Callable[[bytes], object]) -> BodyDigests:
        """Read the body, write what it stands for, and verify it.

        Raises S3Error, what ``write`` raises, and ClientGone.
        """

        def take(block: bytes | bytearray) -> None:
            if data := reader.feed(bytes(block)):
                write(data)

        await self.request.write_to(take)
        return await to_thread(reader.finish)

    async def document(self, limit: int, *, has_checksum_headers: bool = True) -> bytes:
        """The whole body, verified. Raises S3Error, and ClientGone."""
        reader = BodyReader(self.http, self._verified, has_checksum_headers=has_checksum_headers)
        if reader.length > limit:
            raise S3Error(S3Code.MaxMessageLengthExceeded)
        whole = bytearray()
        await self.receive(reader, whole.extend)
        return bytes(whole)

    async def send(self, answer: S3Response) -> None:
        """Send a response that has no content of an object."""
        await send_response(self.response, answer, self.request_id)

    async def send_when_done(self, work: Steps[S3Response]) -> None:
        """Copy contents, then send a document: meanwhile the connection is kept open by spaces before it.

        If the work fails after the first space, the status was 200 already, and the document is that of the error.
        """
        task = asyncio.create_task(self.node.awaited.carry_out(work, threads_of(self.node.copying)))
        try:
            while not (await asyncio.wait([task], timeout=KEPT_OPEN_EVERY))[0]:
                if not self.response.has_begun:
                    headers = {"content-type": "application/xml", "x-amz-request-id": self.request_id}
                    await self.response.begin(200, headers)
                    await self.response.bytes(_DECLARATION + b"\n")
                await self.response.bytes(b" ")
        finally:
            if not task.done():  # the client has gone: threads cannot be interrupted, the work is done to its end
                with contextlib.suppress(Exception):
                    await asyncio.shield(task)
        if not self.response.has_begun:
            await self.send(await task)
            return
        try:
            answer = await task
        except Exception as error:
            failure = as_s3_error(error)
            if failure is None:
                raise
            answer = self.error(failure)
        await self.response.bytes(answer.body.removeprefix(_DECLARATION), is_last=True)

    def error(self, error: S3Error) -> S3Response:
        """The response to a request that has failed."""
        path = self.http.path.decode("utf-8", "replace")
        return error_response(error, resource=path, request_id=self.request_id, is_head=self.http.method == "HEAD")


_DECLARATION: Final = b'<?xml version="1.0" encoding="UTF-8"?>'


async def send_response(response: Response, answer: S3Response, request_id: str, *, closes: bool = False) -> None:
    """Send a response of S3 with its document, if it has one."""
    headers: dict[str, str | int] = {"x-amz-request-id": request_id, **answer.headers}
    if answer.status not in {204, 304}:
        headers.setdefault("content-length", len(answer.body))
    if closes:
        headers["connection"] = "close"
    await response.begin(answer.status, headers)
    await response.bytes(answer.body, is_last=True)


async def drain(request: Request) -> bool:
    """Read what is left of a small body that was refused; whether all of it was read.

    A client that waits for ``100 Continue`` has sent none of it, and gets its response at once.
    """
    length = request.content_length
    if request.is_received or (length is None and "transfer-encoding" not in request.headers) or length == 0:
        return True
    if length is None or length > DRAINED or "expect" in request.headers:
        return False
    async for _ in request.blocks():
        pass
    return True
