"""One request of S3 with its response: the body is verified while it is read, errors are worded as S3 words them."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import to_thread
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from peerd.domain import file_errors
from peerd.domain.access import FileAccessKey
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.storage.auditing import FileAuditor
from peerd.storage.awaiting import Steps, TooFewDurable, threads_of
from peerd.storage.disk.errors import DiskError
from peerd.storage.node import StorageNode
from peerd.storage.receiving import BodyDiffers, NoDiskHasRoom
from peerd.storage.s3.bodies import BodyDigests, BodyReader
from peerd.storage.s3.documents import DECLARATION, XmlChild, readable, xml_document
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.requests import S3Request
from peerd.storage.s3.signature import VerifiedSignature
from peerd.storage.server.http_io import Request, Response
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.storage.transfer.node_signature import NodeSignatureRefused

KEPT_OPEN_EVERY: Final = 10.0
"""Seconds after which a space is sent to a client that waits for a document, as S3 does; clients wait for 60 s."""
DRAINED: Final = 16 * 1024 * 1024
"""Bytes of a refused body that are read, so that the connection can be used again, and the response arrives."""

_CODE_OF: Final[Mapping[type[Exception], S3Code]] = {
    file_errors.InvalidFile: S3Code.InvalidArgument,
    file_errors.FileMissing: S3Code.NoSuchKey,
    file_errors.BucketNotFound: S3Code.NoSuchBucket,
    file_errors.BucketNotEmpty: S3Code.BucketNotEmpty,
    file_errors.FileClassNotFound: S3Code.InvalidStorageClass,
    file_errors.QuotaExceeded: S3Code.EntityTooLarge,
    file_errors.FileConditionFailed: S3Code.PreconditionFailed,
    file_errors.UploadGone: S3Code.NoSuchUpload,
    BodyDiffers: S3Code.InternalError,
    NodeSignatureRefused: S3Code.AccessDenied,
    NoDiskHasRoom: S3Code.ServiceUnavailable,
    TooFewDurable: S3Code.ServiceUnavailable,
    NoSourceLeft: S3Code.ServiceUnavailable,
    SourceFailed: S3Code.ServiceUnavailable,
    DatabaseUnavailable: S3Code.ServiceUnavailable,
    DiskError: S3Code.ServiceUnavailable,
    PeerdError: S3Code.InternalError,
}
_WITHOUT_DETAILS: Final = (
    DiskError, DatabaseUnavailable, NoSourceLeft, SourceFailed, file_errors.BucketNotFound,
    file_errors.FileClassNotFound,
)  # fmt: skip
"""Their texts name paths, hosts, copies, or what else there is, which are nothing for a client of S3."""


class S3Response(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent before the content of an object, or instead of one. Headers have names in lower case."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    content: tuple[int, int] | None = None
    """The first byte of the object that a GET is answered with, and the one behind the last; None if there are none."""


def document_response(
    root: str, content: Iterable[XmlChild] = (), headers: Mapping[str, str] | None = None
) -> S3Response:
    """A response with an XML document, and further headers."""
    return S3Response(headers={"content-type": "application/xml", **(headers or {})}, body=xml_document(root, content))


def as_s3_error(error: Exception) -> S3Error | None:
    """The error that a client gets; None for a fault of the program.

    >>> str(as_s3_error(file_errors.BucketNotFound("films", ["private"])))
    'there is no bucket of this name'
    """
    if isinstance(error, S3Error):
        return error
    if isinstance(error, file_errors.FileConditionFailed) and error.is_missing:
        return S3Error(S3Code.NoSuchKey, str(error))
    code = next((_CODE_OF[base] for base in type(error).__mro__ if base in _CODE_OF), None)
    if code is None:
        return None
    is_private = code is S3Code.InternalError or isinstance(error, _WITHOUT_DETAILS)
    return S3Error(code, None if is_private else str(error))


def error_response(error: S3Error, *, resource: str = "", request_id: str = "", is_head: bool = False) -> S3Response:
    """The response to a request that was refused; a response to HEAD has no document.

    Arguments: ``resource``: the path of the request; ``request_id``: by which its log lines are found.
    """
    headers = {"x-amz-request-id": request_id} if request_id else {}
    if (region := error.details.get("Region")) is not None:  # a client cannot read it from a document, after HEAD
        headers["x-amz-bucket-region"] = region
    if is_head:
        return S3Response(status=error.code.status, headers=headers)
    elements = {"Code": error.code.name, "Message": str(error), **error.details}
    elements |= {"Resource": resource, "RequestId": request_id}
    document = xml_document("Error", [(name, readable(text)) for name, text in elements.items()], namespace=None)
    return S3Response(status=error.code.status, headers={"content-type": "application/xml"} | headers, body=document)


class S3Exchange:
    """A request that was admitted.

    Args:
        node: which serves it.
        key: by which it was signed.
        verified: its signature.
        request: what is asked for.
        incoming: the request with its body.
        response: to it.
        request_id: by which it is named.
    """

    def __init__(
        self,
        node: StorageNode,
        key: FileAccessKey,
        verified: VerifiedSignature,
        request: S3Request,
        incoming: Request,
        response: Response,
        request_id: str,
    ) -> None:
        self.node = node
        self.key = key
        self.request = request
        self.incoming = incoming
        self.response = response
        self.request_id = request_id
        client = incoming.scope.get("client")
        self.auditor = FileAuditor.of_access_key(key, None if client is None else str(client[0]))
        self._verified = verified

    def content_reader(self, algorithm: str | None = None) -> BodyReader:
        """What verifies a body that is stored, and computes a checksum of it.

        Raises S3Error: MissingContentLength, and other S3Error for headers that cannot be read.
        """
        if self.request.http.header("content-length") is None and self.request.http.header("transfer-encoding") is None:
            raise S3Error(S3Code.MissingContentLength)
        return BodyReader(self.request.http, self._verified, algorithm=algorithm)

    async def receive(self, reader: BodyReader, write: Callable[[bytes], object]) -> BodyDigests:
        """Read the body, write what it stands for, and verify it.

        Raises S3Error, what ``write`` raises, and ClientGone.
        """

        def take(block: bytes | bytearray) -> None:
            if data := reader.feed(bytes(block)):
                write(data)

        await self.incoming.write_to(take)
        return await to_thread(reader.finish)

    async def document(self, limit: int, *, has_checksum_headers: bool = True) -> bytes:
        """The whole body, verified. Raises S3Error, and ClientGone."""
        reader = BodyReader(self.request.http, self._verified, has_checksum_headers=has_checksum_headers)
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

        If the work fails after the first space, the status was 200 already, and the document tells the error.
        """
        task = asyncio.create_task(self.node.awaited.carry_out(work, threads_of(self.node.copying)))
        try:
            while not (await asyncio.wait([task], timeout=KEPT_OPEN_EVERY))[0]:
                if not self.response.has_begun:
                    headers = {"content-type": "application/xml", "x-amz-request-id": self.request_id}
                    await self.response.begin(200, headers)
                    await self.response.bytes(DECLARATION.encode() + b"\n")
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
            path = self.request.http.path.decode("utf-8", "replace")
            answer = error_response(failure, resource=path, request_id=self.request_id)
        await self.response.bytes(answer.body.removeprefix(DECLARATION.encode()), is_last=True)


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
