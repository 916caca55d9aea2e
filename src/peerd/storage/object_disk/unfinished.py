"""Uploads in parts that were begun and not ended: they have no names, and object stores charge for their bytes.

obstore neither lists nor aborts those of other processes, so these two requests are made here.
"""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from peerd.storage.object_disk.credentials import read_credentials
from peerd.storage.object_disk.errors import ObjectStoreError, ObjectStoreUnreachable, error_of_response
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.s3.documents import XmlElement, read_xml
from peerd.storage.s3.errors import S3Error
from peerd.storage.s3.http_request import S3HttpRequest
from peerd.storage.s3.signature import (
    ALGORITHM,
    Credential,
    canonical_request,
    hex_signature,
    signing_key,
    string_to_sign,
)

TIMEOUT: Final = 30.0
"""Seconds within which some bytes of a response arrive."""
LISTED: Final = 1000
MAX_DOCUMENT: Final = 4 * 1024 * 1024
"""Bytes of a page of a thousand uploads, and more."""
OF_NOTHING: Final = sha256(b"").hexdigest()
NO_SUCH_UPLOAD: Final = 404
NOT_IMPLEMENTED: Final = 501


class ObjectUpload(NamedTuple):
    """The name of the object that it would become, its id, and when it was begun."""

    name: str
    id: str
    begun_at: datetime


class ObjectUploads:
    """Unfinished uploads below the prefix of a place; thread-safe.

    Args:
        options: where it is.
    """

    def __init__(self, options: ObjectDiskOptions) -> None:
        self._options = options
        self._prefix = f"{options.prefix}/" if options.prefix else ""

    def list(self) -> Iterator[ObjectUpload]:
        """All of them; their names are below the prefix. There are none where the object store does not list them.

        Raises:
            ObjectStoreError: they could not be listed.
            CredentialsMissing: there are no credentials.
        """
        after: dict[str, str] = {}
        while True:
            document = self._send(
                "GET", "", {"uploads": "", "prefix": self._prefix, "max-uploads": str(LISTED), **after}
            )
            if document is None:
                return
            page = self._parsed(document)
            for upload in page.all("Upload"):
                yield self._found(upload)
            after = {"key-marker": page.text_of("NextKeyMarker") or ""}
            after["upload-id-marker"] = page.text_of("NextUploadIdMarker") or ""
            if page.text_of("IsTruncated") != "true" or not after["key-marker"]:
                return

    def abort(self, upload: ObjectUpload) -> None:
        """Have the object store forget an upload; one that has ended meanwhile is left. Raises as `list`."""
        self._send("DELETE", self._prefix + upload.name, {"uploadId": upload.id})

    def _send(self, method: str, name: str, parameters: dict[str, str]) -> bytes | None:
        """The document that answers a request; None: there is no such upload, or the request is not known."""
        place, action = self._options.place, "list uploads" if method == "GET" else "abort"
        request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
            self._url(name, parameters), method=method, headers=self._headers(method, name, parameters)
        )
        try:
            with _OPENER.open(request, timeout=TIMEOUT) as response:
                return bytes(response.read(MAX_DOCUMENT))
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(MAX_DOCUMENT).decode(errors="replace")
            failed = error_of_response(error.code, text, place, action)
            is_gone = error.code == NO_SUCH_UPLOAD and type(failed) is ObjectStoreError
            if error.code == NOT_IMPLEMENTED or is_gone:
                return None
            raise failed from None
        except (OSError, http.client.HTTPException):
            raise ObjectStoreUnreachable(place, action, "no answer") from None

    def _url(self, name: str, parameters: dict[str, str]) -> str:
        return f"{self._options.url}/{self._options.bucket}{'/' if name else ''}{quote(name)}?{_query(parameters)}"

    def _headers(self, method: str, name: str, parameters: dict[str, str]) -> dict[str, str]:
        """What a request is signed with, by AWS Signature Version 4."""
        options = self._options
        file = None if options.credentials_file is None else Path(options.credentials_file)
        key, secret, token = read_credentials(options.place, file)
        time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        parts = urlsplit(self._url(name, parameters))
        headers = {"host": parts.netloc, "x-amz-content-sha256": OF_NOTHING, "x-amz-date": time}
        if token is not None:
            headers["x-amz-security-token"] = token
        pairs = [(header.encode(), value.encode()) for header, value in headers.items()]
        request = S3HttpRequest(method, parts.path.encode(), parts.query.encode(), pairs)
        credential = Credential(key, time[:8], options.region, "s3")
        names = sorted(headers)
        canonical = canonical_request(request, names, OF_NOTHING)
        to_sign = string_to_sign(time, credential.scope, canonical)
        signature = hex_signature(signing_key(secret, credential), to_sign)
        signed = f"Credential={key}/{credential.scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
        return {**headers, "authorization": f"{ALGORITHM} {signed}"}

    def _parsed(self, document: bytes) -> XmlElement:
        try:
            return read_xml(document, "ListMultipartUploadsResult", MAX_DOCUMENT)
        except S3Error:
            raise self._not_understood() from None

    def _found(self, element: XmlElement) -> ObjectUpload:
        name, upload_id = element.text_of("Key") or "", element.text_of("UploadId") or ""
        with contextlib.suppress(ValueError):
            begun_at = datetime.fromisoformat(element.text_of("Initiated") or "")
            if upload_id and begun_at.tzinfo is not None and name.startswith(self._prefix):
                return ObjectUpload(name.removeprefix(self._prefix), upload_id, begun_at)
        raise self._not_understood()

    def _not_understood(self) -> ObjectStoreError:
        return ObjectStoreError(self._options.place, "list uploads", "the answer is no list of uploads")


def _query(parameters: dict[str, str]) -> str:
    return urlencode(parameters, quote_via=quote, safe="")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the signature is for one host."""

    def redirect_request(self, *_: object) -> None:
        """There is no next request."""


_OPENER: Final = urllib.request.build_opener(_NoRedirect)
