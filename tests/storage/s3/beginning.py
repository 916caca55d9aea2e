"""Operations of S3 that begin, and end where they ask for more than their request: for the database, a disk, a body."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from peerd.domain.access import FileAccessKey, FileRights
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.requests import S3Request
from peerd.storage.s3.signature import Credential, PayloadForm, VerifiedSignature
from peerd.storage.s3_front.exchange import S3Exchange
from peerd.storage.s3_front.front import operation_of

KEY: Final = FileAccessKey(
    id="PEERD",
    name="of a test",
    rights=FileRights.ALL,
    scopes=None,
    created_by=None,
    created_at=datetime(2026, 11, 26, tzinfo=UTC),
    expires_at=None,
    revoked_at=None,
    last_used_at=None,
    is_valid=True,
)
SIGNED: Final = VerifiedSignature(
    credential=Credential(KEY.id, "20261126", "us-east-1", "s3"),
    time="20261126T120000Z",
    signature="",
    key=b"",
    payload=PayloadForm.UNSIGNED,
    sha256=None,
    is_presigned=False,
)


class Begun(Exception):
    """The operation has asked for something else than its request."""


class Untouched:
    scope: Final[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        raise Begun(name)


def request_of(
    method: str,
    path: bytes,
    query: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    host: bytes = b"s3.example",
) -> S3Request:
    """A request at a server whose domain is s3.example."""
    return S3Request(S3HttpRequest(method, path, query, [(b"Host", host), *headers]), "s3.example")


def begin(request: S3Request) -> str:
    """Carry the operation of a request out, as far as its parameters and headers tell; its name."""
    operation, untouched = operation_of(request), Untouched()
    node: Any = untouched
    body: Any = untouched
    response: Any = untouched
    assert operation.is_permitted(KEY, request)

    async def carry_out() -> None:
        with suppress(Begun):
            await operation.carry_out(S3Exchange(node, KEY, SIGNED, request, body, response, "r1"))

    asyncio.run(carry_out())
    return operation.name
