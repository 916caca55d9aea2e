"""Entries of the audit log for what clients do with files: written where it is done, in the same transaction.

What the cluster does by itself, such as copying, removing surplus copies, and removing files that expire, has none.
A client names its actor in the target of a request, which its signature covers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor, ActorKind, FileAccessKey
from peerd.domain.files import StoredFile
from peerd.domain.task import NAME_LIMIT
from peerd.store.audit import NewAuditEntry, State, write_entry

PUT: Final = "files.put"
REMOVE: Final = "files.remove"
MOVE: Final = "files.move"
ACTOR: Final = "actor"
"""The parameter of a request that names the actor."""
UNNAMED: Final = Actor(name="unnamed", kind=ActorKind.PYTHON)
"""A program that has the cluster's secret, and names no actor."""


class InvalidActor(ValueError):
    """A request does not name its actor as clients do."""


class _NamedActor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An actor as requests name it."""

    kind: ActorKind
    name: str
    address: str | None = None


class FileAuditor(msgspec.Struct, frozen=True, kw_only=True):
    """Writes entries of one actor.

    Attributes:
        actor: what does it.
        more: arguments of each entry, beside the file's name.
    """

    actor: Actor
    more: Mapping[str, str] = {}

    @classmethod
    def of_access_key(cls, key: FileAccessKey, address: str | None) -> FileAuditor:
        """The auditor of a client of S3."""
        actor = Actor(name=key.name, kind=ActorKind.ACCESS_KEY, address=address)
        return cls(actor=actor, more={"access_key": key.id})

    def write(
        self,
        connection: Connection,
        operation: str,
        path: str,
        before: State | None,
        after: State | None,
        **more: str,
    ) -> None:
        """Write an entry.

        Args:
            connection: in the transaction of the action.
            operation: such as `PUT`.
            path: of the file: bucket/key.
            before: its state.
            after: its state, None where it is gone.
            more: other arguments.
        """
        write_entry(connection, self.entry(operation, path, before, after, **more))

    def entry(self, operation: str, path: str, before: State | None, after: State | None, **more: str) -> NewAuditEntry:
        """The entry that `write` writes."""
        return NewAuditEntry(
            actor_kind=self.actor.kind,
            actor=self.actor.name[:NAME_LIMIT],
            address=self.actor.address,
            way=self.actor.way,
            operation=operation,
            target_kind="file",
            target=path[:NAME_LIMIT],
            arguments=_to_json({"path": path, **more, **self.more}),
            state_before=None if before is None else _to_json(before),
            state_after=None if after is None else _to_json(after),
        )


def state_of(file: StoredFile) -> State:
    """The state of a version, as `peerd.store.audit.file_state` reads it."""
    return {"size": file.size, "version": file.version, "class_name": file.class_name, "blake3": file.blake3}


def actor_query(actor: Actor) -> str:
    """The query of a request that names its actor.

    >>> auditor_of({"actor": '{"kind":"token","name":"ci","address":null}'}).actor.name
    'ci'
    """
    named = _NamedActor(actor.kind, actor.name, actor.address)
    return urlencode({ACTOR: msgspec.json.encode(named).decode()})


def auditor_of(query: Mapping[str, str]) -> FileAuditor:
    """The auditor of the actor that the query of a request names. Raises InvalidActor."""
    if ACTOR not in query:
        return FileAuditor(actor=UNNAMED)
    try:
        named = msgspec.json.decode(query[ACTOR], type=_NamedActor)
    except msgspec.MsgspecError as error:
        raise InvalidActor(f"actor: {error}") from None
    return FileAuditor(actor=Actor(name=named.name, kind=named.kind, address=named.address))


def _to_json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)
