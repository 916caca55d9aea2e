from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.entrypoints.standalone import LateLog, Maintenance
from peerd.runtime.observability.events import AcceptFailed
from peerd.store.enqueue.enqueue import enqueue
from peerd.store.tasks.read import find_task, get_task
from peerd.testing.temporary_database import TemporaryDatabase


def test_the_chores_of_a_manager_are_done_each_after_its_period_but_not_those_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(TemporaryDatabase()) as database:
        expired = database.run(enqueue, NewTask(queue="q", finish_in=60)).id
        delayed = database.run(enqueue, NewTask(queue="q", start_in=60)).id
        past = "UPDATE tasks SET finish_at = '2020-01-01 00:00:00.000' WHERE finish_at IS NOT NULL"
        database.run(lambda connection: connection.exec_driver_sql(past))
        database.run(
            lambda connection: connection.exec_driver_sql("UPDATE tasks SET start_at = '2020-01-01 00:00:00.000'")
        )
        runs: list[str] = []
        maintenance, run = Maintenance(), database.run

        def run_and_note(operation: Callable[..., Any], *arguments: object) -> Any:
            runs.append(operation.__name__)
            return run(operation, *arguments)

        monkeypatch.setattr(database, "run", run_and_note)
        maintenance(database)
        first = list(runs)
        maintenance(database)
        assert ("purge_processes" in first, runs) == (True, first), "it is done again only after its period"
        assert database.read(find_task, expired) is None
        assert database.read(get_task, delayed).status is Status.SCHEDULED


def test_the_log_is_loaded_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = LateLog("warning")
    assert capsys.readouterr().err == ""
    log(AcceptFailed(error="no descriptor"))
    assert "no descriptor" in capsys.readouterr().err
