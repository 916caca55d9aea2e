from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from peerd.cli.errors import to_command_error
from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection.database_errors import FREE_DISK_SPACE
from tests.cli.conftest import Peerd
from tests.support.servers import ServerFactory


def test_an_unknown_user_and_an_unknown_database_are_reported_with_the_remedy(
    peerd: Peerd, project: Path, server_database: str
) -> None:
    url = make_url(server_database)
    for wrong in (url.set(username="nobody", password="secret"), url.set(database="nothing")):
        answer = peerd("tasks", "list", "--database", wrong.render_as_string(hide_password=False), status=1)
        assert answer.out == ""
        assert answer.err.startswith("error: the database ")
        assert "try: " in answer.err
        assert "secret" not in answer.err
        assert len(answer.err.splitlines()) == 2, answer.err


@pytest.mark.parametrize(
    "reason", ['Error writing file (Errcode: 28 "No space left on device")', "disk I/O error", "the disk is full"]
)
def test_a_full_disk_is_not_reported_as_a_connection_problem(reason: str) -> None:
    failure = to_command_error(DatabaseUnavailable(reason))
    assert failure is not None
    assert failure.remedy == FREE_DISK_SPACE


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
def test_a_server_that_is_down_is_reported_on_one_line(peerd: Peerd, project: Path, scheme: str) -> None:
    error = peerd("status", "--database", f"{scheme}://peerd@127.0.0.1:1/peerd", "--json").json["cluster"]["error"]
    assert error["type"] == "DatabaseUnavailable"
    assert "see that it runs" in error["remedy"]
    assert "at " + f"{scheme}://peerd@127.0.0.1:1/peerd" in error["remedy"], "with its port"
    answer = peerd("tasks", "list", "--database", f"{scheme}://peerd@127.0.0.1:1/peerd", status=1)
    assert answer.err.startswith("error: the database does not answer: ")


def test_a_server_that_is_frozen_is_reported_as_down(
    peerd: Peerd, project: Path, private_server: ServerFactory
) -> None:
    server = private_server("postgresql")
    url = server.url("peerd")
    server.stop()
    assert "does not answer" in peerd("migrate", "--database", url, status=1).err


def test_a_file_that_cannot_be_opened_is_reported(peerd: Peerd, project: Path) -> None:
    answer = peerd("tasks", "list", "--database", "sqlite:///no/such/folder/x.sqlite", status=1)
    assert "its folder must be there" in answer.err


def test_a_database_file_is_not_created_by_a_command_that_reads(peerd: Peerd, project: Path) -> None:
    for words in (("tasks", "list"), ("enqueue", "video"), ("doctor",), ("queues", "pause", "video"), ("check",)):
        answer = peerd(*words, "--database", "sqlite:///typo.sqlite", status=0 if words == ("check",) else 1)
        assert words == ("check",) or f"there is no database {project}/typo.sqlite" in answer.err
    assert not (project / "typo.sqlite").exists()
    peerd("migrate", "--database", "sqlite:///typo.sqlite")
    assert peerd("tasks", "list", "--database", "sqlite:///typo.sqlite").lines == ["there are no tasks"]


def test_an_invalid_url_on_the_command_line_is_reported_with_its_option(peerd: Peerd, project: Path) -> None:
    for words in (("tasks", "list"), ("check",)):
        error = peerd(*words, "--database", "oracle://db/peerd", "--json", status=2).error
        assert error["message"].startswith("--database: oracle:// is no database that peerd knows")


def test_an_address_that_cannot_be_read_is_refused(peerd: Peerd, project: Path) -> None:
    assert "oracle" in peerd("tasks", "list", "--database", "oracle://db/peerd", status=2).err


def test_an_invalid_duration_is_reported_with_its_option(peerd: Peerd, project: Path) -> None:
    assert "--every: 'often' is not a duration" in peerd("tasks", "watch", "--every", "often", status=2).err
    assert "--timeout: 'soon' is not a duration" in peerd("stop", "--timeout", "soon", status=2).err


def test_debug_shows_the_traceback(peerd: Peerd, project: Path) -> None:
    with pytest.raises((DatabaseUnavailable, DBAPIError)):
        peerd("tasks", "list", "--database", "mysql://peerd@127.0.0.1:1/peerd", "--debug")


def test_wrong_usage_has_a_status_of_its_own(peerd: Peerd, project: Path) -> None:
    assert "No such command 'taks'" in peerd("taks", status=2).err
    peerd("tasks", "show", status=2)
    peerd("tasks", "show", "seven", status=2)
    for words in (
        ("tasks", "list", "--limit", "0"),
        ("tasks", "list", "--status", "finished"),
        ("queues", "pause", "a b"),
    ):
        assert peerd(*words, "--json", status=2).error["message"]
