"""Putting and getting contents: by the calling thread below a `Client`, awaited below ``client.aio``."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from functools import update_wrapper
from types import MethodType
from typing import IO, TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from peerd.domain.access import Right
from peerd.domain.errors import NotPermitted, PeerdError
from peerd.domain.files import StoredFile
from peerd.doorbell.cluster_secret import read_secret
from peerd.operate import validation
from peerd.operate.file_names import parse_file_path
from peerd.operate.modes import AsyncMode, BlockingMode, Mode
from peerd.operate.operations import OperationGroup

if TYPE_CHECKING:
    from io import BufferedReader

    from peerd.storage.client import FilesTransfer, Progress

P = ParamSpec("P")
T = TypeVar("T")


class StorageNotInstalled(PeerdError, ImportError):
    """The extra ``storage`` is not installed here."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"contents cannot be put or got here: {problem}; pip install 'peerd[storage]'")


class Transfer(Generic[P, T]):
    """A method of a group that does more than a query: it blocks below a client, and runs in a thread below ``aio``."""

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        def call(group: OperationGroup[Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
            mode = group.mode
            if isinstance(mode, AsyncMode):
                return mode.run(lambda: method(group, *args, **kwargs))
            return method(group, *args, **kwargs)

        self._call = update_wrapper(call, method)
        update_wrapper(self, method)  # type: ignore[arg-type]  # it is called through __get__ only

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...
    @overload
    def __get__(self, group: OperationGroup[BlockingMode], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: OperationGroup[AsyncMode], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, group: OperationGroup[Any] | None, owner: type) -> Any:
        """The method of one group."""
        return self if group is None else MethodType(self._call, group)


class FileTransfers(OperationGroup[Mode]):
    """The part of ``client.files`` that moves contents, to and from the nodes that have disks.

    The client needs the database, which has their addresses, and the cluster's secret.
    """

    @Transfer
    def put(
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
    ) -> StoredFile:
        """Store a content as a file, which replaces the one that has the name.

        Args:
            source: the path of a file, or an object with ``read`` that gives bytes. If the bytes can be read once only,
                they are not sent to a second node.
            path: of the file: bucket/key.
            class_name: how it is kept; None: as the bucket's files.
            content_type: such as ``video/mp4``.
            metadata: names and values that are stored with it.
            expires_in: seconds, or "7d", after which it is removed by itself; None: never.
            only_new: refuse to replace a file.
            progress: called with the bytes that were sent so far, and with all of them, or None.

        Returns:
            the version, when as many copies are durable as its class wants.

        Raises:
            BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: it cannot be stored so.
            PeerdError: no node takes it, or other bytes have arrived; nothing was stored.
            DatabaseRequired: the client has a server.
            OSError: the source cannot be read.
        """
        bucket, key = parse_file_path(path)
        self._require("files.put", Right.OPERATE)
        with self._transfer("files.put") as transfer:
            from peerd.storage.client import PutOptions  # noqa: PLC0415 - with the extra `storage` only

            options = PutOptions(
                class_name=class_name,
                content_type=content_type,
                metadata=metadata or {},
                expires_in=None if expires_in is None else validation.seconds("expires_in", expires_in),
                only_new=only_new,
            )
            return transfer.put(source, bucket, key, options, progress)

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
            DatabaseRequired: the client has a server.
            OSError: the target cannot be written.
        """
        bucket, key = parse_file_path(path)
        self._require("files.get", Right.VIEW)
        with self._transfer("files.get") as transfer:
            return transfer.get(bucket, key, target, progress)

    @Transfer
    def open(self, path: str) -> BufferedReader:
        """Open a file for reading, from its beginning or from where `seek` goes; close it, or use ``with``.

        What is read from the beginning to the end is verified; other ranges are verified by the node that sends them.

        Args:
            path: of the file: bucket/key.

        Raises:
            BucketNotFound, FileMissing, InvalidFile: there is no such file.
            DatabaseRequired: the client has a server.
        """
        from io import BufferedReader  # noqa: PLC0415

        bucket, key = parse_file_path(path)
        self._require("files.open", Right.VIEW)
        return BufferedReader(self._transfer("files.open").open(bucket, key), 1024 * 1024)

    def _require(self, name: str, right: Right) -> None:
        """Refuse it to an actor without the right, or of some queues: files belong to no queue."""
        if not self._actor.may(right):
            raise NotPermitted(self._actor.name, name, f"it needs the right {right}")
        if self._actor.queues is not None:
            raise NotPermitted(self._actor.name, name, "it is not about the queues that the actor may see")

    def _transfer(self, name: str) -> FilesTransfer:
        mode: BlockingMode = self.mode.blocking
        mode.require_database(name)
        try:
            from peerd.storage.client import FilesTransfer  # noqa: PLC0415 - with the extra `storage` only
        except ImportError as error:
            raise StorageNotInstalled(str(error)) from error
        mode.schema.require()
        return FilesTransfer(mode.database, read_secret(mode.database.url, mode.notifier.secret))
