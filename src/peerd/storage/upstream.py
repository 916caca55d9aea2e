"""What a client's requests about contents go to: the nodes that have disks, or a server that relays to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import ContentDiffers, UploadGone
from peerd.domain.files import StoredFile
from peerd.storage.file_headers import PutTarget
from peerd.storage.transfer.node_http import NodeHttp, read_body
from peerd.storage.upload_protocol import DIGEST, UploadState

T = TypeVar("T")
SUCCESSES: Final = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT)
MAX_JSON: Final = 1024 * 1024
"""Bytes of a response about a file or its uploads."""


class Upstream(ABC):
    """What the requests of a client go to.

    Where a request fails because a node does, `SourceFailed` is raised; where the database, or the server before the
    nodes, does not answer, `DatabaseUnavailable`. After both it can be sent again, to an upload when it is known how
    many bytes of it are durable.

    Attributes:
        http: sends the requests.
        prefix: what the paths of all requests begin with.
        actor: the end of each change's query: it names the actor for the audit log; empty where the receiver knows it.
    """

    http: NodeHttp
    prefix = ""
    actor = ""

    @abstractmethod
    def close(self) -> None:
        """Close the connections that are its own."""

    @abstractmethod
    def find(self, bucket: str, key: str) -> StoredFile:
        """The current version of a file. Raises BucketNotFound, FileMissing."""

    @abstractmethod
    def check(self, target: PutTarget, size: int | None) -> None:
        """Refuse what would be refused anyway, before anything is sent.

        Raises:
            InvalidFile, BucketNotFound, FileClassNotFound, QuotaExceeded, FileConditionFailed: it cannot be stored so.
        """

    @abstractmethod
    def takers(self, size: int) -> Iterable[str]:
        """The addresses to which a put of so many bytes is sent, one after another, until one takes it."""

    @abstractmethod
    def holders(self, file: StoredFile) -> list[str]:
        """The addresses that can be asked for a content now, the best first."""

    @abstractmethod
    def note_failure(self, url: str) -> None:
        """Remember that an address has failed."""

    @abstractmethod
    def put_failed(self, path: str, failures: Sequence[PeerdError]) -> PeerdError:
        """The error of a put that none of the takers has taken."""

    @abstractmethod
    def take_back(self, stored: StoredFile) -> None:
        """Remove a version that has other bytes than were sent, as far as the client may."""

    @abstractmethod
    def begin(
        self, target: PutTarget, size: int | None, source: str | None, instead_of: str | None = None
    ) -> UploadState:
        """Begin an upload on a node that takes it.

        Args:
            target: where it is put.
            size: bytes of the whole, if they are known.
            source: by which it is found again.
            instead_of: an upload whose node is not asked.

        Raises:
            NoNodeTakes: no node does.
            InvalidFile, BucketNotFound, FileClassNotFound, QuotaExceeded, FileConditionFailed: it cannot be stored so.
            PutRefused: a node has refused it for another reason.
        """

    @abstractmethod
    def uploads_of(self, target: PutTarget) -> Sequence[UploadState]:
        """The uploads of a key that have not ended, the one with the most bytes first."""

    @abstractmethod
    def completed(self, target: PutTarget, upload_id: str) -> StoredFile | None:
        """The version that an upload has become, if another put of the same source has completed it."""

    @abstractmethod
    def abort(self, target: PutTarget, upload_id: str) -> None:
        """Abort an upload, if it has not ended; its node removes the bytes."""

    @abstractmethod
    def address_of(self, upload_id: str) -> str:
        """Where requests about an upload go. Raises UploadGone if its disk is lost."""

    @abstractmethod
    def error_of(self, url: str, response: HTTPResponse, path: str, upload_id: str | None = None) -> Exception:
        """The error of a response that is not a success, for a file, or an upload of it."""

    @abstractmethod
    def unexpected(self, url: str, problem: str) -> Exception:
        """The error of a response that cannot be read."""

    def show(self, target: PutTarget, upload_id: str) -> UploadState:
        """An upload, by its node; with the file that it has become. Raises SourceFailed, UploadGone."""
        return self._ask_about("GET", target, upload_id)

    def send(self, target: PutTarget, upload_id: str, offset: int, count: int, body: Iterator[bytes]) -> UploadState:
        """Send a part: its bytes, and their BLAKE3; return how many bytes are durable now.

        Args:
            target: where the whole is put.
            upload_id: of the upload.
            offset: where the part begins.
            count: its bytes.
            body: these, and the 32 bytes of their BLAKE3.

        Raises:
            SourceFailed: it can be sent again.
            UploadGone, UploadPositionDiffers, QuotaExceeded, PutRefused: it was refused.
            ContentDiffers: it was damaged on its way.
            DiskTakesNoMore: the disk is full, or has failed.
        """
        headers = {"content-type": "application/octet-stream", "content-length": str(count + DIGEST)}
        return self._ask_about("PUT", target, upload_id, f"?offset={offset}", headers=headers, body=body)

    def complete(self, target: PutTarget, upload_id: str, size: int, digest: str) -> StoredFile | None:
        """Make a file of an upload; None: that still runs.

        Args:
            target: where it is put.
            upload_id: of the upload, all of whose bytes are durable.
            size: how many these are.
            digest: their BLAKE3, in hex.

        Raises:
            SourceFailed, UploadGone, UploadPositionDiffers, QuotaExceeded, PutRefused, DiskTakesNoMore: as `send`.
            FileConditionFailed: there is a file of the key.
            ContentDiffers: the bytes have another BLAKE3; the upload is aborted.
        """
        stored = self._ask_about("POST", target, upload_id, f"?size={size}&blake3={digest}").file
        if stored is not None and (stored.size, stored.blake3) != (size, digest):
            problem = f"the upload was completed with {stored.size:,} bytes of BLAKE3 {stored.blake3}"
            raise ContentDiffers(target.path, problem)
        return stored

    def received(self, target: PutTarget, upload_id: str) -> int:
        """How many bytes of an upload are durable, by its node. Raises SourceFailed, UploadGone."""
        shown = self.show(target, upload_id)
        if shown.file is not None:
            raise UploadGone(upload_id)
        return shown.received

    def ask(
        self,
        method: str,
        url: str,
        path: str,
        kind: type[T],
        *,
        about: str,
        upload_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Iterator[bytes] | None = None,
    ) -> T:
        """What the answer to a request says.

        Args:
            method: such as GET; PUT with a body.
            url: of a node, or of the server.
            path: with its query.
            kind: what the answer is.
            about: the path of the file, for errors.
            upload_id: of the upload that it is about.
            headers: of the request.
            body: of the request.

        Raises:
            SourceFailed, DatabaseUnavailable: it can be sent again.
            Exception: what the answer says.
        """
        target = f"{self.prefix}{path}"
        if self.actor and method != "GET":
            target += f"{'&' if '?' in path else '?'}{self.actor}"
        if body is None:
            request = self.http.request(method, url, target, headers=headers)
        else:
            request = self.http.upload(url, target, body, headers or {})
        with request as response:
            is_success = response.status in SUCCESSES
            read = self._decode(url, response, kind) if is_success else self.error_of(url, response, about, upload_id)
            response.read(1)  # where it has ended, the connection can be used again
        if isinstance(read, Exception):
            raise read
        return read

    def _ask_about(
        self, method: str, target: PutTarget, upload_id: str, query: str = "", **request: Any
    ) -> UploadState:
        path = f"/uploads/{quote(upload_id, safe='')}{query}"
        return self.ask(
            method, self.address_of(upload_id), path, UploadState, about=target.path, upload_id=upload_id, **request
        )

    def _decode(self, url: str, response: HTTPResponse, kind: type[T]) -> T:
        data = read_body(response, MAX_JSON + 1)
        if len(data) > MAX_JSON:
            raise self.unexpected(url, f"it has more than {MAX_JSON} bytes")
        try:
            return msgspec.json.decode(data or b"null", type=kind, strict=False)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.unexpected(url, f"what it says of a file cannot be read: {error}") from None
