"""The checker on real nodes, each time with one of peerd's guarantees taken out of a worker: it must be caught."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from peerd import Call, Job
from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, WORKER, Cluster, ClusterNode
from tests.faults import audit, broken, checker, history, jobs
from tests.faults.case import Settings
from tests.support.servers import DatabaseFactory

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Trial:
    """Two nodes with the worker of the load, and what is done to them."""

    def __init__(self, folder: Path, url: str, variant: str) -> None:
        self.url = url
        self.history = folder / "history"
        self.history.mkdir()
        os.environ[history.VARIABLE] = str(self.history)
        environment = {history.VARIABLE: str(self.history), "PYTHONPATH": str(ROOT), broken.VARIABLE: variant}
        project = folder / "project"
        project.mkdir()
        self.cluster = Cluster(project, url, environment)
        audit.install(self.cluster.client.database.engine)

    def start(self) -> list[ClusterNode]:
        return self.cluster.up("one", "two", workers={"work": {**WORKER, "tasks": "tests.faults.broken:work"}})

    def enqueue(self, call: Call) -> Job:
        job = self.cluster.client.enqueue(call, max_attempts=9)
        key = msgspec.json.decode(call.body or "{}")["key"]
        history.record("enqueued", task=job.id, queue=call.queue, name=call.name, key=key)
        return job

    def told(self, job: Job, event: str) -> list[history.Event]:
        return [one for one in history.read(self.history) if (one.task, one.event) == (job.id, event)]

    def wait_until_told(self, job: Job, event: str, times: int = 1) -> list[history.Event]:
        return eventually(lambda: self.told(job, event)[times - 1 :], timeout=WITHIN, message=self.cluster.story)

    def done(self, job: Job) -> None:
        self.cluster.wait_until(job, Status.DONE)


@pytest.fixture
def begin(tmp_path: Path, database_factory: DatabaseFactory) -> Iterator[Callable[[str], Trial]]:
    before = os.environ.get(history.VARIABLE)
    trials: list[Trial] = []

    def make(variant: str) -> Trial:
        trials.append(Trial(tmp_path, database_factory("sqlite"), variant))
        return trials[-1]

    yield make
    left = [pid for trial in trials for pid in trial.cluster.clean_up()]
    if before is None:
        os.environ.pop(history.VARIABLE, None)
    else:
        os.environ[history.VARIABLE] = before
    assert not left


# -------------------------------------------------------------------- what is done


def freeze_a_holder(trial: Trial) -> None:
    """It thaws when another one has done its task."""
    job = trial.enqueue(jobs.deaf.with_args(key="frozen", seconds=1.0))
    [began] = trial.wait_until_told(job, "began")
    history.record("fault", kind="freeze", target="w", effect="frozen", pids=[began.pid])
    trial.cluster.freeze([began.pid])
    try:
        trial.done(job)
    finally:
        trial.cluster.thaw([began.pid])
        history.record("healed", kind="freeze", target="w")
    trial.wait_until_told(job, "ended", times=2)
    after = trial.enqueue(jobs.short.with_args(key="after", seconds=0.0))
    trial.done(after)


def run_for_long(trial: Trial) -> None:
    """Longer than max_update, in a process that lives."""
    job = trial.enqueue(jobs.deaf.with_args(key="long", seconds=2.5 * MAX_UPDATE))
    trial.wait_until_told(job, "ended")
    eventually(lambda: trial.cluster.client.tasks.get(job.id).status is not Status.WORKING, timeout=WITHIN)


def run_a_short_one(trial: Trial) -> None:
    job = trial.enqueue(jobs.short.with_args(key="short", seconds=0.0))
    trial.wait_until_told(job, "ended")
    eventually(
        lambda: trial.cluster.client.tasks.get(job.id).lease > 1 or job.refresh().status == "done", timeout=WITHIN
    )


def add_one_that_has_crashed(trial: Trial) -> None:
    """While every process has something to do."""
    held = [trial.enqueue(jobs.long.with_args(key=f"held{number}", seconds=3.0)) for number in range(6)]
    for job in held:
        trial.wait_until_told(job, "began")
    history.record("unsure", key="crashed")
    insert = "INSERT INTO tasks (queue, name, body, crashes) VALUES ('work', 'short', :body, 1)"
    body = '{"key": "crashed", "seconds": 0.0}'
    trial.cluster.client.database.run(lambda connection: connection.execute(sa.text(insert), {"body": body}).rowcount)
    for job in held:
        trial.done(job)
    trial.cluster.wait_until(Job(held[-1].id + 1, True, trial.cluster.client.tasks.find), Status.DONE)


TRIALS: dict[str, tuple[Callable[[Trial], None], str]] = {
    "completes without its lease": (freeze_a_holder, "stale write"),
    "touches nothing": (run_for_long, "rescue"),
    "forgets outcomes": (run_a_short_one, "not written"),
    "runs the crashed beside others": (add_one_that_has_crashed, "poison"),
}


@pytest.mark.parametrize("variant", broken.VARIANTS)
def test_a_broken_guarantee_is_caught(begin: Callable[[str], Trial], variant: str) -> None:
    provoke, rule = TRIALS[variant]
    report = tried(begin(variant), provoke)
    assert report.broken(rule), str(report)


def test_the_same_trials_are_accepted_when_nothing_is_broken(begin: Callable[[str], Trial]) -> None:
    report = tried(begin(""), *(provoke for provoke, _ in TRIALS.values()))
    assert report.problems == [], str(report)


def tried(trial: Trial, *provocations: Callable[[Trial], None]) -> checker.Report:
    trial.start()
    for provoke in provocations:
        provoke(trial)
    trial.cluster.clean_up()
    return checker.check(trial.history, trial.url, Settings(max_update=MAX_UPDATE))
