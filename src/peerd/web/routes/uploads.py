"""Uploads: contents that are put in parts, relayed to the node; a part is durable when it was answered.

An upload that breaks is resumed: its client asks how many bytes are durable, and sends those behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from peerd.domain.file_errors import InvalidFile
from peerd.operate.client import AioClient
from peerd.operate.file_uploads import UploadRelay
from peerd.storage.file_headers import PutOptions, PutTarget
from peerd.storage.upload_protocol import (
    BLAKE3,
    DIGEST,
    MAX_PART,
    MAX_SIZE,
    SOURCE,
    UPLOAD_ID,
    UploadState,
    upload_as_json,
)
from peerd.storage.upstream import Upstream
from peerd.web.body_relay import relay, relay_body
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import RequestBody
from peerd.web.file_uploads import UploadAborted, UploadSource
from peerd.web.problems import documented
from peerd.web.put_requests import BINARY, BucketName, FileKey, options_of, path_of

router = APIRouter(prefix="/uploads", tags=["files"])
BLOCK: Final = 1024 * 1024
ABORT_ERRORS: Final = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
ERRORS: Final = ABORT_ERRORS | documented(
    HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_IMPLEMENTED
)
PART_ERRORS: Final = ERRORS | documented(HTTPStatus.INSUFFICIENT_STORAGE)
UploadId = Annotated[
    str, Path(pattern=f"^{UPLOAD_ID}$", min_length=32, max_length=32, examples=["0123456789abcdef0123456789abcdef"])
]


class BeginQuery(RequestBody):
    """What an upload is of."""

    size: int | None = Field(None, ge=0, le=MAX_SIZE, description="Bytes of the whole, if they are known.")
    source: str | None = Field(None, pattern=f"^{SOURCE}$", description="By which its client finds it again.")
    instead_of: str | None = Field(
        None, pattern=f"^{UPLOAD_ID}$", description="An upload of the key whose node is not asked: it does not answer."
    )


class PartQuery(RequestBody):
    """Where a part belongs."""

    offset: int = Field(ge=0, le=MAX_SIZE, description="Where it begins, which is where the durable bytes end.")


class CompletionQuery(RequestBody):
    """What the whole must be."""

    size: int = Field(ge=0, le=MAX_SIZE, description="Bytes.")
    blake3: str = Field(pattern=f"^{BLAKE3}$", description="In hex.", examples=["0" * 64])


class UploadView(BaseModel):
    """An upload, and the file that it has become."""

    id: str
    received: int = Field(description="Bytes that are durable.")
    file: dict[str, Any] | None = Field(None, description="The version, when the upload was completed.")


class UploadOfKeyView(BaseModel):
    """An upload of a key that has not ended."""

    id: str
    received: int = Field(description="Bytes that are durable.")
    source: str | None
    is_lost: bool = Field(description="Its disk was declared lost: nothing can be added to it.")


@router.get("/{bucket}/{key:key}", responses=ERRORS)
async def list_uploads_of_key(
    request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency
) -> list[UploadOfKeyView]:
    """The uploads of a key that have not ended, the one with the most bytes first."""
    ask, path = _relay_of(client).ask_of_path, path_of(request, bucket, key)
    asked = partial(ask, "of_key", path, PutOptions(), lambda nodes, target: nodes.uploads_of(target))
    found = await relay(client.actor, asked)
    return [UploadOfKeyView.model_validate(one, from_attributes=True) for one in found]


@router.post("/{bucket}/{key:key}", status_code=HTTPStatus.CREATED, responses=ERRORS)
async def begin_upload(
    request: Request,
    bucket: BucketName,
    key: FileKey,
    client: AioClientDependency,
    wanted: Annotated[BeginQuery, Query()],
) -> UploadView:
    """Begin an upload. Headers as those of a put; the BLAKE3 goes with the completion."""
    path, options = path_of(request, bucket, key), _options_of(request)

    def begin(nodes: Upstream, target: PutTarget) -> UploadState:
        nodes.check(target, wanted.size)
        return nodes.begin(target, wanted.size, wanted.source, wanted.instead_of)

    return _view(await relay(client.actor, partial(_relay_of(client).ask_of_path, "begin", path, options, begin)))


@router.get("/{upload_id}", responses=ERRORS)
async def show_upload(upload_id: UploadId, client: AioClientDependency) -> UploadView:
    """How many bytes of an upload are durable, by the node that has them; or the file that it has become."""
    ask = _relay_of(client).ask_of_upload
    show = partial(ask, "show", upload_id, lambda nodes, target: nodes.show(target, upload_id))
    return _view(await relay(client.actor, show))


@router.put(
    "/{upload_id}",
    responses=PART_ERRORS | {200: {"description": "The part is durable.", "model": UploadView}},
    openapi_extra={"requestBody": {"required": True, "content": BINARY}},
)
async def put_part(
    request: Request, upload_id: UploadId, client: AioClientDependency, wanted: Annotated[PartQuery, Query()]
) -> Response:
    """Append a part: the body is its bytes, at most 1 GiB, and behind them the 32 bytes of their BLAKE3."""

    def send(source: UploadSource) -> UploadState:
        count, ask = _count_of(request), _relay_of(client).ask_of_upload
        part = upload_id, wanted.offset, count, _blocks(source, count + DIGEST)
        return ask("send", upload_id, lambda nodes, target: nodes.send(target, *part))

    return await relay_body(request, client.actor, send, lambda upload: JSONResponse(upload_as_json(upload)))


@router.post(
    "/{upload_id}",
    status_code=HTTPStatus.CREATED,
    responses=PART_ERRORS | {202: {"description": "It still runs: ask again.", "model": UploadView}},
)
async def complete_upload(
    upload_id: UploadId, client: AioClientDependency, wanted: Annotated[CompletionQuery, Query()], response: Response
) -> UploadView:
    """Make a file of an upload; after it was done, the answer is the same again, for a week."""
    ask, whole = _relay_of(client).ask_of_upload, (upload_id, wanted.size, wanted.blake3)
    complete = partial(ask, "complete", upload_id, lambda nodes, target: nodes.complete(target, *whole))
    file = await relay(client.actor, complete)
    if file is None:
        response.status_code = HTTPStatus.ACCEPTED
    return _view(UploadState(upload_id, wanted.size, file=file))


@router.delete(
    "/{upload_id}",
    status_code=HTTPStatus.NO_CONTENT,
    responses=ABORT_ERRORS,
    response_class=Response,
)
async def abort_upload(upload_id: UploadId, client: AioClientDependency) -> None:
    """Abort an upload; its node removes the bytes."""
    await client.files.uploads.abort(upload_id)


def _relay_of(client: AioClient) -> UploadRelay:
    """What relays for the request's actor, for a thread."""
    return UploadRelay(client.mode.blocking)


def _options_of(request: Request) -> PutOptions:
    """What the headers of a beginning say. Raises InvalidFile."""
    options = options_of(request)
    if options.blake3 is not None:
        raise InvalidFile("x-peerd-blake3", "the BLAKE3 of the whole goes with the completion")
    return msgspec.structs.replace(options, size=None)


def _count_of(request: Request) -> int:
    """The bytes of a part. Raises InvalidFile."""
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and DIGEST < int(length) <= MAX_PART + DIGEST):
        problem = f"a part has 1 to {MAX_PART:,} bytes, and the {DIGEST} of their BLAKE3 behind them"
        raise InvalidFile("content-length", problem)
    return int(length) - DIGEST


def _blocks(source: UploadSource, count: int) -> Iterator[bytes]:
    """So many bytes of a body. Raises UploadAborted if there are fewer."""
    while count:
        data = source.read(min(BLOCK, count))
        if not data:
            raise UploadAborted
        count -= len(data)
        yield data


def _view(upload: UploadState) -> UploadView:
    return UploadView.model_validate(upload_as_json(upload))
