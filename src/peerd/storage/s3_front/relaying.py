"""A request on an upload, sent on to the node that has its disk, byte for byte.

That node verifies the client's signature, and the body, as if it had received the request itself; the signature of the
node beside it says that the request was relayed, and is not to be relayed again.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Final

from peerd.storage.awaiting import Run, threads_of
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3_front.exchange import S3Exchange, drain
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import NETWORK_ERRORS
from peerd.storage.transfer.node_signature import HEADER

_OF_CONNECTION: Final = frozenset({
    "connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", HEADER,
})  # fmt: skip
"""Headers of one connection, which are not relayed."""
BLOCK: Final = 256 * 1024
RESPONSE_TIMEOUT: Final = 120.0
"""Seconds for the response after the last byte of a body: a large part is made durable meanwhile."""


class DiskUnavailable(S3Error):
    """The disk of an upload is not available: its node cannot be reached, or does not have it mounted."""

    def __init__(self) -> None:
        problem = "the disk that has the parts of this upload is not available; repeat the request later"
        super().__init__(S3Code.ServiceUnavailable, problem)


async def relay(exchange: S3Exchange, url: str) -> None:
    """Relay a request to a node, and its response to the client.

    Raises:
        DiskUnavailable: it was relayed once already, or the node cannot be reached.
        S3Error: MissingContentLength: the length of the body is not known.
        ClientGone: the client has closed the connection.
    """
    request = exchange.incoming
    if HEADER in request.headers:
        raise DiskUnavailable
    if "transfer-encoding" in request.headers:
        raise S3Error(S3Code.MissingContentLength)
    target, run = "".join(_target_of(request.target)), threads_of(exchange.node.relaying)
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in exchange.request.http.headers
        if name.decode("latin-1") not in _OF_CONNECTION
    ]
    try:
        connection = await run(exchange.node.http.begin, request.method, url, target, headers)
    except SourceFailed as error:
        raise DiskUnavailable from error
    try:
        answer = await _send_body(exchange, connection, run)
        await _send_answer(exchange, answer, run)
    finally:
        connection.close()


async def _send_body(
    exchange: S3Exchange, connection: http.client.HTTPConnection, run: Run
) -> http.client.HTTPResponse:
    """Send the body as it comes: a node gives up one that stands still. One that refuses it answers before its end."""
    try:
        await exchange.incoming.write_to(connection.send, run, least=1)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except NETWORK_ERRORS as error:
        raise DiskUnavailable from error
    try:
        connection.sock.settimeout(RESPONSE_TIMEOUT)
        response: http.client.HTTPResponse = await run(connection.getresponse)
        return response
    except NETWORK_ERRORS as error:
        raise DiskUnavailable from error


async def _send_answer(exchange: S3Exchange, answer: http.client.HTTPResponse, run: Run) -> None:
    closes = not await drain(exchange.incoming)
    headers: dict[str, str | int] = {
        name.lower(): value
        for name, value in answer.getheaders()
        if name.lower() not in {*_OF_CONNECTION, "date", "server"}
    }
    if closes:
        headers["connection"] = "close"
    await exchange.response.begin(answer.status, headers)
    while data := await run(answer.read1, BLOCK):
        await exchange.response.bytes(data)
    await exchange.response.end()


def _target_of(target: str) -> Iterator[str]:
    """A path and query, with what HTTP does not allow in them encoded; signatures cover them decoded."""
    return (one if "!" <= one <= "~" else f"%{ord(one):02X}" for one in target)
