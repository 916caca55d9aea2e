"""The body of a put, a block at a time."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, Self, cast

import msgspec
from blake3 import blake3

from peerd.domain.file_errors import ContentDiffers
from peerd.storage.file_headers import PutOptions

BLOCK: Final = 1024 * 1024
Progress = Callable[[int, int | None], None]
"""Called with the bytes of a file that were transferred so far, and all of them if they are known."""


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
        """The body of a regular file, which is hashed now, and can be sent more than once; of a pipe as it comes.

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

    def announced_in(self, options: PutOptions) -> PutOptions:
        """What is stored with the body, with its size and its BLAKE3 as far as they are known."""
        return msgspec.structs.replace(options, size=self.size, blake3=self.announced)

    @property
    def blake3(self) -> str:
        """The BLAKE3 of the bytes that were sent, in hex."""
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
