"""Rights, the roles that have them, and actors: what an operation is done by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Self

import msgspec

from peerd.domain.file_access import have_key


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
