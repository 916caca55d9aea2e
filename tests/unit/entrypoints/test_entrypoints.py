from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from peerd.config.settings import WebSettings, WorkerSettings
from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.entrypoints.process_parts import InvalidEntry
from peerd.entrypoints.standalone import Maintenance, late_log
from peerd.entrypoints.watcher import FileWatcher
from peerd.entrypoints.web import load_app
from peerd.entrypoints.worker import load_worker
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import accept_failed
from peerd.store.enqueue import enqueue
from peerd.store.tasks.pages import find_task, get_task
from peerd.testing.faulty_database import TemporaryDatabase
from peerd.work.task_worker import QueueWorker
from tests.support.rows import rows

CODE = """
from peerd import Queue, TaskWorker, Worker

video = Queue("video")
text = "neither worker nor app"

class Idle(Worker):
    pass

class Deaf(TaskWorker):
    queues = ("q",)

class Nowhere(TaskWorker):
    async def handle_task(self, task): ...

class Broken(Worker):
    def __init__(self): raise OSError("no camera")
    def loop(self): ...

class Good(TaskWorker):
    queues = ("q",)
    def handle_task(self, task): ...

async def app(scope, receive, send): ...
def make(): return app
def broken(): raise OSError("no templates")
def half(scope): ...
class Site:
    async def __call__(self, scope, receive, send): ...
    nested = app
site = Site()
"""


@pytest.fixture(autouse=True)
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studio_of_the_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


def load(name: str, *, factory: bool = False) -> object:
    return load_app("site", WebSettings(app=f"studio_of_the_test:{name}", bind=(":0",), factory=factory))


def test_every_form_of_an_asgi_app_a_class_and_a_queue_are_loaded() -> None:
    for name, factory in (("app", False), ("site", False), ("Site.nested", False), ("make", True)):
        assert callable(load(name, factory=factory))
    assert load_worker("studio", WorkerSettings(worker="studio_of_the_test:Good")).settings.queues == ("q",)
    assert isinstance(load_worker("studio", WorkerSettings(tasks=("studio_of_the_test:video",))), QueueWorker)
    with pytest.raises(InvalidEntry, match="not a Queue"):
        load_worker("studio", WorkerSettings(tasks=("studio_of_the_test:Good",)))


@rows("name, problem", [
    ("Idle", "has no method loop()"), ("Deaf", "has no method handle_task(task)"), ("Nowhere", "names no queue"),
    ("Broken", "cannot be created: OSError: no camera"), ("text", "is not a subclass of"),
    ("missing", "has no missing"),
])  # fmt: skip
def test_an_unusable_worker_class_is_refused_with_the_reason(name: str, problem: str) -> None:
    with pytest.raises(InvalidEntry) as refused:
        load_worker("studio", WorkerSettings(worker=f"studio_of_the_test:{name}"))
    assert "[workers.studio]" in str(refused.value)
    assert problem in str(refused.value)


@rows("name, factory, problem", [
    ("nothing", False, "studio_of_the_test has no nothing"),
    ("text", False, "is a str, not an ASGI app: it cannot be called"),
    ("text", True, "cannot be created: TypeError: 'str' object is not callable"),
    ("make", False, "it does not take scope, receive and send; if it creates the app, set factory = true"),
    ("half", False, "it does not take scope, receive and send"),
    ("broken", True, "cannot be created: OSError: no templates"),
])  # fmt: skip
def test_an_object_that_is_not_an_app_is_refused(name: str, *, factory: bool, problem: str) -> None:
    with pytest.raises(InvalidEntry) as refused:
        load(name, factory=factory)
    assert str(refused.value).startswith(f"[web.site] studio_of_the_test:{name}: ")
    assert problem in str(refused.value)


FOLDER = Path("/srv/.work/venv/studio")
"""Folders above the project do not matter."""


@rows("file, matters", [
    ("jobs.py", True), ("studio/deep/in/jobs.py", True), ("peerd.toml", True), ("other.toml", False),
    ("jobs.pyc", False), ("peerd.sqlite-wal", False), ("__pycache__/jobs.py", False),
    (".venv/lib/python3.11/site-packages/it.py", False), ("venv/it.py", False), (".peerd/here/it.py", False),
    ("node_modules/gyp/it.py", False), ("/elsewhere/it.py", False),
])  # fmt: skip
def test_code_and_configuration_are_watched_and_files_of_other_programs_are_not(*, file: str, matters: bool) -> None:
    watcher = FileWatcher(FOLDER, FOLDER / "peerd.toml", (), EventBus())
    assert watcher.is_watched(None, str(FOLDER / file)) == matters
    elsewhere = FileWatcher(FOLDER, Path("/etc/peerd.toml"), (), EventBus())
    assert [elsewhere.is_watched(None, path) for path in ("/etc/peerd.toml", "/etc/it.py")] == [True, False]
    assert elsewhere.folders == {FOLDER, Path("/etc")}


def test_the_server_does_chores_after_their_period_and_loads_its_log_late(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    log = late_log("warning")
    assert capsys.readouterr().err == ""
    log(accept_failed("no descriptor"))
    assert "no descriptor" in capsys.readouterr().err
