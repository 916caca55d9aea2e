"""Requests about uploads to a server, which relays them to the nodes that have disks.

A server that does not answer, or cannot do it now, says nothing about the node of an upload: that is another error than
the one of a node that does not answer the server.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.file_errors import ContentDiffers, NoNodeTakes, UploadGone
from peerd.domain.files import StoredFile, check_key
from peerd.operate.remote.errors import ServerNotReady, ServerRefused, ServerUnreachable, UnexpectedAnswer
from peerd.operate.remote.file_server import PAUSES, RETRIED, FileServer
from peerd.storage.file_headers import PutOptions, put_headers
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.upload_bounds import DIGEST
from peerd.storage.uploading.outcomes import BytesDiffer
from peerd.storage.uploading.upload_requests import FoundUpload, OpenUpload

T = TypeVar("T")
SUCCESSES: Final = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT)
ABORT_PAUSES: Final = PAUSES[:2]
"""What is not aborted, because the server does not answer, is aborted after a week without a part."""
NODE_FAILED: Final = SourceFailed.__name__
"""The code of a problem: the server is well, and the node of an upload does not answer it."""


class ShownUpload(msgspec.Struct):
    """An upload as a server shows it; with the file that it has become, if it has ended."""

    id: str
    received: int
    file: StoredFile | None = None


class ListedUpload(msgspec.Struct):
    """An upload of a key as a server lists it."""

    id: str
    received: int
    source: str | None = None
    is_lost: bool = False


class ServerUploads:
    """Requests about the uploads of one key to a server; see `UploadRequests`.

    Args:
        server: that relays them.
        place: bucket and key.
        options: what is stored with it.
    """

    def __init__(self, server: FileServer, place: tuple[str, str], options: PutOptions) -> None:
        self.path = "/".join(place)
        self.options = options
        self._server = server
        self._key = place[1]
        self._of_key = server.target(f"/uploads/{quote(place[0], safe='')}/{quote(place[1], safe='')}")

    def check(self, size: int | None) -> None:
        check_key(self._key)
        self.options.check()

    def of_key(self) -> list[FoundUpload]:
        def list_uploads() -> list[FoundUpload]:
            listed = self._ask("GET", self._of_key, list[ListedUpload])
            return [FoundUpload(one.id, one.source, one.received, one.is_lost) for one in listed]

        return _repeated(list_uploads)

    def begin(self, size: int | None, source: str | None, instead_of: OpenUpload | None = None) -> OpenUpload:
        more = {"size": size, "source": source, "instead_of": None if instead_of is None else instead_of.id}
        query = urlencode({name: value for name, value in more.items() if value is not None})
        headers = put_headers(msgspec.structs.replace(self.options, size=None, blake3=None))
        begun = _repeated(lambda: self._ask("POST", f"{self._of_key}?{query}", ShownUpload, headers))
        return OpenUpload(begun.id, begun.received)

    def received(self, upload: OpenUpload) -> int:
        shown = self._show(upload)
        if shown.file is not None:
            raise UploadGone(upload.id)
        return shown.received

    def send(self, upload: OpenUpload, offset: int, count: int, body: Iterator[bytes]) -> int:
        server, target = self._server, f"{self._target(upload.id)}?offset={offset}"
        headers = {"content-type": "application/octet-stream", "content-length": str(count + DIGEST)}
        try:
            sent = server.http.upload(server.url, target, body, headers)
            return self._answer(sent, lambda response: server.decode(response, ShownUpload)).received
        except ContentDiffers as error:
            raise BytesDiffer(error.problem) from error

    def complete(self, upload: OpenUpload, size: int, digest: str) -> StoredFile | None:
        try:
            stored = self._ask("POST", f"{self._target(upload.id)}?size={size}&blake3={digest}", ShownUpload).file
        except ContentDiffers as error:
            raise BytesDiffer(error.problem) from error
        if stored is not None and stored.blake3 != digest:
            problem = f"it has stored BLAKE3 {stored.blake3}, sent was {digest}"
            raise UnexpectedAnswer(self._server.shown, problem)
        return stored

    def completed(self, upload: OpenUpload) -> StoredFile | None:
        try:
            return _repeated(lambda: self._show(upload)).file
        except UploadGone:
            return None

    def abort(self, upload_id: str) -> None:
        with contextlib.suppress(UploadGone):
            _repeated(lambda: self._request("DELETE", self._target(upload_id), lambda _: None), ABORT_PAUSES)

    def _target(self, upload_id: str) -> str:
        return self._server.target(f"/uploads/{quote(upload_id, safe='')}")

    def _show(self, upload: OpenUpload) -> ShownUpload:
        return self._ask("GET", self._target(upload.id), ShownUpload)

    def _ask(self, method: str, target: str, kind: type[T], headers: Mapping[str, str] | None = None) -> T:
        """What the answer to a request without a body says."""
        return self._request(method, target, lambda response: self._server.decode(response, kind), headers)

    def _request(
        self, method: str, target: str, read: Callable[[HTTPResponse], T], headers: Mapping[str, str] | None = None
    ) -> T:
        server = self._server
        return self._answer(server.http.request(method, server.url, target, headers=headers), read)

    def _answer(self, request: AbstractContextManager[HTTPResponse], read: Callable[[HTTPResponse], T]) -> T:
        """What is read of the answer to a request.

        Raises:
            ServerUnreachable: there is none.
            Exception: what the server says.
        """
        server = self._server
        try:
            with request as response:
                answer = read(response) if response.status in SUCCESSES else self._error_of(response)
                response.read()
        except SourceFailed as error:
            raise ServerUnreachable(server.shown, error.problem) from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _error_of(self, response: HTTPResponse) -> Exception:
        """The error of a response that is none of success."""
        server, error = self._server, self._server.error_of(response)
        if isinstance(error, ServerRefused) and error.code == NODE_FAILED:
            return SourceFailed(server.shown, error.detail)
        if response.status not in RETRIED or isinstance(error, NoNodeTakes | DatabaseUnavailable):
            return error
        return ServerNotReady(server.shown, str(error))


def _repeated(ask: Callable[[], T], pauses: Sequence[float] | None = None) -> T:
    """What a request answers that is harmless to repeat, after pauses. Raises DatabaseUnavailable in the end."""
    for pause in PAUSES if pauses is None else pauses:
        try:
            return ask()
        except DatabaseUnavailable:
            time.sleep(pause)
    return ask()
