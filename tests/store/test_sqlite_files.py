"""The files of an embedded database, and its CHECKs, which claims and completions meet without being checked."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from peerd.domain.task import NewTask
from peerd.store import enqueue, outcomes
from peerd.store.connection.database import Database
from peerd.store.connection.sqlite import LARGEST_IDLE_WAL
from peerd.store.outcomes import ClaimId
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import tasks
from peerd.store.statements import new_token
from peerd.store.take import claiming
from tests.store.world import World


def test_the_files_of_a_database_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        database = Database(f"sqlite:///{tmp_path / 'new.sqlite'}")
        migrate(database)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("new.sqlite", "new.sqlite-wal", "new.sqlite-shm"), 0o600)


def test_another_connection_leaves_the_locks_of_this_process_alone(tmp_path: Path) -> None:
    file = tmp_path / "new.sqlite"
    first = Database(f"sqlite:///{file}")
    migrate(first)
    with first.engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM tasks").close()
        before = locks_on(file)
        assert before
        second = Database(f"sqlite:///{file}")
        second.engine.connect().close()
        assert locks_on(file) >= before
        second.close()
    first.close()


def test_a_connection_in_use_while_its_database_is_closed_is_closed_when_it_is_returned(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'new.sqlite'}")
    migrate(database)
    database.run(lambda _: database.close())
    assert [path.name for path in tmp_path.iterdir()] == ["new.sqlite"], "the last connection removes its log"


def test_the_log_shrinks_after_the_reader_has_gone_that_made_it_grow(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'new.sqlite'}")
    migrate(database)

    def enqueue_a_mebibyte() -> None:
        database.run(enqueue.enqueue, NewTask(queue="q", body_bytes=bytes(2**20)))

    wal = tmp_path / "new.sqlite-wal"
    with closing(sqlite3.connect(tmp_path / "new.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tasks").close()
        for _ in range(20):
            enqueue_a_mebibyte()
    assert wal.stat().st_size > LARGEST_IDLE_WAL
    for _ in range(2):
        enqueue_a_mebibyte()  # the first one writes all of the log to the database, and the second begins it anew
    assert wal.stat().st_size <= LARGEST_IDLE_WAL
    database.close()


def locks_on(file: Path) -> set[str]:
    """The locks that this process has on a file, as the kernel lists them."""
    mine = f" {os.getpid()} "
    lines = Path("/proc/locks").read_text().splitlines()
    return {line.partition(": ")[2] for line in lines if mine in line and f":{file.stat().st_ino} " in line}


BAD = sa.update(tasks).values(updated_at=sa.literal_column("'yesterday'"))


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_what_claims_and_completions_write_meets_every_check(world: World) -> None:
    def reported() -> list[str]:
        check = "PRAGMA integrity_check"
        return world.read(lambda connection: [str(one) for one in connection.exec_driver_sql(check).scalars()])

    world.run(enqueue.enqueue_many, [NewTask(queue="q", priority=n, finish_in=60.0) for n in range(6)])
    claimer = world.claimer()
    won = world.store.run_short(claiming.claim, claimer, token=new_token(), limit=4).tasks
    results = {ClaimId(task.id, task.lease): '{"n":1}' if task.priority % 2 else None for task in won[:2]}
    assert not world.store.run_short(outcomes.complete, claimer.process_id, results)
    assert reported() == ["ok"]
    with pytest.raises(sa.exc.IntegrityError, match="updated_at_form"):
        world.execute(BAD)  # all other writes are checked
    world.store.run_short(lambda connection: connection.execute(BAD))
    assert set(reported()) == {"CHECK constraint failed in tasks"}, "so the above can fail"
