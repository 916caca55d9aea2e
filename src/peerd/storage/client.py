"""Putting and getting contents of files, from a program or a command: over HTTP, to and from the nodes that have disks.

Addresses come from the catalogue, and each request is signed with the cluster's secret. Several nodes are tried. What
has been received of a file stays when a node fails: another one goes on behind it, and in the end the BLAKE3 of all
bytes must be the catalogue's. Of a body only blocks of a mebibyte are in memory. Large files are put in parts, see
`peerd.storage.uploading`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import secrets
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self, cast
from urllib.parse import quote

from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor
from peerd.domain.file_errors import (
    ContentDiffers,
    FileConditionFailed,
    FileReplaced,
    InvalidFile,
    NoClusterSecret,
    NoNodeTakes,
    PutRefused,
)
from peerd.domain.files import DiskState, StoredFile, check_key
from peerd.domain.quoting import quoted
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.storage.auditing import actor_query
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.placement.brake import ONLINE_WITHIN
from peerd.storage.put_options import PutOptions
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.store.connection.database import Database
from peerd.store.files.buckets import check_quota, get_bucket, get_bucket_and_class
from peerd.store.files.copies import find_sources
from peerd.store.files.disks import list_disks, read_disks
from peerd.store.files.versions import Condition as VersionCondition
from peerd.store.files.versions import delete_file, find_file, get_file, get_version

if TYPE_CHECKING:
    from peerd.storage.uploading.node_uploads import NodeUploads
    from peerd.storage.uploading.upload_requests import UploadRequests

BLOCK: Final = 1024 * 1024
MAX_ERROR_BODY: Final = 64 * 1024
ROUNDS: Final = 3
"""How often all nodes are tried without a new byte."""
PAUSE: Final = 0.5
"""Seconds between two rounds."""
METADATA: Final = "x-peerd-meta-"
METADATA_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
MAX_CONTENT_TYPE: Final = 255
RETRIED: Final = (HTTPStatus.INSUFFICIENT_STORAGE, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR)
"""Responses after which another node may do it."""
FINAL: Final = ("TooFewDurable",)
"""But not after these errors, with which every node would answer, after a long time."""

Progress = Callable[[int, int | None], None]
"""Called with the bytes that were transferred so far, and all of them if they are known."""


class ContentTransfer(ABC):
    """Puts and gets contents; closed at the end of ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        bucket: str,
        key: str,
        options: PutOptions,
        progress: Progress | None = None,
        *,
        parts_above: int | None = None,
    ) -> StoredFile:
        """Store a content as a file, which replaces the one that the key has.

        Args:
            source: the path of a regular file, or what has ``read``. A file is hashed first, so that other bytes are
                refused, and is sent again when a node fails. Of what can only be read once, the hash is compared
                afterwards.
            bucket: its name.
            key: of the file.
            options: what is stored with it.
            progress: called while it is sent.
            parts_above: bytes above which it is sent in parts, and goes on behind the last one when a node fails: a
                file is read once then; None: it is never.

        Raises:
            BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: it cannot be stored so.
            NoNodeTakes: no node could be reached, or had room.
            PutRefused: a node has refused it.
            UploadBroken: the connection to a server has ended.
            ContentDiffers: the source has changed meanwhile, or other bytes have arrived.
        """
        if parts_above is not None and options.blake3 is None:
            stored = self._put_by_parts(source, bucket, key, options, progress, parts_above)
            if stored is not None:
                return stored
        with opened_body(source, options) as body:
            return self._put(body, bucket, key, options, progress)

    def get(
        self,
        bucket: str,
        key: str,
        target: str | os.PathLike[str] | IO[bytes],
        progress: Progress | None = None,
    ) -> StoredFile:
        """Write the content of a file to a path or to what has ``write``.

        Args:
            bucket: its name.
            key: of the file.
            target: a path gets the whole file or stays as it was: it is written beside it, and renamed. A folder gets a
                file with the last part of the key as its name.
            progress: called while it is read.

        Raises:
            BucketNotFound, FileMissing: there is no such bucket, or file.
            NoSourceLeft: no node has it, or can be reached.
            FileReplaced: it was replaced or removed meanwhile.
            ContentDiffers: other bytes have arrived.
            OSError: the target cannot be written.
        """
        with self.open(bucket, key) as reader:
            return save(reader, target, progress)

    @abstractmethod
    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading; the reader closes the connections.

        Raises:
            BucketNotFound, FileMissing: there is no such bucket, or file.
        """

    @abstractmethod
    def uploads(self, bucket: str, key: str, options: PutOptions) -> UploadRequests:
        """Requests about the uploads of a key, which are put with these options."""

    def _put_by_parts(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        bucket: str,
        key: str,
        options: PutOptions,
        progress: Progress | None,
        parts_above: int,
    ) -> StoredFile | None:
        """Send a content in parts; None: it is to be sent as one body, and nothing of it was read."""
        from peerd.storage.uploading.sending import put_file, put_stream  # noqa: PLC0415 - it needs this one

        uploads = self.uploads(bucket, key, options)
        if isinstance(source, str | os.PathLike):
            status = Path(source).stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size <= parts_above:
                return None
            with Path(source).open("rb", buffering=0) as opened:
                uploads.check(status.st_size)
                return put_file(uploads, Path(source), opened, progress)
        elif options.size is None or options.size > parts_above:
            uploads.check(options.size)
            return put_stream(
                uploads, source, progress, lambda body: self._put(body, bucket, key, options, progress), parts_above
            )
        return None

    @abstractmethod
    def _put(self, body: Body, bucket: str, key: str, options: PutOptions, progress: Progress | None) -> StoredFile:
        """Send a body; see `put`."""


class FilesTransfer(ContentTransfer):
    """To and from the nodes that have disks.

    Args:
        database: with the catalogue.
        secret: of the cluster; None raises `NoClusterSecret`.
        actor: what puts are done by, for the audit log.
        failed: nodes that other transfers have found to fail.
    """

    def __init__(self, database: Database, secret: str | None, actor: Actor, failed: FailedNodes | None = None) -> None:
        if secret is None:
            raise NoClusterSecret
        self._database = database
        self._actor = actor
        self._failed = failed or FailedNodes()
        self._http = NodeHttp(NodeSigner(secret, ClusterClock()))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading."""
        file = self._database.read(_find_file, bucket, key)
        return FileReader(file, _NodeSources(self._database, self._http, file))

    def uploads(self, bucket: str, key: str, options: PutOptions) -> NodeUploads:
        """Requests about the uploads of a key to nodes."""
        from peerd.storage.uploading.node_uploads import NodeUploads  # noqa: PLC0415 - they need this one

        return NodeUploads(self._database, self._http, self._actor, self._failed, (bucket, key), options)

    def _put(self, body: Body, bucket: str, key: str, options: PutOptions, progress: Progress | None) -> StoredFile:
        self._database.read(check_put, bucket, key, options, body.size)
        headers = put_headers(options, body)
        problems: list[str] = []
        for url in self._failed.last(self._database.read(writable_urls, body.size or 0)):
            if not body.rewind():
                break
            try:
                answer = self._send(url, (bucket, key), headers, body, progress)
            except SourceFailed as error:
                self._failed.note(url)
                problems.append(str(error))
                continue
            except FileConditionFailed:
                stored = self._stored_by_lost_answer(bucket, key, body) if problems else None
                if stored is None:
                    raise
                return stored
            return self._accept(bucket, key, answer, body)
        raise NoNodeTakes(f"{bucket}/{key}", problems)

    def _send(
        self, url: str, place: tuple[str, str], headers: Mapping[str, str], body: Body, progress: Progress | None
    ) -> dict[str, Any]:
        """Send the body to one node, and return its answer. Raises SourceFailed where another one may do it."""
        target = f"{target_of(*place)}?{actor_query(self._actor)}"
        with self._http.upload(url, target, body.blocks(progress), headers) as response:
            answer = json_of(response)
            if response.status == HTTPStatus.CREATED:
                return answer
            status = response.status
        problem = str(answer.get("error") or f"it answers with status {status}")
        code = str(answer.get("code") or status)
        if status in RETRIED and code not in FINAL:
            raise SourceFailed(url, problem)
        if status == HTTPStatus.PRECONDITION_FAILED:
            raise FileConditionFailed(*place, "there is a file of this key")
        if code == "BodyDiffers":
            raise ContentDiffers("/".join(place), f"the source has changed while it was sent ({problem})")
        raise PutRefused(url, code, problem)

    def _stored_by_lost_answer(self, bucket: str, key: str, body: Body) -> StoredFile | None:
        """The current version, if it is this body: a node has stored it, and the connection ended before its answer."""
        found = self._database.read(lambda connection: find_file(connection, get_bucket(connection, bucket), key))
        return found if found is not None and found.blake3 == body.blake3 else None

    def _accept(self, bucket: str, key: str, answer: Mapping[str, Any], body: Body) -> StoredFile:
        file_id, stored_hash = int(str(answer["id"]), 16), str(answer["blake3"])
        if stored_hash != body.blake3:
            self._database.run(_remove_version, bucket, key, stored_hash)
            problem = (
                f"the node received other bytes (BLAKE3 {stored_hash}) than were sent ({body.blake3}); put it again"
            )
            raise ContentDiffers(f"{bucket}/{key}", problem)
        stored = self._database.read(get_version, file_id)
        if stored is None:
            raise FileReplaced(f"{bucket}/{key}")
        return stored


class FileSources(Protocol):
    """Where the content of a file is read from."""

    def urls(self) -> list[str]:
        """Those that can be asked now, the best first."""

    def request(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[HTTPResponse]:
        """Ask one of them for the content. Raises SourceFailed."""

    def refusal(self, response: HTTPResponse) -> Exception:
        """The error of a response that has no content; after `SourceFailed` another one is asked."""

    def close(self) -> None:
        """Close all connections."""


class _NodeSources:
    """The nodes that have copies of a file, and others, which read it from these."""

    def __init__(self, database: Database, http: NodeHttp, file: StoredFile) -> None:
        self._database = database
        self._http = http
        self._file = file
        self._target = target_of(file.bucket, file.key)

    def urls(self) -> list[str]:
        return self._database.read(_readable_urls, self._file.id)

    def request(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[HTTPResponse]:
        return self._http.request("GET", url, self._target, headers=headers)

    def refusal(self, response: HTTPResponse) -> Exception:
        if response.status in {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND}:
            return FileReplaced(f"{self._file.bucket}/{self._file.key}")
        problem = str(json_of(response).get("error") or f"it answers with status {response.status}")
        return SourceFailed("", problem)

    def close(self) -> None:
        self._http.close()


class FileReader(io.RawIOBase):
    """The content of a file; what is read from its beginning to its end is verified.

    Args:
        file: the version.
        sources: where it is read from; closed with the reader.
    """

    def __init__(self, file: StoredFile, sources: FileSources) -> None:
        super().__init__()
        self.file = file
        self._path = f"{file.bucket}/{file.key}"
        self._sources = sources
        self._urls: list[str] = []
        self._tries = 0
        self._problems: list[str] = []
        self._position = 0
        self._hash: Any = blake3()
        """Of the bytes from the beginning to the position; None after a seek."""
        self._open: tuple[contextlib.ExitStack, HTTPResponse, str] | None = None

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is; what is read after a seek is verified by its node only."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position; the next read asks for the bytes from there on."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.file.size}[whence]
        position = max(0, start + offset)
        if position != self._position:
            self._close_response()
            self._position = position
            self._hash = blake3() if position == 0 else None
        return position

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer; 0 at the end.

        Raises:
            NoSourceLeft, FileReplaced, ContentDiffers: see `FilesTransfer.get`.
        """
        view = memoryview(buffer).cast("B")[: max(0, self.file.size - self._position)]
        if not view:
            return 0
        count = self._read_some(view)
        self._tries = 0
        self._position += count
        if self._hash is not None:
            self._hash.update(view[:count])
            if self._position == self.file.size:
                self._verify()
        return count

    def copy_to(self, target: IO[bytes], progress: Progress | None = None) -> None:
        """Write all of the rest."""
        if not self.file.size:
            self._verify()
        buffer = memoryview(bytearray(BLOCK))
        while count := self.readinto(buffer):
            target.write(buffer[:count])
            if progress is not None:
                progress(self._position, self.file.size)

    def close(self) -> None:
        """End the response, and close the connections."""
        self._close_response()
        self._sources.close()
        super().close()

    def _read_some(self, view: memoryview) -> int:
        """At least a byte, from the open response or from the next node."""
        while True:
            _, response, url = self._open or self._ask_next()
            try:
                count = response.readinto(view)
            except (OSError, ValueError, HTTPException) as error:
                self._failed(url, str(error) or type(error).__name__)
                continue
            if count:
                return int(count)
            self._failed(url, f"the connection ended at byte {self._position:,} of {self.file.size:,}")

    def _ask_next(self) -> tuple[contextlib.ExitStack, HTTPResponse, str]:
        """Open a response of a node from the position on."""
        while True:
            url = self._next_url()
            stack = contextlib.ExitStack()
            try:
                response = stack.enter_context(self._sources.request(url, self._headers()))
                if response.status != (HTTPStatus.PARTIAL_CONTENT if self._position else HTTPStatus.OK):
                    raise self._sources.refusal(response)
            except SourceFailed as error:
                stack.close()
                self._problems.append(f"{url}: {error.problem}")
                continue
            except BaseException:
                stack.close()
                raise
            self._open = stack, response, url
            return self._open

    def _next_url(self) -> str:
        if not self._urls:
            if self._tries == ROUNDS:
                raise NoSourceLeft(self._path, list(dict.fromkeys(self._problems)))
            if self._tries:
                time.sleep(PAUSE)
            self._tries += 1
            self._urls = self._sources.urls()
            if not self._urls:
                raise NoSourceLeft(self._path, self._problems or ["no node with a disk is online"])
        return self._urls.pop(0)

    def _headers(self) -> dict[str, str]:
        headers = {"if-match": f'"{self.file.blake3}"'}
        if self._position:
            headers["range"] = f"bytes={self._position}-"
        return headers

    def _failed(self, url: str, problem: str) -> None:
        self._close_response()
        self._problems.append(f"{url}: {problem}")

    def _close_response(self) -> None:
        if self._open is not None:
            stack, _, _ = self._open
            self._open = None
            with contextlib.suppress(SourceFailed):
                stack.close()

    def _verify(self) -> None:
        found = self._hash.hexdigest()
        if found != self.file.blake3:
            raise ContentDiffers(
                self._path, f"its BLAKE3 is {found}, and the catalogue's {self.file.blake3}; get it again"
            )


class Body:
    """The body of a put.

    Args:
        source: is read.
        size: bytes, if it is known.
        digest: its BLAKE3 in hex, if it is known.
        is_repeatable: whether it can be read more than once.
    """

    def __init__(
        self, source: IO[bytes], size: int | None = None, digest: str | None = None, *, is_repeatable: bool = False
    ) -> None:
        self.size = size
        self.announced = digest
        self._source = source
        self._is_repeatable = is_repeatable
        self._hash = blake3()
        self._is_begun = False

    @classmethod
    def of_file(cls, opened: IO[bytes], options: PutOptions) -> Self:
        """That of a regular file, which is hashed now, and can be sent more than once; of a pipe as it comes.

        Raises:
            ContentDiffers: it is not what the options announce.
        """
        if not opened.seekable():
            return cls(opened, options.size, options.blake3)
        hasher = blake3()
        buffer = memoryview(bytearray(BLOCK))
        size = 0
        while count := cast("io.BufferedReader", opened).readinto(buffer):
            hasher.update(buffer[:count])
            size += count
        digest = hasher.hexdigest()
        if options.size not in {None, size} or options.blake3 not in {None, digest}:
            problem = f"it has {size:,} bytes with BLAKE3 {digest}, and not what was announced"
            raise ContentDiffers(str(getattr(opened, "name", "the source")), problem)
        return cls(opened, size, digest, is_repeatable=True)

    @property
    def blake3(self) -> str:
        """Of the bytes that were sent."""
        return self.announced or self._hash.hexdigest()

    def rewind(self) -> bool:
        """Go to the beginning; whether that is possible."""
        if self._is_repeatable:
            self._source.seek(0)
        return self._is_repeatable or not self._is_begun

    def blocks(self, progress: Progress | None) -> Iterator[bytes]:
        """The bytes, of a file as many as it had when it was hashed."""
        sent = 0
        while self.size is None or sent < self.size:
            data = self._source.read(BLOCK if self.size is None else min(BLOCK, self.size - sent))
            if not data:
                break
            self._is_begun = True
            if self.announced is None:
                self._hash.update(data)
            sent += len(data)
            yield data
            if progress is not None:
                progress(sent, self.size)
        if self.size is not None and sent < self.size:
            raise ContentDiffers(
                str(getattr(self._source, "name", "the source")), "it became shorter while it was sent"
            )


@contextlib.contextmanager
def opened_body(source: str | os.PathLike[str] | IO[bytes], options: PutOptions) -> Iterator[Body]:
    """The body of a put, of a path or of what has ``read``. Raises ContentDiffers, OSError."""
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as opened:
            yield Body.of_file(opened, options)
    else:
        yield Body(source, options.size, options.blake3)


def save(reader: FileReader, target: str | os.PathLike[str] | IO[bytes], progress: Progress | None) -> StoredFile:
    """Write all of a file to a path, which has the whole file afterwards or what it had, or to what has ``write``."""
    if not isinstance(target, str | os.PathLike):
        reader.copy_to(target, progress)
    else:
        with _written_beside(_target_file(Path(target), reader.file.key)) as opened:
            reader.copy_to(opened, progress)
    return reader.file


@contextlib.contextmanager
def _written_beside(target: Path) -> Iterator[IO[bytes]]:
    """A new file that gets the name of the target when it is whole and durable, and is removed otherwise."""
    draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as opened:
            yield cast("IO[bytes]", opened)
            os.fsync(opened.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _target_file(target: Path, key: str) -> Path:
    """The file that is written; in a folder, it has the last part of the key as its name."""
    if not target.is_dir():
        return target
    name = key.rstrip("/").rpartition("/")[2]
    if name in {"", ".", ".."}:
        raise IsADirectoryError(21, "Is a directory, and the key has no name for a file in it", str(target))
    return target / name


def target_of(bucket: str, key: str) -> str:
    """The target of a file in a request, below whatever serves files."""
    return f"/files/{quote(bucket, safe='')}/{quote(key, safe='')}"


def put_headers(options: PutOptions, body: Body) -> dict[str, str]:
    """The headers of a put, which say what is stored with the content. Raises InvalidFile."""
    check_headers(options)
    headers = {f"{METADATA}{name.lower()}": quote(value, safe=" ") for name, value in options.metadata.items()}
    optional = {
        "content-type": options.content_type,
        "x-peerd-class": options.class_name,
        "x-peerd-expires-in": None if options.expires_in is None else f"{options.expires_in:f}s",
        "x-peerd-blake3": body.announced,
        "if-none-match": "*" if options.only_new else None,
        "content-length": None if body.size is None else str(body.size),
    }
    return headers | {name: value for name, value in optional.items() if value is not None}


def json_of(response: HTTPResponse) -> dict[str, Any]:
    """The object in a short response; empty for what is none."""
    try:
        found = json.loads(response.read(MAX_ERROR_BODY))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check_put(connection: Connection, bucket: str, key: str, options: PutOptions, size: int | None) -> None:
    """Refuse what nodes would refuse, before anything is sent.

    Raises:
        InvalidFile, BucketNotFound, FileClassNotFound, QuotaExceeded, FileConditionFailed: it cannot be stored so.
    """
    check_key(key)
    found, _ = get_bucket_and_class(connection, bucket, options.class_name)
    replaced = find_file(connection, found, key)
    if options.only_new and replaced is not None:
        raise FileConditionFailed(bucket, key, "there is a file of this key")
    if size is not None:
        check_quota(connection, found, size, 0 if replaced is None else replaced.size)


def check_headers(options: PutOptions) -> None:
    """Refuse options that no header can have. Raises InvalidFile."""
    name = options.class_name
    if name is not None and not (name.isascii() and name.isprintable()):
        raise InvalidFile("class_name", f"{quoted(name)} is no name of a class")
    kind = options.content_type
    if kind is not None and not (kind.isascii() and kind.isprintable() and len(kind) <= MAX_CONTENT_TYPE):
        raise InvalidFile(
            "content_type", f"{quoted(kind)} is not printable ASCII of at most {MAX_CONTENT_TYPE} characters"
        )
    for name in options.metadata:
        if not METADATA_NAME.fullmatch(name):
            raise InvalidFile("metadata", f"{quoted(name)} is no name: a-z, 0-9, - and _, as in headers of HTTP")


def _find_file(connection: Connection, bucket: str, key: str) -> StoredFile:
    return get_file(connection, get_bucket(connection, bucket), key)


def writable_urls(connection: Connection, size: int) -> list[str]:
    """Where nodes with an online disk take a content of this size; those with more room are more often the first."""
    urls = {row.id: row.url for row in list_disks(connection)}
    room: dict[str, int] = {}
    for disk in read_disks(connection).disks:
        url = urls.get(disk.id)
        is_usable = disk.state is DiskState.ACTIVE and disk.problem is None and disk.silent_for <= ONLINE_WITHIN
        if url is not None and is_usable and disk.free >= size:
            room[url] = max(room.get(url, 1), disk.free)
    return sorted(room, key=lambda url: random.expovariate(room[url]))


def _readable_urls(connection: Connection, file_id: int) -> list[str]:
    """Where nodes can be asked for a file: those with a copy first; the others read it from these."""
    with_copy = [source.url for source in find_sources(connection, [file_id])[file_id] if source.url is not None]
    urls = {row.id: row.url for row in list_disks(connection) if row.url is not None}
    reported = [disk.id for disk in read_disks(connection, counted=False).disks if disk.silent_for <= ONLINE_WITHIN]
    online = {urls[number] for number in reported if number in urls}
    others = sorted(online - set(with_copy))
    random.shuffle(others)
    first = [url for url in dict.fromkeys(with_copy) if url in online]
    random.shuffle(first)
    return [*first, *others]


def _remove_version(connection: Connection, bucket: str, key: str, tag: str) -> None:
    with contextlib.suppress(FileConditionFailed):
        delete_file(connection, get_bucket(connection, bucket), key, VersionCondition(tag=tag))
