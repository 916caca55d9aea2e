"""Reading a file from one source after another, and saving it.

What has been received stays when a source fails: another one goes on behind it, and in the end the BLAKE3 of all bytes
must be the catalogue's.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any, Final

from blake3 import blake3

from peerd.domain.errors import DatabaseUnavailable
from peerd.domain.file_errors import ContentDiffers, FileReplaced, PutRefused
from peerd.domain.files import StoredFile
from peerd.storage.put_body import Progress
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.storage.upload_protocol import path_of
from peerd.storage.upstream import Upstream

BLOCK: Final = 1024 * 1024
ROUNDS: Final = 3
"""How often all sources are tried without a new byte."""
PAUSE: Final = 0.5
"""Seconds between two rounds."""


class FileReader(io.RawIOBase):
    """The content of a file; what is read from its beginning to its end is verified.

    Args:
        file: the version.
        upstream: what it is read from; closed with the reader.
    """

    def __init__(self, file: StoredFile, upstream: Upstream) -> None:
        super().__init__()
        self.file = file
        self.stop = file.size
        """Where reading ends: nodes are asked for no byte behind it."""
        self._path = f"{file.bucket}/{file.key}"
        self._upstream = upstream
        self._target = f"{upstream.prefix}{path_of('files', file.bucket, file.key)}"
        self._urls: list[str] = []
        self._tries = 0
        self._problems: list[str] = []
        self._position = 0
        self._hash: Any = blake3()
        """The hash of the bytes from the beginning to the position; None after a seek."""
        self._open: tuple[contextlib.ExitStack, HTTPResponse, str] | None = None

    def readable(self) -> bool:
        """Return True: a reader is read."""
        return True

    def seekable(self) -> bool:
        """Return True; what is read after a seek is verified by its node only."""
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
            NoSourceLeft, FileReplaced, ContentDiffers: see `ContentTransfer.get`.
        """
        view = memoryview(buffer).cast("B")[: max(0, self.stop - self._position)]
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
        self._upstream.close()
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
                request = self._upstream.http.request("GET", url, self._target, headers=self._headers())
                response = stack.enter_context(request)
                if response.status != (HTTPStatus.PARTIAL_CONTENT if self._is_range else HTTPStatus.OK):
                    raise self._refusal(url, response)
            except (SourceFailed, DatabaseUnavailable) as error:
                stack.close()
                self._note(url, str(error))
                continue
            except BaseException:
                stack.close()
                raise
            self._open = stack, response, url
            return self._open

    def _refusal(self, url: str, response: HTTPResponse) -> Exception:
        """The error of a response that has no content; after `SourceFailed` another node is asked."""
        if response.status in {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND}:
            return FileReplaced(self._path)
        error = self._upstream.error_of(url, response, self._path)
        is_of_source = isinstance(error, PutRefused) or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return SourceFailed(url, str(error)) if is_of_source and not isinstance(error, SourceFailed) else error

    def _next_url(self) -> str:
        if not self._urls:
            if self._tries == ROUNDS:
                raise NoSourceLeft(self._path, self._problems)
            if self._tries:
                time.sleep(PAUSE)
            self._tries += 1
            self._urls = self._upstream.holders(self.file)
            if not self._urls:
                raise NoSourceLeft(self._path, self._problems or ["no node with a disk is online"])
        return self._urls.pop(0)

    def _headers(self) -> dict[str, str]:
        headers = {"if-match": f'"{self.file.blake3}"'}
        if self._is_range:
            headers["range"] = f"bytes={self._position}-{self.stop - 1}"
        return headers

    @property
    def _is_range(self) -> bool:
        return self._position > 0 or self.stop < self.file.size

    def _failed(self, url: str, problem: str) -> None:
        self._close_response()
        self._note(url, f"{url}: {problem}")

    def _note(self, url: str, problem: str) -> None:
        self._upstream.note_failure(url)
        self._problems.append(problem)

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
        with os.fdopen(descriptor, "wb") as opened:  # without its buffer, a block might be written in part
            yield opened
            opened.flush()
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
