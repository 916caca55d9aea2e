"""Requests to the part of a bucket that is a disk; names are below its prefix, and errors are those of disks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from peerd.storage.object_disk.credentials import CredentialsReader, read_credentials
from peerd.storage.object_disk.errors import HEAD, ObjectStoreError, object_store_error
from peerd.storage.object_disk.options import ObjectDiskOptions

CONNECT_TIMEOUT: Final = timedelta(seconds=5)
REQUEST_TIMEOUT: Final = timedelta(seconds=120)
"""How long a request with its body may take."""
MAX_RETRIES: Final = 30
RETRY_TIMEOUT: Final = timedelta(seconds=20)
"""After this time no retry begins: with the last pause it is less than nodes wait for one another."""
FIRST_PAUSE: Final = timedelta(milliseconds=200)
LONGEST_PAUSE: Final = timedelta(seconds=5)
GROWTH: Final = 3
"""A pause is chosen by chance between the first one and so many times the last one, so that it grows by a half."""
QUICK_CONNECT_TIMEOUT: Final = timedelta(seconds=3)
QUICK_TIMEOUT: Final = timedelta(seconds=6)
QUICK_RETRY_TIMEOUT: Final = timedelta(seconds=2)
"""How long a look whether a disk is there is tried: other disks of the node are not reported before they end."""
UPLOADED_AT_ONCE: Final = 2
"""Parts of one content."""
LISTED: Final = 1000
NOT_IMPLEMENTED: Final = "501"


class ObjectStatus(NamedTuple):
    """The name of an object, its bytes, what identifies its content to the object store, and when it was written."""

    name: str
    size: int
    etag: str | None
    changed_at: datetime


class ObjectBucket:
    """The part of a bucket that is a disk; thread-safe.

    Args:
        options: where it is.

    Raises:
        CredentialsMissing: there are none.
    """

    def __init__(self, options: ObjectDiskOptions) -> None:
        self.place = options.place
        file = None if options.credentials_file is None else Path(options.credentials_file)
        read_credentials(self.place, file)
        self._credentials_file = file
        self._store = self._opened(options, CONNECT_TIMEOUT, REQUEST_TIMEOUT, RETRY_TIMEOUT)
        self._quick = self._opened(options, QUICK_CONNECT_TIMEOUT, QUICK_TIMEOUT, QUICK_RETRY_TIMEOUT)
        self._once = self._opened(options, CONNECT_TIMEOUT, REQUEST_TIMEOUT, timedelta(), retries=0)

    def _opened(
        self,
        options: ObjectDiskOptions,
        connect: timedelta,
        request: timedelta,
        retry: timedelta,
        *,
        retries: int = MAX_RETRIES,
    ) -> S3Store:
        """Requests to the bucket, with these times: to connect, of one request, and in which retries begin."""
        # The address by this name, because obstore prefers AWS_ENDPOINT_URL_S3 of the environment to all others.
        return S3Store(
            options.bucket,
            prefix=options.prefix or None,
            aws_endpoint_url_s3=options.url,
            region=options.region,
            disable_bulk_delete=True,  # not all object stores have it
            credential_provider=CredentialsReader(self.place, self._credentials_file),
            client_options={
                "allow_http": options.url.startswith("http:"),
                "connect_timeout": connect,
                "timeout": request,
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": retry,
                "backoff": {"init_backoff": FIRST_PAUSE, "max_backoff": LONGEST_PAUSE, "base": GROWTH},
            },
        )

    def read(self, name: str) -> bytes | None:
        """All of a small object, within some seconds; None: there is none. Raises ObjectStoreError."""
        with contextlib.suppress(FileNotFoundError), self._errors("get"):
            return bytes(obstore.get(self._quick, name).bytes())
        return None

    def read_range(self, name: str, start: int, count: int) -> bytes | None:
        """So many bytes of an object; None: there is no such object. Raises ObjectStoreError."""
        with contextlib.suppress(FileNotFoundError), self._errors("get"):
            return bytes(obstore.get_range(self._store, name, start=start, length=count))
        return None

    def status(self, name: str) -> ObjectStatus | None:
        """The status of an object; None: there is none, or no bucket. Raises ObjectStoreError."""
        with contextlib.suppress(FileNotFoundError), self._errors(HEAD):
            return _status(obstore.head(self._store, name))
        return None

    def write(self, name: str, data: bytes) -> None:
        """Write an object by one request. Raises ObjectStoreError."""
        with self._errors("put"):
            obstore.put(self._store, name, data, use_multipart=False)

    def write_new(self, name: str, data: bytes) -> bool:
        """Write an object by one request, unless there is one; whether there was none.

        An object store that knows no conditions of writes replaces what is there: read it again.

        Raises:
            ObjectStoreError: it could not be written.
        """
        try:
            return self._create(self._once, name, data)
        except ObjectStoreError as error:
            if error.problem.startswith(NOT_IMPLEMENTED):  # which obstore repeats, as all answers from 500 on
                self.write(name, data)
                return True
        return self._create(self._store, name, data)

    def _create(self, store: S3Store, name: str, data: bytes) -> bool:
        """Write an object on the condition that there is none; whether there was none. Raises ObjectStoreError."""
        with self._errors("put"), contextlib.suppress(AlreadyExistsError):
            obstore.put(store, name, data, mode="create")
            return True
        return False

    async def write_stream(self, name: str, parts: AsyncIterator[bytes | bytearray], part_size: int) -> None:
        """Write an object by an upload in parts; if ``parts`` raises an error, the upload is aborted.

        It is a coroutine, because a plain iterator would be called by one of the few threads that do the requests of
        all uploads of the process, and would block it while it waits for bytes.

        Raises:
            ObjectStoreError: and what ``parts`` raises.
        """
        with self._errors("upload"):
            await obstore.put_async(
                self._store,
                name,
                parts,
                use_multipart=True,
                chunk_size=part_size,
                max_concurrency=UPLOADED_AT_ONCE,
            )

    def remove(self, name: str) -> None:
        """Remove an object; if there is none, nothing is done. Raises ObjectStoreError."""
        with contextlib.suppress(FileNotFoundError), self._errors("delete"):
            obstore.delete(self._store, name)

    def copy(self, source: str, target: str) -> None:
        """Have the object store copy an object. Raises ObjectStoreError."""
        with self._errors("copy"):
            obstore.copy(self._store, source, target)

    def walk(self, folder: str) -> Iterator[ObjectStatus]:
        """The objects whose names begin with a folder, in the order of their names. Raises ObjectStoreError."""
        with self._errors("list"):
            batches = iter(obstore.list(self._store, prefix=folder, chunk_size=LISTED))
        while True:
            with self._errors("list"):
                batch = next(batches, None)
            if batch is None:
                return
            yield from sorted(map(_status, batch))

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Errors of the package become errors of disks; that an object is missing is passed on."""
        try:
            yield
        except FileNotFoundError as error:
            missing = object_store_error(error, self.place, action)
            if type(missing) is not ObjectStoreError or action in {"put", "upload", "copy", "list"}:
                raise missing from None
            raise
        except (BaseError, OSError) as error:
            read_credentials(self.place, self._credentials_file)  # if this is the cause, it says so
            # `from None`: the text of the cause has the whole request and answer.
            raise object_store_error(error, self.place, action) from None


def _status(meta: Any) -> ObjectStatus:
    return ObjectStatus(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])
