"""The files of an embedded database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate


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


def locks_on(file: Path) -> set[str]:
    """The locks that this process has on a file, as the kernel lists them."""
    mine = f" {os.getpid()} "
    lines = Path("/proc/locks").read_text().splitlines()
    return {line.partition(": ")[2] for line in lines if mine in line and f":{file.stat().st_ino} " in line}
