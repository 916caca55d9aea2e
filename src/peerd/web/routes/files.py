"""Contents of files: relayed between clients and the nodes that have disks, a block at a time.

The web process is the client of the nodes, with the cluster's secret; a client of the API needs its token alone, and
reaches this address alone. The operations of `client.files` check its rights and its files.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import IO, Final, cast

import msgspec
from fastapi import APIRouter, Request, Response

from peerd.domain.files import StoredFile
from peerd.operate.client import AioClient
from peerd.operate.files import FileOperations
from peerd.operate.operations import BlockingMode
from peerd.storage.file_headers import file_as_json
from peerd.web.body_relay import relay_body
from peerd.web.dependencies import AioClientDependency
from peerd.web.downloads import content_response
from peerd.web.file_uploads import UploadSource
from peerd.web.problems import documented
from peerd.web.put_requests import BINARY, BucketName, FileKey, options_of, path_of, refuse_conditions

router = APIRouter(prefix="/files", tags=["files"])
GET_ERRORS: Final = documented(
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.PRECONDITION_FAILED,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.NOT_IMPLEMENTED,
) | {
    200: {"description": "The content.", "content": BINARY},
    206: {"description": "A range of it.", "content": BINARY},
    304: {"description": "The client has it."},
}
PUT_ERRORS: Final = documented(
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.PRECONDITION_FAILED,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.NOT_IMPLEMENTED,
)
DELETE_ERRORS: Final = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)


@router.put(
    "/{bucket}/{key:key}",
    status_code=HTTPStatus.CREATED,
    responses=PUT_ERRORS,
    openapi_extra={"requestBody": {"required": True, "content": BINARY}},
)
async def put(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> Response:
    """Store the body as a file.

    Headers: `content-type`, `x-peerd-class`, `x-peerd-expires-in`, `x-peerd-meta-NAME`; `x-peerd-blake3`, which the
    body must have; `if-none-match: *`, to replace no file.
    """

    def store(source: UploadSource) -> StoredFile:
        path, options = path_of(request, bucket, key), options_of(request)
        return _files_of(client).put_with(cast("IO[bytes]", source), path, options)

    return await relay_body(request, client.actor, store, _stored)


@router.get("/{bucket}/{key:key}", responses=GET_ERRORS, response_class=Response)
async def get(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> Response:
    """The content of a file, or a range of it."""
    return await _answer(request, path_of(request, bucket, key), client)


@router.head("/{bucket}/{key:key}", responses=GET_ERRORS, response_class=Response)
async def head(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> Response:
    """The headers of a file."""
    return await _answer(request, path_of(request, bucket, key), client)


@router.delete(
    "/{bucket}/{key:key}", status_code=HTTPStatus.NO_CONTENT, responses=DELETE_ERRORS, response_class=Response
)
async def delete(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> None:
    """Remove a file."""
    refuse_conditions(request, "if-match", "if-none-match", "if-unmodified-since")
    await client.files.remove(path_of(request, bucket, key))


async def _answer(request: Request, path: str, client: AioClient) -> Response:
    return await content_response(request, await client.files.open(path), {"content-disposition": "attachment"})


def _files_of(client: AioClient) -> FileOperations[BlockingMode]:
    """The operations of the request's actor, for a thread."""
    return FileOperations(client.mode.blocking)


def _stored(stored: StoredFile) -> Response:
    return Response(
        msgspec.json.encode(file_as_json(stored)),
        HTTPStatus.CREATED,
        {"etag": f'"{stored.blake3}"'},
        "application/json",
    )
