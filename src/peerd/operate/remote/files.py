"""Contents of files, put and got by a client of a server: over HTTP to the server, which relays them to and from nodes.

A put of what can be read again is sent again when the connection breaks; a get goes on behind what was received. What
arrives is compared with the BLAKE3 of the catalogue.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import FileConditionFailed, FileReplaced, UploadBroken
from peerd.domain.files import StoredFile, check_key
from peerd.operate.files import FileOperations
from peerd.operate.operations import BlockingMode
from peerd.operate.remote.address import ServerAddress
from peerd.operate.remote.errors import UnexpectedAnswer
from peerd.operate.remote.http import MAX_PROBLEM, Answer
from peerd.storage.client import Body, ContentTransfer, FileReader, Progress, put_headers, target_of
from peerd.storage.put_options import PutOptions
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import NodeHttp

if TYPE_CHECKING:
    from peerd.operate.remote.modes import ServerMode

PAUSES: Final = (1.0, 4.0, 15.0)
"""Seconds before each further try of a put: in their sum a web process that was killed is replaced."""
RETRIED: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""Responses after which a put is tried again; the last two are those of proxies."""


class ServerTransfer(ContentTransfer):
    """To and from a server.

    Args:
        mode: of the client.
    """

    def __init__(self, mode: ServerMode) -> None:
        self._server = _FileServer(mode)
        self._files: FileOperations[BlockingMode] = FileOperations(mode)

    def close(self) -> None:
        """Close the connections."""
        self._server.http.close()

    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading."""
        file = self._files.stat(f"{bucket}/{key}").file
        return FileReader(file, _ServerSource(self._server, file))

    def _put(self, body: Body, bucket: str, key: str, options: PutOptions, progress: Progress | None) -> StoredFile:
        check_key(key)
        headers = put_headers(options, body)
        problem, tries = "", 0
        for pause in (0.0, *PAUSES):
            if not body.rewind():
                break
            time.sleep(pause)
            tries += 1
            try:
                return self._send(body, bucket, key, headers, progress)
            except SourceFailed as error:
                problem = str(error)
            except FileConditionFailed:
                stored = self._stored_by_lost_answer(bucket, key, body) if tries > 1 else None
                if stored is None:
                    raise
                return stored
        raise UploadBroken(f"{bucket}/{key}", problem, tries)

    def _send(
        self, body: Body, bucket: str, key: str, headers: Mapping[str, str], progress: Progress | None
    ) -> StoredFile:
        """Send the body once. Raises SourceFailed where another try may do it."""
        server = self._server
        with server.http.upload(server.url, server.target(bucket, key), body.blocks(progress), headers) as response:
            if response.status == HTTPStatus.CREATED:
                return self._stored(response, body)
            error = server.error_of(response)
        if response.status in RETRIED:
            raise SourceFailed(server.url, str(error))
        raise error

    def _stored(self, response: HTTPResponse, body: Body) -> StoredFile:
        shown = self._server.mode.address.shown
        try:
            stored = msgspec.json.decode(response.read(MAX_PROBLEM), type=StoredFile, strict=False)
        except msgspec.MsgspecError as error:
            raise UnexpectedAnswer(shown, f"the stored file cannot be read: {error}") from None
        if stored.blake3 != body.blake3:
            raise UnexpectedAnswer(shown, f"it has stored BLAKE3 {stored.blake3}, sent was {body.blake3}")
        return stored

    def _stored_by_lost_answer(self, bucket: str, key: str, body: Body) -> StoredFile | None:
        """The current version, if it is this body: it was stored, and the connection ended before its answer."""
        try:
            found = self._files.stat(f"{bucket}/{key}").file
        except PeerdError:  # such as a token that may not read
            return None
        return found if found.blake3 == body.blake3 else None


class _FileServer:
    """Requests about contents to a server."""

    def __init__(self, mode: ServerMode) -> None:
        address = mode.address
        self.mode = mode
        self.url = f"unix:{address.socket}" if address.socket is not None else _origin_of(address.url)
        self.http = NodeHttp(_TokenHeaders(address), address.tls() if self.url.startswith("https:") else None)
        self._prefix = urlsplit(address.base_url).path

    def target(self, bucket: str, key: str) -> str:
        """The path of a file."""
        return f"{self._prefix}{target_of(bucket, key)}"

    def error_of(self, response: HTTPResponse) -> Exception:
        """The error of a response that is none of the file."""
        content_type = (response.headers.get("content-type") or "").partition(";")[0].strip().lower()
        answer = Answer(response.status, content_type, dict(response.headers.items()), response.read(MAX_PROBLEM))
        return self.mode.error_of(answer)


class _ServerSource:
    """A server as the source of a file."""

    def __init__(self, server: _FileServer, file: StoredFile) -> None:
        self._server = server
        self._path = f"{file.bucket}/{file.key}"
        self._target = server.target(file.bucket, file.key)

    def urls(self) -> list[str]:
        return [self._server.url]

    def request(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[HTTPResponse]:
        return self._server.http.request("GET", url, self._target, headers=headers)

    def refusal(self, response: HTTPResponse) -> Exception:
        if response.status in {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND}:
            return FileReplaced(self._path)
        error = self._server.error_of(response)
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return SourceFailed(self._server.url, str(error))
        return error

    def close(self) -> None:
        self._server.http.close()


class _TokenHeaders:
    """The headers of each request, with the token."""

    def __init__(self, address: ServerAddress) -> None:
        self._headers = address.headers()

    def headers(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        return self._headers


def _origin_of(url: str) -> str:
    """Scheme, host and port of a URL.

    >>> _origin_of("https://jobs.example:8443/sub/")
    'https://jobs.example:8443'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
