"""Access keys of S3's clients: created, listed and revoked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import FileAccessKey, FileRights, Right, parse_scopes
from peerd.domain.errors import InvalidTask
from peerd.domain.file_errors import InvalidFile, NoClusterSecret
from peerd.domain.quoting import quoted
from peerd.domain.task import NAME_LIMIT
from peerd.doorbell.cluster_secret import derive_access_secret, read_secret
from peerd.operate import validation
from peerd.operate.operations import BlockingMode, Mode, OperationGroup, Query, operation
from peerd.store import tokens
from peerd.store.audit import State, access_key_state

MAX_EXPIRY = 10 * 365 * 86_400.0
"""Seconds."""
AccessKeyList = list[FileAccessKey]


class NewAccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """An access key that was created, and its secret, which is shown this once."""

    key: FileAccessKey
    secret: str


class FileKeyOperations(OperationGroup[Mode]):
    """``client.files.keys``. Keys of storage servers with ``s3 = true`` in their ``[storage]``."""

    subject = "files.keys"

    @operation(needs=Right.ADMIN)
    def list(self) -> Query[AccessKeyList]:
        """All access keys, the oldest first; also those that have expired or were revoked."""
        return Query("read", tokens.list_access_keys)

    @operation(needs=Right.ADMIN)
    def create(
        self,
        name: str,
        rights: FileRights | str = FileRights.ALL,
        *,
        scopes: Collection[str] | None = None,
        expires_in: str | float | None = None,
    ) -> Query[NewAccessKey]:
        """Create an access key. Its secret is in the result, and is stored nowhere.

        Args:
            name: whose it is, or what for; several keys may have one name.
            rights: ``read``, ``write`` (put and delete, without reading) or ``read-write``.
            scopes: BUCKET or BUCKET/PREFIX, where the bucket may end with ``*``; None: all files.
            expires_in: seconds, or "90d"; None: it is valid until it is revoked.

        Raises:
            InvalidFile: one of them cannot be.
            NoClusterSecret: there is no secret of the cluster, and secrets of keys are made of it.

        >>> from peerd import Client
        >>> with Client("sqlite:////tmp/peerd-example-keys.sqlite", secret="the secret of a cluster") as client:
        ...     made = client.files.keys.create("backup", "write", scopes=["backups/laptop/"], expires_in="90d")
        ...     made.key.scopes, len(made.secret)
        (('backups/laptop/',), 43)
        """
        if not isinstance(name, str):
            raise InvalidFile("name", f"{quoted(name)} is no text")
        given = _parse_rights(rights)
        values: dict[str, Any] = {
            "scopes": None if scopes is None else parse_scopes("scopes", scopes),
            "created_by": self._actor.name[:NAME_LIMIT],
            "expires_in": None if expires_in is None else _parse_expiry(expires_in),
        }
        mode: BlockingMode = self.mode.blocking

        def create_key(connection: Connection) -> NewAccessKey:
            secret = read_secret(mode.database.url, mode.notifier.secret)
            if secret is None:
                raise NoClusterSecret
            key = tokens.create_access_key(connection, name, given, **values)
            return NewAccessKey(key=key, secret=derive_access_secret(secret, key.id))

        return Query("run", create_key).making("access key", _describe)

    @operation(needs=Right.ADMIN)
    def revoke(self, key_id: str) -> Query[FileAccessKey]:
        """Refuse an access key from the next request on, also in presigned URLs; raises `AccessKeyNotFound`."""
        text = validation.text("key_id", key_id)
        return Query("run", tokens.revoke_access_key, text).acting_on("access key", text, access_key_state, text)


def _describe(made: NewAccessKey) -> tuple[str, State]:
    """The state of a new key: all but its secret."""
    key = made.key
    return key.id, {"name": key.name, "rights": key.rights, "scopes": key.scopes, "expires_at": key.expires_at}


def _parse_rights(rights: FileRights | str) -> FileRights:
    try:
        return FileRights(rights)
    except ValueError:
        raise InvalidFile("rights", f"{quoted(rights)} is none of {', '.join(FileRights)}") from None


def _parse_expiry(expires_in: str | float) -> float:
    try:
        seconds = validation.seconds("expires_in", expires_in)
    except InvalidTask as error:
        raise InvalidFile("expires_in", error.problem) from None
    if not 0 < seconds <= MAX_EXPIRY:
        raise InvalidFile("expires_in", "must be more than nothing, and at most ten years")
    return seconds
