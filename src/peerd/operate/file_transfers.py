"""Putting and getting contents: by the calling thread below a `Client`, awaited below ``client.aio``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from peerd.domain.access import Right
from peerd.domain.files import StoredFile
from peerd.operate import validation
from peerd.operate.file_admission import FileAdmission
from peerd.operate.file_names import parse_file_path
from peerd.operate.modes import AsyncMode, Mode
from peerd.operate.operations import GroupMethod, OperationGroup
from peerd.storage.file_headers import PutOptions, PutTarget

if TYPE_CHECKING:
    from io import BufferedReader

    from peerd.storage.put_body import Progress

PARTS_ABOVE: Final = 64 * 1024**2
"""Bytes above which a content is put in parts."""
P = ParamSpec("P")
T = TypeVar("T")


class Transfer(GroupMethod[P, T]):
    """A method of a group that does more than a query: below ``client.aio`` it runs in a thread."""

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        def execute(group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            call = partial(method, group, *args, **kwargs)
            return group.mode.run(call) if isinstance(group.mode, AsyncMode) else call()

        super().__init__(method, execute)


class FileTransfers(FileAdmission[Mode]):
    """The part of ``client.files`` that moves contents.

    A client of the database moves them to and from the nodes that have disks: it needs the cluster's secret. A client
    of a server moves them by the server, which needs it.
    """

    @Transfer
    def put(  # noqa: PLR0913 - what is stored with a content, by keyword
        self,
        source: str | os.PathLike[str] | IO[bytes],
        path: str,
        *,
        class_name: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        expires_in: str | float | None = None,
        only_new: bool = False,
        progress: Progress | None = None,
        parts_above: int | None = PARTS_ABOVE,
    ) -> StoredFile:
        """Store a content as a file, which replaces the one that has the name.

        A large one is sent in parts: when a connection or a node fails, it goes on behind the last part that is
        durable; and a put of the same file, by a process that was killed meanwhile or by the next one, goes on there,
        too.

        Args:
            source: the path of a file, or an object with ``read`` that gives bytes. If the bytes can be read once only,
                those of a part are sent again when a node or a connection fails, and others are not.
            path: of the file: bucket/key.
            class_name: how it is kept; None: as the bucket's files.
            content_type: such as ``video/mp4``.
            metadata: names and values that are stored with it.
            expires_in: seconds, or "7d", after which it is removed by itself; None: never.
            only_new: refuse to replace a file.
            progress: called with the bytes that were sent so far, and with all of them, or None.
            parts_above: bytes above which the content is sent in parts; None: never. Of what can be read once only,
                16 MiB are enough.

        Returns:
            the version, when as many copies are durable as its class wants.

        Raises:
            BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: it cannot be stored so.
            UploadBroken: nothing of it was acknowledged for long.
            PeerdError: no node takes it, or other bytes have arrived; nothing was stored.
            OSError: the source cannot be read.
        """
        options = PutOptions(
            class_name=class_name,
            content_type=content_type,
            metadata=metadata or {},
            expires_in=None if expires_in is None else validation.seconds("expires_in", expires_in),
            only_new=only_new,
        )
        above = None if parts_above is None else validation.number("parts_above", parts_above, 0, 2**62)
        return self._put(source, path, options, progress, above)

    @Transfer
    def put_with(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        path: str,
        options: PutOptions,
        *,
        progress: Progress | None = None,
    ) -> StoredFile:
        """Store a content whose size or BLAKE3 is known before it is read, as one body; else as `put` does.

        Args:
            source: as for `put`.
            path: of the file: bucket/key.
            options: what is stored with it, and what it must be.
            progress: as for `put`.

        Raises:
            ContentDiffers: it is something else; nothing was stored.
            PeerdError, OSError: as `put`.
        """
        return self._put(source, path, options, progress, None)

    @Transfer
    def get(
        self, path: str, target: str | os.PathLike[str] | IO[bytes], *, progress: Progress | None = None
    ) -> StoredFile:
        """Write the content of a file to a path, or to an object with ``write``, and verify it.

        Args:
            path: of the file: bucket/key.
            target: a path has the whole file afterwards, or what it had before; in a folder, the file gets the last
                part of the key as its name.
            progress: called with the bytes that were received so far, and with all of them.

        Returns:
            the version that was got.

        Raises:
            BucketNotFound, FileMissing, InvalidFile: there is no such file.
            PeerdError: no node can give it, it was replaced meanwhile, or other bytes have arrived.
            OSError: the target cannot be written.
        """
        bucket, key = parse_file_path(path)
        self._admit("files.get", Right.READ_FILES, bucket, key)
        with self._transfer() as transfer:
            return transfer.get(bucket, key, target, progress)

    @Transfer
    def open(self, path: str) -> BufferedReader:
        """Open a file for reading, from its beginning or from where `seek` goes; close it, or use ``with``.

        What is read from the beginning to the end is verified; other ranges are verified by the node that sends them.

        Args:
            path: of the file: bucket/key.

        Raises:
            BucketNotFound, FileMissing, InvalidFile: there is no such file.
        """
        from io import BufferedReader  # noqa: PLC0415

        bucket, key = parse_file_path(path)
        self._admit("files.open", Right.READ_FILES, bucket, key)
        return BufferedReader(self._transfer().open(bucket, key), 1024 * 1024)

    def _put(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        path: str,
        options: PutOptions,
        progress: Progress | None,
        parts_above: int | None,
    ) -> StoredFile:
        bucket, key = parse_file_path(path)
        self._admit("files.put", Right.WRITE_FILES, bucket, key)
        with self._transfer() as transfer:
            return transfer.put(source, PutTarget(bucket, key, options), progress, parts_above=parts_above)
