"""Access keys of S3's clients, on every database."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.file_access import FileAccessKey, FileRights
from peerd.domain.file_errors import AccessKeyNotFound, InvalidFile
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


def test_a_key_is_created_found_listed_and_revoked(store: Database) -> None:
    first = store.run(access_keys.create_access_key, "rclone of ä", created_by="anna")
    scopes = ["films", "team-*/public/"]
    second = store.run(access_keys.create_access_key, "reader", FileRights.READ, scopes=scopes)
    assert (first.is_valid, first.scopes, first.rights, first.created_by) == (True, None, FileRights.ALL, "anna")
    assert second.scopes == ("films", "team-*/public/")
    assert {key.id for key in store.read(access_keys.list_access_keys)} == {first.id, second.id}
    assert found(store, first) == first
    assert store.read(access_keys.find_access_key, "PEERDNONE") is None
    revoked = store.run(access_keys.revoke_access_key, first.id)
    assert not revoked.is_valid
    assert store.run(access_keys.revoke_access_key, first.id).revoked_at == revoked.revoked_at
    assert found(store, second).is_valid
    with pytest.raises(AccessKeyNotFound):
        store.run(access_keys.revoke_access_key, "PEERDNONE")


def test_the_use_of_a_key_is_written_once_a_minute_and_it_expires_by_the_clock_of_the_database(store: Database) -> None:
    key = store.run(access_keys.create_access_key, "used", expires_in=86_400.0)
    assert key.is_valid
    assert key.last_used_at is None
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


def test_what_no_key_can_have_is_refused(store: Database) -> None:
    refused: list[dict[str, Any]] = [{"scopes": scopes} for scopes in ([], ["A"], ["a*b"], ["a/\0"])]
    for wrong in (*refused, {"expires_in": 0.0}):
        with pytest.raises(InvalidFile):
            store.run(access_keys.create_access_key, "name", **wrong)
        assert store.read(access_keys.list_access_keys) == [], wrong


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
