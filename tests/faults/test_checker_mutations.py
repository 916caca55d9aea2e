"""The checker on real nodes, each time with one of peerd's guarantees taken out of a worker: it must be caught."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from peerd import Call, Job
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, WORKER, Cluster, ClusterNode
from tests.faults import audit, checker, history, jobs, mutations, versions
from tests.faults.case import CheckerSettings
from tests.faults.database_faults import locked_row
from tests.support.servers import DatabaseFactory

ROOT = Path(__file__).parents[2]
NODES = (NEW_NODE, OLD_NODE) = ("one", "two")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class MutationTrial:
    """Two nodes with the worker of the load, each with its version of the code, and what is done to them."""

    def __init__(self, folder: Path, url: str, variant: str) -> None:
        self.url = url
        self.history = folder / "history"
        self.history.mkdir()
        os.environ[history.VARIABLE] = str(self.history)
        environment = {history.VARIABLE: str(self.history), "PYTHONPATH": str(ROOT), mutations.VARIABLE: variant}
        project = folder / "project"
        project.mkdir()
        self.cluster = Cluster(project, url, environment)
        audit.install(self.cluster.client.database.engine)

    def start(self) -> None:
        for node in [self._node(name).start() for name in NODES]:
            node.wait_until_running()

    def _node(self, name: str) -> ClusterNode:
        worker = {**WORKER, "tasks": f"tests.faults.mutations:{versions.code_of(name)}"}
        return self.cluster.node(name, workers={"work": worker})

    def enqueue(self, call: Call) -> Job:
        job = self.cluster.client.enqueue(call, max_attempts=9)
        key = msgspec.json.decode(call.body or "{}")["key"]
        history.record("enqueued", task=job.id, queue=call.queue, name=call.name, key=key)
        return job

    def events_of(self, job: Job, event: str) -> list[history.HistoryEvent]:
        return [one for one in history.read(self.history) if (one.task, one.event) == (job.id, event)]

    def wait_for_event(self, job: Job, event: str, times: int = 1) -> list[history.HistoryEvent]:
        return eventually(
            lambda: self.events_of(job, event)[times - 1 :], timeout=WITHIN, message=self.cluster.describe
        )

    def done(self, job: Job) -> None:
        self.cluster.wait_until(job, Status.DONE)


Begin = Callable[[str, str], MutationTrial]


@pytest.fixture
def begin(tmp_path: Path, database_factory: DatabaseFactory) -> Iterator[Begin]:
    before = os.environ.get(history.VARIABLE)
    trials: list[MutationTrial] = []

    def make(variant: str, kind: str) -> MutationTrial:
        trials.append(MutationTrial(tmp_path, database_factory(kind), variant))
        return trials[-1]

    yield make
    left = [pid for trial in trials for pid in trial.cluster.clean_up()]
    if before is None:
        os.environ.pop(history.VARIABLE, None)
    else:
        os.environ[history.VARIABLE] = before
    assert not left


# -------------------------------------------------------------------- what is done


def freeze_a_holder(trial: MutationTrial) -> None:
    """It thaws when another one has done its task."""
    job = trial.enqueue(jobs.deaf.with_args(key="frozen", seconds=1.0))
    [began] = trial.wait_for_event(job, "began")
    history.record("fault", kind="freeze", target="w", effect="frozen", pids=[began.pid])
    trial.cluster.freeze([began.pid])
    try:
        trial.done(job)
    finally:
        trial.cluster.thaw([began.pid])
        history.record("healed", kind="freeze", target="w")
    trial.wait_for_event(job, "ended", times=2)
    after = trial.enqueue(jobs.short.with_args(key="after", seconds=0.0))
    trial.done(after)


def run_for_long(trial: MutationTrial) -> None:
    """Longer than max_update, in a process that lives."""
    job = trial.enqueue(jobs.deaf.with_args(key="long", seconds=2.5 * MAX_UPDATE))
    trial.wait_for_event(job, "ended")
    eventually(lambda: trial.cluster.client.tasks.get(job.id).status is not Status.WORKING, timeout=WITHIN)


def lock_the_row_of_one_that_runs(trial: MutationTrial) -> None:
    """For longer than max_update, by a transaction that stays open.

    When it ends, the next touch and the next rescue compete for the row, so it is done again until a rescue was first.
    """
    for number in range(5):
        job = trial.enqueue(jobs.deaf.with_args(key=f"locked{number}", seconds=3.5 * MAX_UPDATE))
        trial.wait_for_event(job, "began")
        with locked_row(trial.url, job.id) as task_id:
            assert task_id == job.id
            time.sleep(1.5 * MAX_UPDATE)
        trial.wait_for_event(job, "ended")
        trial.done(job)
        if trial.cluster.client.tasks.attempts(job.id):
            break


def run_a_short_one(trial: MutationTrial) -> None:
    job = trial.enqueue(jobs.short.with_args(key="short", seconds=0.0))
    trial.wait_for_event(job, "ended")
    eventually(
        lambda: trial.cluster.client.tasks.get(job.id).lease > 1 or job.refresh().status == "done", timeout=WITHIN
    )


def add_one_that_has_crashed(trial: MutationTrial) -> None:
    """While every process has something to do."""
    held = [trial.enqueue(jobs.long.with_args(key=f"held{number}", seconds=3.0)) for number in range(6)]
    for job in held:
        trial.wait_for_event(job, "began")
    history.record("unsure", key="crashed")
    insert = "INSERT INTO tasks (queue, name, body, crashes) VALUES ('work', 'short', :body, 1)"
    body = '{"key": "crashed", "seconds": 0.0}'
    trial.cluster.client.database.run(lambda connection: connection.execute(sa.text(insert), {"body": body}).rowcount)
    for job in held:
        trial.done(job)
    trial.cluster.wait_until(Job(held[-1].id + 1, True, trial.cluster.client.tasks.find), Status.DONE)


def offer_to_the_wrong_code_first(trial: MutationTrial) -> None:
    """What the new code alone knows is claimed by the old, before the new may claim it."""
    nodes = trial.cluster.client.nodes
    nodes.drain(NEW_NODE)
    jobs_of_new = [
        trial.enqueue(versions.comes.with_args(key="comes")),
        trial.enqueue(versions.grows_after.with_args(key="grows", by=2)),
    ]

    def are_all(such: Callable[[Task], object]) -> None:
        found = trial.cluster.client.tasks.get
        eventually(
            lambda: all(such(found(job.id)) for job in jobs_of_new), timeout=WITHIN, message=trial.cluster.describe
        )

    are_all(lambda task: task.status is Status.SCHEDULED or task.finished)
    nodes.undrain(NEW_NODE)
    are_all(lambda task: task.finished)


TRIALS: dict[str, tuple[Callable[[MutationTrial], None], str]] = {
    "completes without its lease": (freeze_a_holder, "stale write"),
    "touches nothing": (run_for_long, "rescue"),
    "sends no heartbeat": (lock_the_row_of_one_that_runs, "rescue"),
    "forgets outcomes": (run_a_short_one, "not written"),
    "runs the crashed beside others": (add_one_that_has_crashed, "poison"),
    "releases nothing": (offer_to_the_wrong_code_first, "versions"),
    "leaves out what it does not know": (offer_to_the_wrong_code_first, "versions"),
}


ON_SERVERS = (lock_the_row_of_one_that_runs,)
"""What SQLite, which has no locks of rows, cannot be done."""


def database_of(provoke: Callable[[MutationTrial], None]) -> str:
    return "mariadb" if provoke in ON_SERVERS else "sqlite"


@pytest.mark.parametrize("variant", mutations.MUTATIONS)
def test_a_broken_guarantee_is_caught(begin: Begin, variant: str) -> None:
    provoke, rule = TRIALS[variant]
    report = run_trial(begin(variant, database_of(provoke)), provoke)
    assert report.broken(rule), str(report)


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_the_same_trials_are_accepted_when_nothing_is_broken(begin: Begin, kind: str) -> None:
    trials = dict.fromkeys(provoke for provoke, _ in TRIALS.values() if database_of(provoke) == kind)
    report = run_trial(begin("", kind), *trials)
    assert report.problems == [], str(report)


def run_trial(trial: MutationTrial, *provocations: Callable[[MutationTrial], None]) -> checker.CheckReport:
    trial.start()
    for provoke in provocations:
        provoke(trial)
    trial.cluster.clean_up()
    return checker.check(trial.history, trial.url, CheckerSettings(max_update=MAX_UPDATE))
