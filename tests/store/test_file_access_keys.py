"""Access keys of S3's clients, on every database."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peerd.domain.file_access import FileAccessKey
from peerd.domain.file_errors import AccessKeyNotFound
from peerd.doorbell.access_secret import derive_access_secret
from peerd.store.connection.database import Database
from peerd.store.files import access_keys
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import file_access_keys


def found(store: Database, key: FileAccessKey) -> FileAccessKey:
    read = store.read(access_keys.find_access_key, key.id)
    assert read is not None
    return read


def change(store: Database, key: FileAccessKey, **values: object) -> None:
    statement = sa.update(file_access_keys).where(file_access_keys.c.id == key.id).values(**values)
    store.run(lambda connection: connection.execute(statement).close())


def test_the_use_of_a_key_is_written_once_a_minute_and_it_expires_by_the_clock_of_the_database(store: Database) -> None:
    key = store.run(access_keys.create_access_key, "used", expires_in=86_400.0)
    assert (key.is_valid, key.last_used_at) == (True, None)
    store.run(access_keys.note_use, key.id)
    first = found(store, key).last_used_at
    store.run(access_keys.note_use, key.id)
    assert first is not None
    assert found(store, key).last_used_at == first
    change(store, key, last_used_at=seconds_from_now(-61.0))
    store.run(access_keys.note_use, key.id)
    last = found(store, key).last_used_at
    assert last is not None
    assert last >= first
    change(store, key, expires_at=seconds_from_now(-1.0))
    assert not found(store, key).is_valid
    other = store.run(access_keys.create_access_key, "revoked")
    assert not store.run(access_keys.revoke_access_key, other.id).is_valid
    with pytest.raises(AccessKeyNotFound):
        store.run(access_keys.revoke_access_key, "PEERDNONE")


def test_a_secret_is_in_no_column_and_differs_between_keys_and_clusters(store: Database) -> None:
    key, other = (store.run(access_keys.create_access_key, name) for name in "ab")
    secret = derive_access_secret("a cluster's secret", key.id)
    assert secret != derive_access_secret("a cluster's secret", other.id)
    assert secret != derive_access_secret("another cluster's secret", key.id)
    rows = store.read(lambda connection: connection.execute(sa.select(file_access_keys)).all())
    assert secret not in repr(rows)


def test_a_scope_is_for_its_bucket_and_prefix_only(store: Database) -> None:
    key = store.run(access_keys.create_access_key, "scoped", scopes=["films/2026/", "team-*"])
    assert [key.has_key("films", text) for text in ("2026/one", "2026/", "2026", "", "2025/one")] == [
        True, True, False, False, False
    ]  # fmt: skip
    assert [key.sees_bucket(bucket) for bucket in ("films", "films2", "team-a", "team", "music")] == [
        True, False, True, False, False
    ]  # fmt: skip
    assert key.has_whole_bucket("team-a")
    assert not key.has_whole_bucket("films")
