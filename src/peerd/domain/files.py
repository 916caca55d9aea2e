"""Files that survive their servers: classes, disks, copies and versions, as values."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from peerd.domain.file_errors import InvalidFile

DEFAULT_CLASS: Final = "default"
STORAGE_SERVER: Final = "storage-server"
STORAGE_KINDS: Final = ("storage", "storage-manager", STORAGE_SERVER)
"""The kinds of processes of [storage]: copiers, the manager, the server."""
MAX_COPIES: Final = 16
MAX_KEY_BYTES: Final = 1024
"""Bytes of UTF-8 of a key, as in S3."""

BUCKET_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!\.)|\.(?=[a-z0-9])){1,61}[a-z0-9]", re.ASCII)
IP_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+", re.ASCII)
CLASS_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)


def check_key(key: str) -> str:
    """Check the key of a file.

    Raises:
        InvalidFile: it is empty, longer than 1,024 bytes of UTF-8, or has NUL or lone surrogates.

    >>> check_key("films/ä.mov")
    'films/ä.mov'
    """
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidFile("key", "it is not text that UTF-8 can hold") from None
    if not 1 <= size <= MAX_KEY_BYTES:
        raise InvalidFile("key", f"it has {size} bytes of UTF-8; 1 to {MAX_KEY_BYTES} are allowed")
    if "\0" in key:
        raise InvalidFile("key", "it has a NUL character, which databases cannot store")
    return key


def check_bucket_name(name: str) -> str:
    """Check the name of a bucket, for which the rules of S3 hold.

    Raises:
        InvalidFile: it breaks them.

    >>> check_bucket_name("films-2026")
    'films-2026'
    """
    if not BUCKET_NAME.fullmatch(name) or IP_ADDRESS.fullmatch(name):
        raise InvalidFile(
            "bucket",
            "a name has 3 to 63 of a-z, 0-9, - and dots, with a letter or digit at both ends and beside each dot",
        )
    return name


def check_class_name(name: str) -> str:
    """Check the name of a class.

    Raises:
        InvalidFile: it has other characters than a-z, 0-9, - and _, or more than 63.
    """
    if not CLASS_NAME.fullmatch(name):
        raise InvalidFile("class", "a name has 1 to 63 of a-z, 0-9, - and _, and begins with a letter or digit")
    return name


class DiskKind(StrEnum):
    """Where the contents of a disk are."""

    FOLDER = "folder"
    """In a folder of its node."""
    S3 = "s3"
    """In a bucket of an object store, which all nodes use that have it in their configuration."""


class DiskState(StrEnum):
    """What a disk is used for, as an operator has set it."""

    ACTIVE = "active"
    READONLY = "readonly"
    """Copies on it are kept and read; it gets no new ones."""
    DRAIN = "drain"
    """Copies on it are made anew elsewhere, and then removed from it."""
    LOST = "lost"
    """A disk that will not come back: its copies do not exist any more."""


class CopyState(StrEnum):
    """The state of the content of a file on one disk."""

    PLANNED = "planned"
    """To be made, or being made."""
    STORED = "stored"
    """Whole when it was verified last."""
    BAD = "bad"
    """Damaged or missing; what is left of it is in quarantine."""
    REMOVING = "removing"
    """To be removed, or being removed."""


class FileState(StrEnum):
    """The state of a version of a file."""

    STAGED = "staged"
    """Received, and not yet current: fewer copies are durable than its class demands before the put is acknowledged."""
    STORED = "stored"
    """The current version of its key."""
    DELETED = "deleted"
    """A tombstone, until all copies are removed: deleted, or overwritten by a later version."""


class FileClass(msgspec.Struct, frozen=True, kw_only=True):
    """How files are kept.

    Attributes:
        name: of the class.
        copies: how many copies a file has, each on another node.
        durable: how many of them exist before a put is acknowledged.
        zones: on how many zones the copies are, as far as there are so many; an object store is a zone of its own.
        object_copies: how many of the copies are in object stores, and the others in folders; None: anywhere.

    >>> FileClass(name="archive", copies=3, durable=2, zones=2).problem() is None
    True
    >>> FileClass(name="archive", copies=2, durable=3).problem()
    'durable: 3 copies cannot be durable where there are 2; give at most the number of copies'
    """

    name: str
    copies: int = 2
    durable: int = 1
    zones: int = 1
    object_copies: int | None = None

    def needs(self, size: int) -> FileNeeds:
        """The needs of a file of so many bytes."""
        return FileNeeds(size=size, copies=self.copies, zones=self.zones, object_copies=self.object_copies)

    def problem(self) -> str | None:
        """The fault of the class, with the remedy; None if it has none."""
        if not 1 <= self.copies <= MAX_COPIES:
            return f"copies: {self.copies} is not a number from 1 to {MAX_COPIES}"
        for name, number in (("durable", self.durable), ("zones", self.zones)):
            if number < 1:
                return f"{name}: {number} is less than 1"
        if self.durable > self.copies:
            return (
                f"durable: {self.durable} copies cannot be durable where there are {self.copies}; "
                "give at most the number of copies"
            )
        if self.zones > self.copies:
            return f"zones: {self.copies} copies cannot be in {self.zones} zones; give at most the number of copies"
        if self.object_copies is not None and not 0 <= self.object_copies <= self.copies:
            return f"object_copies: {self.object_copies} of {self.copies} copies cannot be in object stores"
        return None


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk, as it was read at one moment.

    Attributes:
        id: its number in the catalogue.
        node: the name of its node; None for an object store.
        zone: of its node.
        state: what it is used for.
        free: bytes that can be written, without its reserve and what is promised to planned copies.
        planned: how many copies are planned on it.
        silent_for: seconds since its node reported it last.
        problem: why nothing can be written to it now, or None.
        verified_since: copies verified before this time do not count: the disk was missing until then.
    """

    id: int
    node: str | None
    zone: str | None = None
    kind: DiskKind = DiskKind.FOLDER
    state: DiskState = DiskState.ACTIVE
    size: int = 0
    free: int = 0
    planned: int = 0
    silent_for: float = 0.0
    problem: str | None = None
    verified_since: datetime | None = None

    @property
    def is_shared(self) -> bool:
        """Whether several nodes may use it at once, so that it is of none of them: a disk in an object store."""
        return self.kind is DiskKind.S3

    @property
    def site(self) -> str:
        """What is lost at once with the disk: its node, or the object store."""
        return f"s3 {self.id}" if self.node is None else self.node

    @property
    def used_share(self) -> float:
        """The part of it that is in use, or promised; 1 where its size is not known."""
        return 1.0 - self.free / self.size if self.size else 1.0


class Copy(msgspec.Struct, frozen=True):
    """The content of a file on a disk."""

    disk_id: int
    state: CopyState
    verified_at: datetime | None = None


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a file, as it is in the catalogue.

    Attributes:
        id: of the version; its content has this name on disks.
        bucket: the name of its bucket.
        key: its name in the bucket.
        version: counts the versions of its key, from 1; 0 until it is current.
        state: whether it is the current version.
        class_name: how it is kept.
        size: bytes.
        blake3: of the content, in hex.
        etag: as S3 has it, for its clients; None where no S3 client has put it.
        content_type: as it was given.
        metadata: as it was given, of S3's headers ``x-amz-meta-``.
        headers: further headers of HTTP that S3's clients get with it: ``cache-control``, ``x-amz-checksum-crc32``.
        expires_at: when it is deleted by itself.
    """

    id: int
    bucket: str
    key: str
    version: int
    state: FileState
    class_name: str
    size: int
    blake3: str
    etag: str | None = None
    content_type: str | None = None
    metadata: dict[str, str] = {}
    headers: dict[str, str] = {}
    created_at: datetime
    expires_at: datetime | None = None


class FileNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision has to know of a version of a file."""

    size: int
    copies: int
    zones: int = 1
    object_copies: int | None = None
    is_deleted: bool = False
