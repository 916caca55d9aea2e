"""Rows that SQL by hand has made unreadable: they are shown as far as possible, allow nothing, and hide no others."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Client, Right
from peerd.storage.overview import read_storage_overview
from peerd.store.files.buckets import list_bucket_usage
from peerd.store.schema.tables import api_tokens, audit, disks, file_access_keys
from peerd.store.tokens import create_access_key
from tests.store.file_steps import Catalogue
from tests.store.world import World
from tests.support.rows import rows

GARBAGE = ["", "{", "no JSON", "7", '{"a": 1}', "[7]", "null", "[" * 5_000]


@pytest.fixture
def client(world: World) -> Client:
    """With two tokens, and two access keys."""
    client = Client(world.store)
    for name in ("bad", "good"):
        client.tokens.create(name, ["view"])
        world.run(create_access_key, name, scopes=["films"])
    return client


@pytest.fixture
def two_disks(catalogue: Catalogue) -> set[int]:
    return {catalogue.disk("a"), catalogue.disk("b")}


@rows("column, text", product(("rights", "queues", "file_scopes"), GARBAGE))
def test_a_token_whose_limits_cannot_be_read_allows_nothing(
    world: World, client: Client, column: str, text: str
) -> None:
    readable = {"rights": '["view"]', "queues": None, "file_scopes": None}
    is_bad = api_tokens.c.name == "bad"
    world.execute(sa.update(api_tokens).where(is_bad).values({**readable, column: text}))
    found = {token.name: (token.rights, token.queues, token.file_scopes) for token in client.tokens.list()}
    assert found["bad"] == (frozenset(), frozenset(), ())
    assert found["good"] == (frozenset({Right.VIEW}), None, None)


@rows("text", GARBAGE)
def test_an_access_key_whose_scopes_cannot_be_read_allows_nothing(world: World, client: Client, text: str) -> None:
    keys = file_access_keys.c
    world.execute(sa.update(file_access_keys).where(keys.name == "bad").values(scopes=text))
    found = {key.name: key for key in client.files.keys.list()}
    assert found["bad"].scopes == ()
    assert not found["bad"].sees_bucket("films")
    assert not found["bad"].has_key("films", "a")
    assert found["good"].has_key("films", "a")


@rows("column, text", product(("arguments", "state_before", "state_after"), ["", "{", "no JSON", "7"]))
def test_an_entry_of_the_audit_log_is_shown_as_it_is(world: World, client: Client, column: str, text: str) -> None:
    number = min(entry.id for entry in client.audit.page(limit=100).items)
    world.execute(sa.update(audit).where(audit.c.id == number).values({column: text}))
    entries = client.audit.page(limit=100).items
    assert len(entries) == 2
    shown = [getattr(entry, column.removeprefix("state_")) for entry in entries if entry.id == number]
    assert shown == [{"undecodable": text}]
    world.execute(sa.update(audit).where(audit.c.id == number).values({column: None}))


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@rows("column, value", product(("size", "free", "reserve", "grace"), ["many", float("inf")]))
def test_a_disk_with_a_number_that_is_none_hides_no_other(
    world: World, two_disks: set[int], column: str, value: Any
) -> None:
    by_hand = sa.text(f"UPDATE disks SET {column} = :value WHERE id = {min(two_disks)}").bindparams(value=value)
    world.execute(by_hand)
    assert two_disks == {disk.id for disk in world.read(read_storage_overview).disks}
    world.execute(sa.update(disks).values(size=1, free=1, reserve=0, grace=None))


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_sums_that_are_none_count_as_the_largest_or_as_nothing(world: World, catalogue: Catalogue) -> None:
    catalogue.put(catalogue.bucket(), "a", catalogue.disk("a"))
    for value in ("many", float("inf")):
        world.execute(sa.text("UPDATE file_usage SET files = :value, bytes = :value").bindparams(value=value))
        [bucket] = world.read(list_bucket_usage)
        assert (bucket.files, bucket.bytes) == ((0, 0) if value == "many" else (2**63 - 1, 2**63 - 1))
