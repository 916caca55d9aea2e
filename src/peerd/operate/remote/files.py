"""Contents of files, put and got by a client of a server: over HTTP to the server, which relays them to and from nodes.

A large content is put in parts, see `peerd.storage.uploading`; a small one is sent again when the connection breaks. A
get goes on behind what was received. What arrives is compared with the BLAKE3 of the catalogue.

A server that does not answer, or cannot do it now, says nothing about the node of an upload: that is another error than
the one of a node that does not answer the server.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.file_errors import NoNodeTakes, UploadBroken, UploadGone
from peerd.domain.files import StoredFile, check_key
from peerd.operate.files import FileOperations
from peerd.operate.operations import BlockingMode
from peerd.operate.remote.errors import ServerNotReady, ServerRefused, UnexpectedAnswer
from peerd.operate.remote.http import MAX_PROBLEM, Answer
from peerd.storage.client import ContentTransfer
from peerd.storage.file_headers import PutTarget
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import read_body
from peerd.storage.upload_protocol import UploadState, begin_headers, begin_path, path_of
from peerd.storage.upstream import Upstream

if TYPE_CHECKING:
    from peerd.operate.remote.modes import ServerMode

T = TypeVar("T")
PAUSES: Final = (1.0, 4.0, 15.0)
"""Seconds before each further try: in their sum a web process that was killed is replaced."""
RETRIED: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""Responses after which a request is tried again; the last two are those of proxies."""
ABORT_PAUSES: Final = 2
"""What is not aborted after so many pauses, because the server does not answer, is after a week without a part."""
NODE_FAILED: Final = SourceFailed.__name__
"""The code of a problem: the server is well, and the node of an upload does not answer it."""


class ServerTransfer(ContentTransfer):
    """To and from a server.

    Args:
        mode: of the client.
    """

    def __init__(self, mode: ServerMode) -> None:
        super().__init__(Server(mode))


class Server(Upstream):
    """A server that relays contents.

    Args:
        mode: of the client.
    """

    def __init__(self, mode: ServerMode) -> None:
        self.http = mode.connection
        self.url = mode.connection.url
        self.prefix = mode.connection.prefix
        self._shown = mode.address.shown
        self._mode = mode
        self._files: FileOperations[BlockingMode] = FileOperations(mode)

    def close(self) -> None:
        """The connections are those of the client."""

    def find(self, bucket: str, key: str) -> StoredFile:
        return self._files.stat(f"{bucket}/{key}").file

    def check(self, target: PutTarget, size: int | None) -> None:
        check_key(target.key)
        target.options.check()

    def takers(self, size: int) -> Iterator[str]:
        for pause in (0.0, *PAUSES):
            time.sleep(pause)
            yield self.url

    def holders(self, file: StoredFile) -> list[str]:
        return [self.url]

    def note_failure(self, url: str) -> None:
        """There is no other."""

    def put_failed(self, path: str, failures: Sequence[PeerdError]) -> PeerdError:
        [*_, last] = failures
        is_full = isinstance(last, NoNodeTakes) and len(failures) > len(PAUSES)
        return last if is_full else UploadBroken(path, str(last), len(failures))

    def take_back(self, stored: StoredFile) -> None:
        """A token may not be one that removes files."""

    def begin(
        self, target: PutTarget, size: int | None, source: str | None, instead_of: str | None = None
    ) -> UploadState:
        path = begin_path(target, size=size, source=source, instead_of=instead_of)
        return self._ask_again("POST", path, UploadState, target, headers=begin_headers(target))

    def uploads_of(self, target: PutTarget) -> list[UploadState]:
        path = path_of("uploads", target.bucket, target.key)
        return self._ask_again("GET", path, list[UploadState], target)

    def completed(self, target: PutTarget, upload_id: str) -> StoredFile | None:
        with contextlib.suppress(UploadGone):
            return _again(lambda: self.show(target, upload_id)).file
        return None

    def abort(self, target: PutTarget, upload_id: str) -> None:
        with contextlib.suppress(UploadGone):
            path = f"/uploads/{quote(upload_id, safe='')}"
            _again(lambda: self.ask("DELETE", self.url, path, type(None), about=target.path), PAUSES[:ABORT_PAUSES])

    def address_of(self, upload_id: str) -> str:
        return self.url

    def error_of(self, url: str, response: HTTPResponse, path: str, upload_id: str | None = None) -> Exception:
        error = self._mode.error_of(Answer.of(response, read_body(response, MAX_PROBLEM)))
        if isinstance(error, ServerRefused) and error.code == NODE_FAILED:
            return SourceFailed(self._shown, error.detail)
        if response.status not in RETRIED or isinstance(error, NoNodeTakes | DatabaseUnavailable):
            return error
        return ServerNotReady(self._shown, str(error))

    def unexpected(self, url: str, problem: str) -> Exception:
        return UnexpectedAnswer(self._shown, problem)

    def _ask_again(self, method: str, path: str, kind: type[T], target: PutTarget, **request: Any) -> T:
        return _again(lambda: self.ask(method, self.url, path, kind, about=target.path, **request))


def _again(ask: Callable[[], T], pauses: Sequence[float] | None = None) -> T:
    """What a request answers that is harmless to repeat, after pauses. Raises DatabaseUnavailable in the end."""
    for pause in PAUSES if pauses is None else pauses:
        try:
            return ask()
        except DatabaseUnavailable:
            time.sleep(pause)
    return ask()
