from __future__ import annotations

import threading

import pytest

from peerd.doorbell import ringing
from peerd.operate.client import Client
from peerd.store.connection.database import Database
from peerd.store.connection.pymysql_tls import SharedTlsConnection
from peerd.store.schema import migrate
from tests.support.forks import FORK_TIMEOUT, open_sessions, run_in_fork, session_id, use_client
from tests.support.server_kinds import INNODB


def test_a_forked_process_has_connections_and_threads_of_its_own(client: Client) -> None:
    assert use_client(client) == 2
    sessions = {client.database.read(session_id), client.database.run(session_id)}

    def use_in_child() -> tuple[int, set[int | None]]:
        return use_client(client), {client.database.read(session_id), client.database.run(session_id)}

    count, its_sessions = run_in_fork(use_in_child)
    assert count == 4
    assert sessions == {None} or not its_sessions & sessions
    assert sessions <= client.database.read(open_sessions), "the parent's connections were ended by its child"
    assert run_in_fork(lambda: run_in_fork(lambda: use_client(client))) == 6
    assert use_client(client) == 8


@pytest.mark.parametrize("migrated_database", INNODB, indirect=True)
def test_a_module_lock_that_another_thread_holds_is_free_in_a_forked_process(client: Client) -> None:
    def use_in_child() -> int:
        with ringing._lock, migrate._ALEMBIC:
            return use_client(client)

    with SharedTlsConnection._making, ringing._lock, migrate._ALEMBIC:
        assert run_in_fork(use_in_child) == 2


@pytest.mark.parametrize("migrated_database", ["sqlite"], indirect=True)
def test_a_fork_during_a_first_call_does_not_block_the_child(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    checking, resume = threading.Event(), threading.Event()

    def check_schema(_: Database) -> None:
        checking.set()
        resume.wait(FORK_TIMEOUT)

    def use_in_child() -> int:
        monkeypatch.undo()
        return use_client(client)

    monkeypatch.setattr("peerd.operate.modes.require_current_schema", check_schema)
    caller = threading.Thread(target=client.tasks.list)
    caller.start()
    try:
        assert checking.wait(FORK_TIMEOUT)
        assert run_in_fork(use_in_child) == 2
    finally:
        resume.set()
        caller.join(FORK_TIMEOUT)
