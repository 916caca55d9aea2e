"""Contents of files as responses: read from nodes by threads, a block at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from io import BufferedReader
from typing import Any, Final, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from peerd.domain.files import StoredFile
from peerd.storage.server.ranges import answer_to_get, headers_of
from peerd.web.problems import problem_response

T = TypeVar("T")
BLOCK: Final = 1024 * 1024
READERS: Final = 16
"""Threads that read blocks for downloads. What needs no node has others: these may all wait for one."""
_readers: Final = ThreadPoolExecutor(READERS, thread_name_prefix="peerd-download")


async def content_response(request: Request, reader: BufferedReader, more: Mapping[str, str]) -> Response:
    """The response to a GET or HEAD of a content, by the conditions and the range of the request.

    Args:
        request: whose headers are heeded.
        reader: of the file; closed with the response, or when the first block fails.
        more: headers beside those of the file, or in their place.
    """
    is_handed_over = False
    try:
        file: StoredFile = cast("Any", reader.raw).file
        answer = answer_to_get(request.method, request.headers, file)
        headers = {**headers_of(file), **more, **answer.headers}
        match answer.status:
            case HTTPStatus.NOT_MODIFIED:
                kept = {name: value for name, value in headers.items() if name in {"etag", "cache-control"}}
                return Response(None, answer.status, kept)
            case HTTPStatus.PRECONDITION_FAILED:
                return problem_response(answer.status, "ConditionFailed", "the file is another version")
            case HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                problem = f"the file has {file.size} bytes"
                return problem_response(answer.status, "RangeNotSatisfiable", problem, headers=answer.headers)
        if request.method == "HEAD":
            return Response(None, answer.status, headers)
        assert answer.part is not None
        start, stop = answer.part
        first = await _in_reader(partial(_read_first, reader, start, stop))
        is_handed_over = True
        return StreamingResponse(_blocks(reader, first, stop - start), answer.status, headers)
    finally:
        if not is_handed_over:
            await asyncio.to_thread(reader.close)


def _in_reader(function: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function in a thread for downloads."""
    return asyncio.get_running_loop().run_in_executor(_readers, function)


async def _blocks(reader: BufferedReader, first: bytes, count: int) -> AsyncIterator[bytes]:
    """So many bytes. What is not verified ends the response before its end."""
    try:
        data, left = first, count
        while data:
            yield data
            left -= len(data)
            data = await _in_reader(partial(reader.read, min(BLOCK, left)))
    finally:
        await asyncio.shield(_in_reader(reader.close))  # it waits for a block that is being read


def _read_first(reader: BufferedReader, start: int, stop: int) -> bytes:
    cast("Any", reader.raw).stop = stop
    reader.seek(start)
    return reader.read(min(BLOCK, stop - start))
