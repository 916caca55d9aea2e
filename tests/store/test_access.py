"""Tokens, sessions and users on each database."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from peerd import Client, Right, Role
from peerd.domain.errors import InvalidAccess, LastAdmin, TokenNotFound, UserExists, UserNotFound
from peerd.store import tokens, users
from peerd.store.schema.tables import api_tokens, login_failures
from peerd.store.schema.tables import sessions as sessions_table
from peerd.store.schema.types import seconds_from_now
from tests.store.world import World, at_once


def test_a_token_is_valid_until_it_expires_or_is_revoked(world: World) -> None:
    client = Client(world.store)
    made = client.tokens.create("t", ["view", Right.ENQUEUE], queues=["video", "a:b"], expires_in="1h")
    presented = world.read(tokens.find_token, made.secret)
    assert presented is not None
    assert (presented.token.rights, presented.is_due) == (frozenset({Right.VIEW, Right.ENQUEUE}), True)
    assert presented.token.queues == frozenset({"video", "a:b"})
    world.run(tokens.touch_token, made.id)
    again = world.read(tokens.find_token, made.secret)
    assert again is not None
    assert not again.is_due, "its use is written once a minute"
    another = client.tokens.create("t", ["view"])
    mixed = "_".join([*made.secret.split("_")[:2], another.secret.split("_", 2)[2]])
    for wrong in (mixed, made.secret[:-1], made.secret + "x", made.secret.upper(), "", made.secret + "\n"):
        assert world.read(tokens.find_token, wrong) is None
    assert made.secret.split("_", 2)[2] not in str(world.rows(api_tokens.select()))
    for _ in range(2):
        client.tokens.revoke(another.id)
    world.execute(api_tokens.update().where(api_tokens.c.id == made.id).values(expires_at=seconds_from_now(-1.0)))
    assert [world.read(tokens.find_token, one.secret) for one in (made, another)] == [None, None]
    with pytest.raises(TokenNotFound):
        client.tokens.revoke(10**9)


def test_wrong_tokens_and_users_are_refused_by_name(world: World) -> None:
    client = Client(world.store)
    for field, make in (
        ("rights", lambda: client.tokens.create("t", [])),
        ("rights", lambda: client.tokens.create("t", ["root"])),
        ("queues", lambda: client.tokens.create("t", ["view"], queues=[])),
        ("queues", lambda: client.tokens.create("t", ["admin"], queues=["a"])),
        ("expires_in", lambda: client.tokens.create("t", ["view"], expires_in=0)),
        ("name", lambda: client.users.add("a\nb", "viewer")),
        ("name", lambda: client.users.add("\ufb01", "viewer")),
        ("name", lambda: client.users.add("x" * 201, "viewer")),
        ("role", lambda: client.users.add("ann", "root")),
        ("role", lambda: client.users.change("ann")),
        ("password", lambda: client.users.add("ann", "viewer", "too short")),
        ("password", lambda: client.users.add("ann", "viewer", "\ud800" * 20)),
    ):
        with pytest.raises(InvalidAccess) as raised:
            make()
        assert raised.value.field == field
    assert [*client.users.list(), *client.tokens.list()] == []
    with pytest.raises(UserNotFound):
        client.users.remove("ann")


def test_of_additions_of_a_name_at_once_one_succeeds_and_two_admins_cannot_remove_each_other(world: World) -> None:
    def succeeds(operation: Callable[..., object], *arguments: Any, **more: Any) -> bool:
        try:
            world.run(operation, *arguments, **more)
        except (UserExists, LastAdmin):
            return False
        return True

    assert sum(at_once([partial(succeeds, users.add_user, "eve", role, None) for role in Role])) == 1
    world.run(users.remove_user, "eve", keep_an_admin=False)
    for name in ("ann", "bob"):
        world.run(users.add_user, name, Role.ADMIN, "hash")
    removals = [partial(succeeds, users.remove_user, name, keep_an_admin=True) for name in ("ann", "bob")]
    assert sum(at_once(removals)) == 1
    assert len(world.read(users.list_users)) == 1


def test_sessions_are_bounded_and_purged(world: World) -> None:
    world.run(users.add_user, "ann", Role.VIEWER, None)
    for number in range(users.MOST_OF_USER + 3):
        world.run(users.open_session, f"session {number}", "ann", None, None)
    assert world.count(sessions_table) == users.MOST_OF_USER
    newest = f"session {users.MOST_OF_USER + 2}"
    found = world.read(users.find_session, newest, idle=60.0, age=60.0)
    assert found is not None
    assert (found.name, found.role, found.is_due) == ("ann", Role.VIEWER, False)
    assert world.run(users.purge_sessions, 500) == 0
    past = sessions_table.update().values(created_at=seconds_from_now(-users.MAX_AGE - 1))
    world.execute(past)
    assert world.run(users.purge_sessions, 60) == 60


def test_failures_are_counted_by_name_and_address(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "MOST_OF_PAIR", 3)
    monkeypatch.setattr(users, "MOST_OF_ADDRESS", 5)

    def attempt(name: str, address: str | None) -> bool:
        may = world.read(users.may_attempt, name, address)
        if may:
            world.run(users.count_failure, name, address)
        return may

    assert [attempt("ann", "192.0.2.1") for _ in range(4)] == [True, True, True, False]
    assert attempt("ann", "192.0.2.2"), "another address"
    assert [attempt(name, "192.0.2.1") for name in ("bob", "eve", "joe")] == [True, True, False], (
        "one address, any name"
    )
    assert [attempt("x", f"2001:db8::{n}") for n in range(1, 5)] == [True, True, True, False], "one network of IPv6"
    world.run(users.record_success, "ann", "192.0.2.2")
    assert [attempt("ann", "192.0.2.2") for _ in range(4)] == [True, True, True, False]
    old = login_failures.update().values(began_at=seconds_from_now(-users.KEPT - 1))
    world.execute(old)
    assert world.run(users.purge_login_failures, 500) > 0
    assert world.count(login_failures) == 0
    at_once([partial(world.run, users.count_failure, "ann", "192.0.2.1")] * 3)
    assert not attempt("ann", "192.0.2.1"), "none is lost that is counted at the same time"
