"""Idempotency keys: a request that is repeated with its key enqueues nothing again and gets the first answer.

A request that was cut off may have been carried out. The key's row is written in the transaction of the enqueue; a
competitor with the same key waits for the end of that transaction, and finds the answer, or, after a rollback, no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import IdempotencyKeyReused
from peerd.domain.task import NewTask
from peerd.store.enqueue import enqueue
from peerd.store.enqueue.enqueue import Enqueued
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import idempotency_keys
from peerd.store.statements import new_token
from peerd.store.upserts import insert_if_absent

KEEP: Final = 86_400.0
"""Seconds for which an answer is kept, as HTTP APIs commonly do."""
KEY: Final = ("id",)


def enqueue_once(connection: Connection, key: str, new: Sequence[NewTask], *, owner: str = "") -> list[Enqueued]:
    """Write tasks in the caller's transaction, unless a request with this key has done so.

    Args:
        connection: in a transaction of its own.
        key: chosen by the client; any text.
        new: the tasks.
        owner: of the key; the same text is another key for another owner.

    Raises:
        IdempotencyKeyReused: the key came with other tasks before.
    """
    untraced = [msgspec.structs.replace(one, trace_context=None) for one in new]  # each repetition has its own span
    own = {
        "id": _digest([owner, key] if owner else key),
        "request": _digest(untraced),
        "token": new_token(),
    }
    insert_if_absent(connection, idempotency_keys, [own], key=KEY)
    is_key = idempotency_keys.c.id == own["id"]
    columns = (idempotency_keys.c.token, idempotency_keys.c.request, idempotency_keys.c.answer)
    row = connection.execute(sa.select(*columns).where(is_key).with_for_update()).one()
    if row.request != own["request"]:
        raise IdempotencyKeyReused(key)
    if row.token != own["token"]:
        return msgspec.json.decode(row.answer, type=list[Enqueued])
    written = enqueue.enqueue_many(connection, list(new))
    answer = msgspec.json.encode(written).decode()
    connection.execute(sa.update(idempotency_keys).where(is_key).values(answer=answer))
    return written


def purge_idempotency_keys(connection: Connection, limit: int) -> int:
    """Delete keys that are older than a day."""
    old = idempotency_keys.c.created_at <= seconds_from_now(-KEEP)
    first = sa.select(idempotency_keys.c.id).where(old).order_by(idempotency_keys.c.created_at).limit(limit)
    ids = sorted(connection.execute(first.with_for_update(skip_locked=True)).scalars())
    return connection.execute(sa.delete(idempotency_keys).where(idempotency_keys.c.id.in_(ids))).rowcount if ids else 0


def _digest(value: object) -> str:
    return blake2b(msgspec.json.encode(value), digest_size=16).hexdigest()
