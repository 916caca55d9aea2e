"""How many bytes of a request's body are read, by who asks and for what. A larger body is refused before it is read.

A body in JSON is parsed and checked on the event loop, so its bound is what other requests wait for at the most.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from peerd.web.access.request_facts import route_path

WITHOUT_ACTOR: Final = 16 * 1024
"""Bytes: a name and a password of the most characters, each written in the longest way that JSON and forms have."""
OF_ACTOR: Final = 4 * 1024 * 1024
"""Bytes: less than each server takes in a statement by default (`max_allowed_packet` of MariaDB is 16 MiB)."""
STREAMED: Final = ("/api/v1/files/", "/api/v1/uploads/")
"""Contents of files, which are never in memory as a whole."""


class BodyTooLarge(HTTPException):
    """A body has more bytes than its request may have."""

    def __init__(self, most: int) -> None:
        remedy = "send several requests, or keep large data in a file, and its name in the task"
        detail = f"the body of this request has more than {most:,} bytes: {remedy}"
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def most_bytes(scope: Scope, *, has_actor: bool) -> int | None:
    """The bound of a request's body; None: what reads it has its own."""
    if not has_actor:
        return WITHOUT_ACTOR
    path = route_path(scope)
    return OF_ACTOR if path.startswith("/api/") and not path.startswith(STREAMED) else None


def bounded(scope: Scope, receive: Receive, most: int) -> Receive:
    """What receives a body up to a bound; it raises `BodyTooLarge` before it has read more.

    Raises:
        BodyTooLarge: the request announces more.
    """
    announced = Headers(scope=scope).get("content-length", "0")
    if announced.isdigit() and int(announced) > most:
        raise BodyTooLarge(most)
    left = most

    async def receive_within() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLarge(most)
        return message

    return receive_within
