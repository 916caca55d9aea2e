"""The command line itself: its errors, of one line with the cause and one with the remedy, its help, and its pipes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from peerd.cli.errors import to_command_error
from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection.database_errors import FREE_DISK_SPACE
from tests.cli.conftest import Peerd


def test_a_full_disk_is_not_reported_as_a_connection_problem() -> None:
    for reason in ('Error writing file (Errcode: 28 "No space left on device")', "disk I/O error", "the disk is full"):
        failure = to_command_error(DatabaseUnavailable(reason))
        assert failure is not None
        assert failure.remedy == FREE_DISK_SPACE


def test_a_server_that_is_down_is_reported_on_one_line_and_with_a_traceback_for_debugging(
    peerd: Peerd, project: Path
) -> None:
    for url in ("mysql://peerd@127.0.0.1:1/peerd", "postgresql://peerd@127.0.0.1:1/peerd"):
        error = peerd("status", "--database", url, "--json").json["cluster"]["error"]
        assert error["type"] == "DatabaseUnavailable"
        assert "see that it runs" in error["remedy"]
        assert f"at {url}" in error["remedy"], "with its port"
        for words in (("tasks", "list"), ("migrate",)):
            answer = peerd(*words, "--database", url, status=1)
            assert answer.err.startswith("error: the database does not answer: ")
        with pytest.raises((DatabaseUnavailable, DBAPIError)):
            peerd("tasks", "list", "--database", url, "--traceback")


def test_an_error_of_the_database_that_is_unknown_is_one_line_and_kept_whole(peerd: Peerd, project: Path) -> None:
    peerd("migrate")
    with closing(sqlite3.connect(project / "peerd.sqlite")) as connection:
        connection.execute("ALTER TABLE nodes RENAME COLUMN zone TO other")
    answer = peerd("nodes", "list", status=1)
    [first, second] = answer.err.splitlines()
    assert first == "error: the database refuses SELECT: no such column: nodes.zone"
    kept = Path(second.removeprefix("  try: ").partition(",")[0])
    assert kept.read_text().startswith("Traceback")
    assert kept.stat().st_mode & 0o077 == 0
    kept.unlink()
    with pytest.raises(DBAPIError):
        peerd("nodes", "list", "--traceback")


def test_a_database_file_is_not_created_by_a_command_that_reads(peerd: Peerd, project: Path) -> None:
    for words in (("tasks", "list"), ("enqueue", "video"), ("doctor",), ("queues", "pause", "video"), ("check",)):
        answer = peerd(*words, "--database", "sqlite:///typo.sqlite", status=0 if words == ("check",) else 1)
        assert words == ("check",) or f"there is no database {project}/typo.sqlite" in answer.err
    assert not (project / "typo.sqlite").exists()
    peerd("migrate", "--database", "sqlite:///typo.sqlite")
    assert peerd("tasks", "list", "--database", "sqlite:///typo.sqlite").lines == ["there are no tasks"]
    answer = peerd("tasks", "list", "--database", "sqlite:///no/such/folder/x.sqlite", status=1)
    assert "its folder must be there" in answer.err


def test_wrong_usage_has_a_status_of_its_own_and_names_the_option(peerd: Peerd, project: Path) -> None:
    assert "No such command 'taks'" in peerd("taks", status=2).err
    assert "oracle" in peerd("tasks", "list", "--database", "oracle://db/peerd", status=2).err
    peerd("tasks", "show", "seven", status=2)
    for words, message in (
        (("check", "--database", "oracle://db/peerd"), "--database: oracle:// is no database that peerd knows"),
        (("tasks", "watch", "--every", "often"), "--every: 'often' is not a duration"),
        (("stop", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
        (("tasks", "list", "--status", "finished"), "scheduled, pending, working"),
        (("queues", "pause", "video", "--for", "a while"), "'a while' is not a duration"),
        (("stats", "--by", "colour"), "colour"),
        (("stats", "--since", "soon"), "soon"),
    ):
        assert message in peerd(*words, "--json", status=2).error["message"], words


def test_help_loads_neither_database_nor_config_and_textual_is_imported_by_top_alone() -> None:
    code = (
        "import sys; from peerd.cli.app import COMMANDS, app, load_command\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('sqlalchemy', 'pydantic', 'alembic', 'msgspec', 'peerd.cli.node.lifecycle')\n"
        "print([module for module in heavy if module in sys.modules])\n"
        "for name in COMMANDS: load_command(name)\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'textual'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_a_closed_pipe_is_no_error(peerd: Peerd) -> None:
    line = f"{sys.executable} -m peerd --help | head -1; echo ${{PIPESTATUS[1]}}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "Traceback" not in ran.stderr
    assert ran.stdout.splitlines()[-1] == "0"
    assert peerd("--version").out.startswith("peerd 0.")
