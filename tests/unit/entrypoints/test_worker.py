"""What [workers.NAME] may name; everything else is refused with the cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerd.config.settings import WorkerSettings
from peerd.entrypoints.import_string import InvalidEntry
from peerd.entrypoints.worker import load_worker
from peerd.work.task_worker import QueueWorker
from tests.support.rows import rows

CODE = """
from peerd import Queue, TaskWorker, Worker

video = Queue("video")
text = "no worker"

class Idle(Worker):
    pass

class Deaf(TaskWorker):
    queues = ("q",)

class Nowhere(TaskWorker):
    async def handle_task(self, task):
        return None

class Broken(Worker):
    def __init__(self):
        raise OSError("no camera")

    def loop(self):
        return None

class Good(TaskWorker):
    queues = ("q",)

    def handle_task(self, task):
        return None
"""


@pytest.fixture(autouse=True)
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studio_of_the_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))


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


def test_a_valid_class_and_a_valid_queue_are_loaded() -> None:
    assert load_worker("studio", WorkerSettings(worker="studio_of_the_test:Good")).settings.queues == ("q",)
    assert isinstance(load_worker("studio", WorkerSettings(tasks=("studio_of_the_test:video",))), QueueWorker)
    with pytest.raises(InvalidEntry, match="not a Queue"):
        load_worker("studio", WorkerSettings(tasks=("studio_of_the_test:Good",)))
