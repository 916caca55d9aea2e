"""Contents of files: relayed between clients and the nodes that have disks, a block at a time.

The web process is the client of the nodes, with the cluster's secret; a client of the API needs its token alone, and
reaches this address alone. The operations of `client.files` check its rights and its files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from io import BufferedReader
from typing import IO, Any, Final, cast
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from peerd.domain.files import StoredFile
from peerd.operate.client import AioClient
from peerd.operate.files import FileOperations
from peerd.operate.operations import BlockingMode
from peerd.storage.server.ranges import (
    ContentRange,
    RangeNotSatisfiable,
    failed_condition,
    http_date,
    parse_range,
    range_still_holds,
)
from peerd.web.body_relay import relay_body
from peerd.web.dependencies import AioClientDependency
from peerd.web.file_uploads import UploadSource
from peerd.web.problems import documented, problem_response
from peerd.web.put_requests import BINARY, METADATA, BucketName, FileKey, file_as_json, options_of, path_of

router = APIRouter(prefix="/files", tags=["files"])
BLOCK: Final = 1024 * 1024
READERS: Final = 16
"""Threads that read blocks for downloads."""
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
    HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_IMPLEMENTED
)
DELETE_ERRORS: Final = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_readers: Final = ThreadPoolExecutor(READERS, thread_name_prefix="peerd-download")


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
    await client.files.remove(path_of(request, bucket, key))


async def _answer(request: Request, path: str, client: AioClient) -> Response:
    reader: BufferedReader = await _in_thread(partial(_files_of(client).open, path))
    is_handed_over = False
    try:
        file: StoredFile = reader.raw.file  # type: ignore[attr-defined]  # it is a FileReader
        headers, tags = _headers_of(file), {tag for tag in (file.etag, file.blake3) if tag is not None}
        status = failed_condition(request.headers, tags, file.created_at)
        if status == HTTPStatus.NOT_MODIFIED:
            return Response(None, status, {"etag": headers["etag"]})
        if status is not None:
            return problem_response(HTTPStatus(status), "ConditionFailed", "the file is another version")
        wanted = request.headers.get("range") if range_still_holds(request.headers, tags, file.created_at) else None
        try:
            part = parse_range(wanted, file.size)
        except RangeNotSatisfiable:
            problem = f"the file has {file.size} bytes"
            of_all = {"content-range": f"bytes */{file.size}"}
            status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            return problem_response(status, "RangeNotSatisfiable", problem, headers=of_all)
        start, stop = part or ContentRange(0, file.size)
        if part is not None:
            headers["content-range"] = f"bytes {start}-{stop - 1}/{file.size}"
        headers["content-length"] = str(stop - start)
        status = HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT
        if request.method == "HEAD":
            return Response(None, status, headers)
        first = await _in_thread(partial(_read_first, reader, start, min(BLOCK, stop - start)))
        is_handed_over = True
        return StreamingResponse(_blocks(reader, first, stop - start), status, headers)
    finally:
        if not is_handed_over:
            await _in_thread(reader.close)


async def _blocks(reader: BufferedReader, first: bytes, count: int) -> AsyncIterator[bytes]:
    """So many bytes. What is not verified ends the response before its end."""
    try:
        data, left = first, count
        while data:
            yield data
            left -= len(data)
            data = await _in_thread(partial(reader.read, min(BLOCK, left)))
    finally:
        await asyncio.shield(_in_thread(reader.close))


def _read_first(reader: BufferedReader, start: int, count: int) -> bytes:
    reader.seek(start)
    return reader.read(count)


def _in_thread(function: Any) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().run_in_executor(_readers, function)


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


def _headers_of(file: StoredFile) -> dict[str, str]:
    """The headers of a content: whatever it is, a browser neither shows nor runs it as a page of this site."""
    headers = {
        "content-type": file.content_type or "application/octet-stream",
        "content-disposition": "attachment",
        "content-security-policy": "sandbox; default-src 'none'",
        "accept-ranges": "bytes",
        "etag": f'"{file.etag or file.blake3}"',
        "last-modified": http_date(file.created_at),
        "x-peerd-blake3": file.blake3,
        "x-peerd-version": str(file.version),
    }
    return headers | {f"{METADATA}{name}": quote(value, safe=" ") for name, value in file.metadata.items()}
