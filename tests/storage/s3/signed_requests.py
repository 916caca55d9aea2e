"""Requests that botocore has signed, as `S3HttpRequest`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import quote, urlsplit

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import REGION, VerifiedSignature, verify_signature

KEY: Final = "AKIAIOSFODNN7EXAMPLE"
SECRET: Final = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NOW: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOST: Final = "s3.example"


def verify(request: S3HttpRequest, now: datetime) -> VerifiedSignature:
    return verify_signature(request, {KEY: SECRET}.get, now)


def signed_by_botocore(
    method: str,
    path: str,
    *,
    parameters: Sequence[tuple[str, str]] = (),
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    expires: int | None = None,
    time: datetime = NOW,
    has_trailer: bool = False,
) -> S3HttpRequest:
    """A request that botocore signs in its headers, or in its query if it expires after so many seconds.

    With a trailer, its body is not signed: a checksum comes behind it.
    """
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in parameters)
    url = f"http://{HOST}{quote(path, safe='/~')}" + (f"?{query}" if query else "")
    request = AWSRequest(method=method, url=url, data=body)
    for name, value in headers:
        request.headers.add_header(name, value)
    if has_trailer:
        request.context["checksum"] = {"request_algorithm": {"in": "trailer"}}
    credentials = Credentials(KEY, SECRET)
    signer: Any = (
        S3SigV4Auth(credentials, "s3", REGION)
        if expires is None
        else S3SigV4QueryAuth(credentials, "s3", REGION, expires=expires)
    )
    with patch("botocore.auth.get_current_datetime", lambda: time.replace(tzinfo=None)):
        signer.add_auth(request)
    prepared = request.prepare()
    prepared.headers = request.headers  # botocore signs all of several headers, and prepares the last one
    return request_of(prepared)


def request_of(prepared: Any) -> S3HttpRequest:
    """What a server receives of a request that botocore has prepared."""
    url = urlsplit(prepared.url)
    rest = prepared.url.partition(url.netloc)[2]
    path, _, query = rest.partition("?")
    headers = [(name.encode(), _bytes(value)) for name, value in prepared.headers.items()]
    if not any(name.lower() == b"host" for name, _ in headers):
        headers.append((b"Host", url.netloc.encode()))
    return S3HttpRequest(prepared.method, path.encode() or b"/", query.encode(), headers)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("latin-1")
