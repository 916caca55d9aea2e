"""The commands `peerd users`, `peerd tokens`, `peerd audit`, and the check of an address that others reach."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from peerd.cli import audit as audit_command
from peerd.cli import following
from peerd.domain.access import Role
from peerd.operate import passwords
from peerd.operate.actors import cli_actor
from peerd.operate.client import Client
from peerd.store import users
from peerd.store.schema.tables import audit
from peerd.store.tokens import find_token
from tests.cli.conftest import Peerd

PASSWORD = "correct horse battery\n"
NEWEST_BUT_ONE = audit.select().order_by(audit.c.id.desc()).offset(1).limit(1)


def test_users_are_added_changed_and_removed(peerd: Peerd, client: Client) -> None:
    assert "there are no users" in peerd("users", "list").out
    peerd("users", "add", "ann", "--role", "admin", "--password-stdin", stdin=PASSWORD)
    peerd("users", "add", "bob", "--no-password")
    assert "already" in peerd("users", "add", "bob", "--no-password", status=1).err
    assert peerd("users", "role", "bob", "--role", "operator").out == "bob is an operator\n"
    assert peerd("users", "disable", "bob").out == "bob is disabled\n"
    rows = peerd("users", "list").lines[1:]
    assert [row.split()[:3] for row in rows] == [["ann", "admin", "enabled"], ["bob", "operator", "disabled"]]
    assert peerd("users", "disable", "bob", "--undo").out == "bob is enabled\n"
    peerd("users", "password", "bob", "--password-stdin", stdin=PASSWORD)
    assert [user["has_password"] for user in peerd("users", "list", "--json").json] == [True, True]
    peerd("users", "remove", "ann")
    assert "peerd users list" in peerd("users", "remove", "ann", status=1).err
    assert "correct horse" not in peerd("audit", "--limit", "100", "--json").out


def test_a_new_name_of_several_scripts_is_refused(peerd: Peerd, client: Client) -> None:
    client.database.run(users.add_user, "аnn", Role.VIEWER, None)
    for name in ("bоb", "pαul", "аня z"):
        assert "use one script" in peerd("users", "add", name, "--no-password", status=2).err
        assert "use one script" in peerd("tokens", "create", name, "--right", "view", status=2).err
    for name in ("аня", "ジョン 山田 7", "j.doe-2"):
        peerd("users", "add", name, "--no-password")
    peerd("users", "remove", "аnn")


def test_a_password_is_asked_for_and_never_an_argument_and_needs_an_extra(
    peerd: Peerd, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--password-stdin" in peerd("users", "add", "ann", status=2).err, "there is no terminal"
    assert "12 to 1000" in peerd("users", "add", "ann", "--password-stdin", stdin="short\n", status=2).err
    passwords._hasher.cache_clear()
    monkeypatch.setitem(sys.modules, "argon2", None)
    failed = peerd("users", "add", "ann", "--password-stdin", stdin=PASSWORD, status=1)
    assert "pip install 'peerd[dashboard]'" in failed.err
    assert client.users.list() == []


def test_a_token_is_printed_once(peerd: Peerd, client: Client) -> None:
    words = ("--right", "view", "--right", "enqueue", "--queue", "video", "--expires", "90d")
    secret = peerd("tokens", "create", "encoder", *words).out.strip()
    assert client.database.read(find_token, secret) is not None
    listed = peerd("tokens", "list")
    assert [row.split()[1] for row in listed.lines[1:]] == ["encoder"]
    assert secret not in listed.out + peerd("tokens", "list", "--json").out + peerd("audit", "--json").out
    assert peerd("tokens", "revoke", "1").out == "1 is revoked\n"
    assert client.database.read(find_token, secret) is None


def test_the_audit_log_is_shown_in_pages_and_filtered(peerd: Peerd, client: Client) -> None:
    task = client.enqueue("video").id
    peerd("tasks", "cancel", str(task), "--reason", "not wanted")
    client.tasks.retry(task)
    peerd("enqueue", "mail")
    first = peerd("audit", "--limit", "2", "--json").json
    assert [entry["operation"] for entry in first["items"]] == ["enqueue", "tasks.retry"]
    [cancel] = peerd("audit", "--limit", "2", "--after", first["next"], "--json").json["items"]
    me = cli_actor()
    assert (cancel["actor"], cancel["way"], cancel["address"]) == (me.name, "cli", me.address)
    row = peerd("audit", "--operation", "tasks.cancel").lines[1]
    assert (f"task {task}" in row, "pending → canceled" in row) == (True, True)
    assert peerd("audit", "--target", "999").lines == ["there is no such entry"]


def test_the_audit_log_is_followed_and_no_late_entry_is_missed(
    peerd: Peerd, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_command, "PAGE", 8)
    monkeypatch.setattr(audit_command, "OVERLAP", 4)

    def interrupt() -> None:
        raise KeyboardInterrupt

    client.enqueue_many(["video", "mail"])
    steps = [lambda: client.queues.pause("video"), interrupt]
    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=lambda _: steps.pop(0)()))
    [line] = peerd("audit", "--follow", status=130).lines
    assert "queue video" in line, "an empty log is followed too"
    for _ in range(8):
        client.queues.pause("video")
    late = client.database.read(lambda connection: dict(connection.execute(NEWEST_BUT_ONE).mappings().one()))
    run = client.database.run
    run(lambda connection: connection.execute(audit.delete().where(audit.c.id == late["id"])))

    def write_late_and_new() -> None:
        run(lambda connection: connection.execute(audit.insert().values(late)))
        client.queues.resume("mail")

    def write_pages() -> None:
        for _ in range(20):
            client.queues.resume("video")

    steps = [write_late_and_new, write_pages, lambda: None, interrupt]
    lines = peerd("audit", "--follow", "--limit", "2", "--json", status=130).lines
    assert [json.loads(line)["id"] for line in lines] == [7, 9, 8, *range(10, 31)]
    steps = [lambda: client.queues.pause("mail"), lambda: client.queues.pause("video"), interrupt]
    followed = peerd("audit", "--follow", "--target", "mail", status=130).lines
    assert [line.split()[0] for line in followed] == ["10", "31"]
    assert "queues.pause" in followed[1]
    assert peerd("audit", "--follow", "--after", "7", status=1).err
