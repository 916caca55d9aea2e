"""Access: rights, the roles that have them, actors, scopes of files, and access keys of S3's clients."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

import msgspec

from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import MAX_KEY_BYTES
from peerd.domain.quoting import quoted

MAX_SCOPES: Final = 100
_BUCKET_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}\*?|\*", re.ASCII)


class FileRights(StrEnum):
    """What an access key may do with the files of its scopes."""

    READ = "read"
    """List and read."""
    WRITE = "write"
    """Put and delete, without reading."""
    ALL = "read-write"
    """Both."""

    @property
    def can_read(self) -> bool:
        """Whether files can be listed and read."""
        return self is not FileRights.WRITE

    @property
    def can_write(self) -> bool:
        """Whether files can be put and deleted."""
        return self is not FileRights.READ


class FileScope(msgspec.Struct, frozen=True):
    """Files that an access key is for: those of buckets, whose keys begin with a prefix.

    >>> scope = FileScope.parse("team-*/films/")
    >>> scope.has_key("team-a", "films/one.mov"), scope.has_key("team-a", "notes")
    (True, False)
    """

    bucket: str
    prefix: str = ""

    @classmethod
    def parse(cls, text: object, field: str = "scopes") -> Self:
        """The scope of a text: BUCKET or BUCKET/PREFIX; the bucket may end with ``*``. An error names the field.

        Raises:
            InvalidFile: it is none.
        """
        bucket, _, prefix = text.partition("/") if isinstance(text, str) else ("", "", "")
        if not _BUCKET_PATTERN.fullmatch(bucket) or not _can_begin_keys(prefix):
            raise InvalidFile(field, f"{quoted(text)} is not BUCKET, BUCKET/PREFIX or the like of team-*")
        return cls(bucket, prefix)

    def has_bucket(self, bucket: str) -> bool:
        """Whether it has files of a bucket."""
        if self.bucket.endswith("*"):
            return bucket.startswith(self.bucket[:-1])
        return bucket == self.bucket

    def has_key(self, bucket: str, key: str) -> bool:
        """Whether a file is of it, or all files whose keys begin with ``key``."""
        return self.has_bucket(bucket) and key.startswith(self.prefix)


def parse_scopes(field: str, scopes: object) -> tuple[str, ...]:
    """The texts of scopes, after a check of each.

    Args:
        field: what an error names.
        scopes: a collection of them.

    Raises:
        InvalidFile: they are not 1 to `MAX_SCOPES` scopes.

    >>> parse_scopes("scopes", ["films", "team-*/films/"])
    ('films', 'team-*/films/')
    """
    if isinstance(scopes, str) or not isinstance(scopes, Collection) or not 1 <= len(scopes) <= MAX_SCOPES:
        raise InvalidFile(field, f"give 1 to {MAX_SCOPES} of BUCKET or BUCKET/PREFIX, or none for all files")
    for scope in scopes:
        FileScope.parse(scope, field)
    return tuple(scopes)


def have_key(scopes: Collection[str], bucket: str, key: str) -> bool:
    """Whether one of these scopes has a file, or all files whose keys begin with ``key``.

    >>> have_key(["music", "films/2026/"], "films", "2026/one.mov"), have_key(["music", "films/2026/"], "films", "20")
    (True, False)
    """
    return any(FileScope.parse(scope).has_key(bucket, key) for scope in scopes)


class FileAccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """An access key. Its secret is not a part of it: see `peerd.doorbell.cluster_secret`.

    Attributes:
        id: what clients call the access key.
        name: whose it is, or what for.
        scopes: BUCKET or BUCKET/PREFIX, a bucket may end with ``*``; None: all files.
        is_valid: whether it is neither revoked nor expired, by the clock of the database.
    """

    id: str
    name: str
    rights: FileRights
    scopes: tuple[str, ...] | None
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_valid: bool

    def sees_bucket(self, bucket: str) -> bool:
        """Whether it is for files of a bucket."""
        return self.scopes is None or any(FileScope.parse(text).has_bucket(bucket) for text in self.scopes)

    def has_key(self, bucket: str, key: str) -> bool:
        """Whether it is for a file, or for all files whose keys begin with ``key``."""
        return self.scopes is None or have_key(self.scopes, bucket, key)

    def has_whole_bucket(self, bucket: str) -> bool:
        """Whether it is for all files of a bucket."""
        return self.has_key(bucket, "")


def _can_begin_keys(prefix: str) -> bool:
    """Whether keys can begin with a text."""
    try:
        return "\0" not in prefix and len(prefix.encode()) <= MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False


# ---------------------------------------------------------------- rights


class Right(StrEnum):
    """What an actor may do. Each operation needs one of them."""

    VIEW = "view"
    """Read tasks, queues, limits, nodes, schedules and metrics."""
    ENQUEUE = "enqueue"
    OPERATE = "operate"
    """Act on tasks, queues, limits, nodes and schedules."""
    READ_FILES = "read-files"
    """List files, and get their contents."""
    WRITE_FILES = "write-files"
    """Put, move and remove files, without reading them."""
    ADMIN = "admin"
    """Manage users, tokens and access keys, and read the audit log."""


class Role(StrEnum):
    """The rights of a user."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


ALL_RIGHTS: Final = frozenset(Right)
RIGHTS_OF: Final[Mapping[Role, frozenset[Right]]] = {
    Role.VIEWER: frozenset({Right.VIEW, Right.READ_FILES}),
    Role.OPERATOR: ALL_RIGHTS - {Right.ADMIN},
    Role.ADMIN: ALL_RIGHTS,
}


class ActorKind(StrEnum):
    """How an actor is known."""

    PYTHON = "python"
    """A program that has the database's password."""
    CLI = "cli"
    """The command line, which has it too."""
    USER = "user"
    TOKEN = "token"  # noqa: S105 - no password
    PROXY = "proxy"
    """A user that a trusted proxy names."""
    SITE = "site"
    """A user of the site that the API is mounted in."""
    ACCESS_KEY = "access-key"
    """A client of S3, by its access key."""


WAY_OF: Final[Mapping[ActorKind, str]] = {
    ActorKind.PYTHON: "python",
    ActorKind.CLI: "cli",
    ActorKind.ACCESS_KEY: "s3",
}
"""By which way an actor of this kind comes; all others by the API."""


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation is done by, and what it may do.

    Attributes:
        name: of a user, a token, or a user of the operating system.
        kind: how the name is known.
        rights: what it may do.
        queues: the queues that it is restricted to; None: it is not restricted.
        file_scopes: BUCKET or BUCKET/PREFIX, the files that it is restricted to; None: all, or, if it is restricted to
            queues, none.
        address: the network address or the host that it comes from.

    >>> ann = Actor.with_role("ann", Role.OPERATOR, queues=["video"])
    >>> ann.may(Right.OPERATE), ann.may(Right.ADMIN), ann.covers("video"), ann.covers("mail")
    (True, False, True, False)
    """

    name: str
    kind: ActorKind = ActorKind.SITE
    rights: frozenset[Right] = frozenset()
    queues: frozenset[str] | None = None
    file_scopes: tuple[str, ...] | None = None
    address: str | None = None

    @classmethod
    def with_role(
        cls, name: str, role: Role | str, *, kind: ActorKind = ActorKind.SITE, queues: Iterable[str] | None = None
    ) -> Self:
        """An actor with the rights of a role; raises ValueError for an unknown one."""
        restricted_to = None if queues is None else frozenset(queues)
        return cls(name=name, kind=kind, rights=RIGHTS_OF[Role(role)], queues=restricted_to)

    @property
    def way(self) -> str:
        """``python``, ``cli``, ``s3`` or ``api``."""
        return WAY_OF.get(self.kind, "api")

    def may(self, right: Right) -> bool:
        """Whether it has a right. What may operate may view: the answer to an action shows what was acted on."""
        return right in self.rights or (right is Right.VIEW and Right.OPERATE in self.rights)

    def covers(self, queue: str) -> bool:
        """Whether it is not restricted to other queues than this one."""
        return self.queues is None or queue in self.queues

    def covers_files(self, bucket: str, prefix: str = "") -> bool:
        """Whether all files of a bucket whose keys begin with a prefix, such as a whole key, are of its files.

        >>> Actor(name="ann", file_scopes=("films/2026/",)).covers_files("films", "2026/one.mov")
        True
        >>> Actor(name="ann", queues=frozenset({"video"})).covers_files("films", "2026/one.mov")
        False
        """
        return self.queues is None if self.file_scopes is None else have_key(self.file_scopes, bucket, prefix)
