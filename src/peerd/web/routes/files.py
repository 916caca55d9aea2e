"""Contents of files: relayed between clients and the nodes that have disks, a block at a time.

The web process is the client of the nodes, with the cluster's secret; a client of the API needs its token alone, and
reaches this address alone. The operations of `client.files` check its rights and its files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from io import BufferedReader
from typing import IO, Annotated, Any, Final, cast
from urllib.parse import quote, unquote

import msgspec
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from peerd.domain.errors import InvalidTask, PeerdError
from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import MAX_KEY_BYTES, StoredFile
from peerd.operate import validation
from peerd.operate.client import AioClient
from peerd.operate.files import FileOperations
from peerd.operate.operations import BlockingMode
from peerd.storage.put_options import PutOptions
from peerd.storage.server.ranges import (
    ContentRange,
    RangeNotSatisfiable,
    failed_condition,
    http_date,
    parse_range,
    range_still_holds,
    tags_of,
)
from peerd.web.dependencies import AioClientDependency
from peerd.web.file_uploads import FileUploads, UploadSource, drain
from peerd.web.problems import documented, error_response, problem_response

router = APIRouter(prefix="/files", tags=["files"])
BLOCK: Final = 1024 * 1024
READERS: Final = 16
"""Threads that read blocks for downloads."""
METADATA: Final = "x-peerd-meta-"
MAX_METADATA: Final = 8 * 1024
BINARY: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
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
BucketName = Annotated[str, Path(min_length=1, max_length=63, examples=["films"])]
FileKey = Annotated[str, Path(min_length=1, max_length=MAX_KEY_BYTES, examples=["2026/one.mov"])]
_readers: Final = ThreadPoolExecutor(READERS, thread_name_prefix="peerd-download")
_uploads: Final = FileUploads()


@router.put(
    "/{bucket}/{key:path}",
    status_code=HTTPStatus.CREATED,
    responses=PUT_ERRORS,
    openapi_extra={"requestBody": {"required": True, "content": BINARY}},
)
async def put(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> Response:
    """Store the body as a file.

    Headers: `content-type`, `x-peerd-class`, `x-peerd-expires-in`, `x-peerd-meta-NAME`; `x-peerd-blake3`, which the
    body must have; `if-none-match: *`, to replace no file.
    """
    source = UploadSource(request, asyncio.get_running_loop())
    try:
        path, options = _path_of(request, bucket, key), _options_of(request)
        async with _uploads.place() as threads:
            stored = await source.run(threads, partial(_files_of(client).put_with, _as_file(source), path, options))
    except PeerdError as error:
        answer = error_response(error)
        if not await drain(request, source):
            answer.headers["connection"] = "close"
        return answer
    body = msgspec.json.encode(msgspec.to_builtins(stored) | {"id": str(stored.id)})
    return Response(body, HTTPStatus.CREATED, {"etag": f'"{stored.blake3}"'}, "application/json")


@router.get("/{bucket}/{key:path}", responses=GET_ERRORS, response_class=Response)
async def get(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> Response:
    """The content of a file, or a range of it."""
    return await _answer(request, _path_of(request, bucket, key), client)


@router.head("/{bucket}/{key:path}", responses=GET_ERRORS, response_class=Response)
async def head(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> Response:
    """The headers of a file."""
    return await _answer(request, _path_of(request, bucket, key), client)


@router.delete(
    "/{bucket}/{key:path}", status_code=HTTPStatus.NO_CONTENT, responses=DELETE_ERRORS, response_class=Response
)
async def delete(request: Request, bucket: BucketName, key: FileKey, client: AioClientDependency) -> None:
    """Remove a file."""
    await client.files.remove(_path_of(request, bucket, key))


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


def _as_file(source: UploadSource) -> IO[bytes]:
    return cast("IO[bytes]", source)  # a put needs no more than its `read`


def _path_of(request: Request, bucket: str, key: str) -> str:
    """The name of a file. Raises InvalidFile for a key that is not UTF-8: the server has replaced what is not."""
    raw: bytes = request.scope.get("raw_path") or b""
    if "\ufffd" in key and b"%ef%bf%bd" not in raw.lower():
        raise InvalidFile("key", "it is not UTF-8")
    return f"{bucket}/{key}"


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


def _options_of(request: Request) -> PutOptions:
    """What the headers of a put say. Raises InvalidFile."""
    headers = request.headers
    if "if-match" in headers or tags_of(headers.get("if-none-match", "*")) != {"*"}:
        raise InvalidFile("if-none-match", "a put knows no other condition than If-None-Match: *")
    length = headers.get("content-length", "")
    return PutOptions(
        class_name=headers.get("x-peerd-class"),
        content_type=headers.get("content-type"),
        metadata=_metadata_of(headers),
        expires_in=_expiry_of(headers.get("x-peerd-expires-in")),
        only_new="if-none-match" in headers,
        size=int(length) if length.isascii() and length.isdigit() else None,
        blake3=headers.get("x-peerd-blake3"),
    )


def _metadata_of(headers: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(METADATA): unquote(value) for name, value in headers.items() if name.startswith(METADATA)
    }
    if sum(len(name) + len(value) for name, value in found.items()) > MAX_METADATA:
        raise InvalidFile("metadata", f"it is larger than {MAX_METADATA} bytes")
    return found


def _expiry_of(text: str | None) -> float | None:
    try:
        return None if text is None else validation.seconds("expires_in", text)
    except InvalidTask as error:
        raise InvalidFile("expires_in", error.problem) from None
