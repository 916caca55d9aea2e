"""Requests that a web process relays to nodes, in threads: a bounded number at a time, for all routes together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from fastapi import Request, Response

from peerd.domain.access import Actor
from peerd.domain.errors import PeerdError
from peerd.web.file_uploads import FileUploads, UploadAborted, UploadSource, drain
from peerd.web.problems import error_response

T = TypeVar("T")
_uploads: Final = FileUploads()


async def relay(actor: Actor, function: Callable[[], T]) -> T:
    """Call what waits for a node in a thread, for an actor. Raises TooManyUploads."""
    async with _uploads.place(actor) as threads:
        return await asyncio.get_running_loop().run_in_executor(threads, function)


async def relay_body(
    request: Request, actor: Actor, function: Callable[[UploadSource], T], answer: Callable[[T], Response]
) -> Response:
    """Call what sends the body of a request on, in a thread that reads it.

    Args:
        request: whose body it is.
        actor: that has sent it.
        function: reads the body.
        answer: makes the response of the result.

    Returns:
        the response; for an error of peerd its problem, and what is left of a small body is read first, so that the
        client gets it.
    """
    source = UploadSource(request, asyncio.get_running_loop())
    try:
        async with _uploads.place(actor) as threads:
            result = await source.run(threads, partial(function, source))
    except PeerdError as error:
        refused = error_response(error)
        if isinstance(error, UploadAborted) or not await drain(request, source):
            refused.headers["connection"] = "close"
        return refused
    return answer(result)
