"""Contents of files, put and got by a client of a server: over HTTP to the server, which relays them to and from nodes.

A large content is put in parts, see `peerd.storage.uploading`; a small one is sent again when the connection breaks. A
get goes on behind what was received. What arrives is compared with the BLAKE3 of the catalogue.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import HTTPResponse
from typing import TYPE_CHECKING

from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import FileConditionFailed, FileReplaced, NoNodeTakes, UploadBroken
from peerd.domain.files import StoredFile, check_key
from peerd.operate.files import FileOperations
from peerd.operate.operations import BlockingMode
from peerd.operate.remote.errors import UnexpectedAnswer
from peerd.operate.remote.file_server import PAUSES, RETRIED, FileServer
from peerd.operate.remote.server_uploads import ServerUploads
from peerd.storage.client import ContentTransfer
from peerd.storage.file_headers import PutOptions, put_headers
from peerd.storage.file_reader import FileReader
from peerd.storage.node_requests import target_of
from peerd.storage.progress import Progress
from peerd.storage.put_body import Body
from peerd.storage.transfer.errors import SourceFailed

if TYPE_CHECKING:
    from peerd.operate.remote.modes import ServerMode


class ServerTransfer(ContentTransfer):
    """To and from a server.

    Args:
        mode: of the client.
    """

    def __init__(self, mode: ServerMode) -> None:
        self._server = FileServer(mode)
        self._files: FileOperations[BlockingMode] = FileOperations(mode)

    def close(self) -> None:
        """Close the connections."""
        self._server.http.close()

    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading."""
        file = self._files.stat(f"{bucket}/{key}").file
        return FileReader(file, _ServerSource(self._server, file))

    def uploads(self, bucket: str, key: str, options: PutOptions) -> ServerUploads:
        """Requests about the uploads of a key to the server."""
        return ServerUploads(self._server, (bucket, key), options)

    def _put(self, body: Body, bucket: str, key: str, options: PutOptions, progress: Progress | None) -> StoredFile:
        check_key(key)
        headers = put_headers(body.announced_in(options))
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
                if tries > len(PAUSES) and isinstance(error.__cause__, NoNodeTakes):
                    raise error.__cause__ from None
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
        server, target = self._server, self._server.target(target_of(bucket, key))
        with server.http.upload(server.url, target, body.blocks(progress), headers) as response:
            if response.status == HTTPStatus.CREATED:
                return self._stored(response, body)
            error = server.error_of(response)
        if response.status in RETRIED:
            raise SourceFailed(server.url, str(error)) from error
        raise error

    def _stored(self, response: HTTPResponse, body: Body) -> StoredFile:
        stored = self._server.decode(response, StoredFile)
        if stored.blake3 != body.blake3:
            raise UnexpectedAnswer(self._server.shown, f"it has stored BLAKE3 {stored.blake3}, sent was {body.blake3}")
        return stored

    def _stored_by_lost_answer(self, bucket: str, key: str, body: Body) -> StoredFile | None:
        """The current version, if it is this body: it was stored, and the connection ended before its answer."""
        try:
            found = self._files.stat(f"{bucket}/{key}").file
        except PeerdError:  # such as a token that may not read
            return None
        return found if found.blake3 == body.blake3 else None


class _ServerSource:
    """A server as the source of a file."""

    def __init__(self, server: FileServer, file: StoredFile) -> None:
        self._server = server
        self._path = f"{file.bucket}/{file.key}"
        self._target = server.target(target_of(file.bucket, file.key))

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
