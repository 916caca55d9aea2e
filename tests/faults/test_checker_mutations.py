"""The checker on real nodes, each time with one of peerd's guarantees taken out of a process: it must be caught."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import sqlalchemy as sa

from peerd import Call, Job
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.test_gateway import connect, gateway_node, start_all
from tests.faults import audit, checker, gateway_mutations, history, jobs, mutations, versions
from tests.faults.case import JOB_KEY, CheckerSettings
from tests.faults.database_faults import locked_row
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.support.servers import DatabaseFactory

ROOT = Path(__file__).parents[2]
BROKEN = Path(__file__).parent / "broken"
NODES = (NEW_NODE, OLD_NODE) = ("one", "two")
TUBE = b"trial"
SETTINGS = CheckerSettings(max_update=MAX_UPDATE)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Trial:
    """Nodes whose history is recorded, with a guarantee taken out of them, and what is done to them."""

    path: Sequence[Path] = (ROOT,)
    """Where the nodes look for modules."""

    def __init__(self, folder: Path, url: str, variant: str) -> None:
        self.url = url
        self.history = folder / "history"
        project = folder / "project"
        for one in (self.history, project):
            one.mkdir()
        path = os.pathsep.join(map(str, self.path))
        environment = {history.VARIABLE: str(self.history), "PYTHONPATH": path, mutations.VARIABLE: variant}
        self.cluster = Cluster(project, url, environment)
        audit.install(self.cluster.client.database.engine)

    def start(self, provocations: Sequence[Callable[[Any], None]]) -> None:
        """Start the nodes that these need."""
        raise NotImplementedError

    def judge(self, provocations: Sequence[Callable[[Any], None]]) -> checker.CheckReport:
        """Do something to the nodes, stop them, and check their history."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv(history.VARIABLE, str(self.history))
            try:
                self.start(provocations)
                for provoke in provocations:
                    provoke(self)
            finally:
                left = self.cluster.clean_up()
        assert not left
        return checker.check(self.history, self.url, SETTINGS)


# -------------------------------------------------------------------- tasks


class TaskTrial(Trial):
    """With two processes of the worker of the load: of one node, or of two that have different code."""

    def start(self, provocations: Sequence[Callable[[Any], None]]) -> None:
        names = NODES if offer_to_the_wrong_code_first in provocations else NODES[:1]
        for node in [self._node(name, len(NODES) // len(names)).start() for name in names]:
            node.wait_until_running()

    def _node(self, name: str, processes: int) -> ClusterNode:
        code = f"tests.faults.mutations:{versions.code_of(name)}"
        worker = {**WORKER, "tasks": code, "processes": processes}
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


def freeze_a_holder(trial: TaskTrial) -> None:
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


def run_for_long(trial: TaskTrial) -> None:
    """Longer than max_update, in a process that lives."""
    job = trial.enqueue(jobs.deaf.with_args(key="long", seconds=2.5 * MAX_UPDATE))
    trial.wait_for_event(job, "ended")
    eventually(lambda: trial.cluster.client.tasks.get(job.id).status is not Status.WORKING, timeout=WITHIN)


def lock_the_row_of_one_that_runs(trial: TaskTrial) -> None:
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


def run_a_short_one(trial: TaskTrial) -> None:
    job = trial.enqueue(jobs.short.with_args(key="short", seconds=0.0))
    trial.wait_for_event(job, "ended")
    eventually(
        lambda: trial.cluster.client.tasks.get(job.id).lease > 1 or job.refresh().status == "done", timeout=WITHIN
    )


def add_one_that_has_crashed(trial: TaskTrial) -> None:
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


def offer_to_the_wrong_code_first(trial: TaskTrial) -> None:
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


# -------------------------------------------------------------------- jobs of queue clients


class RecordedClient:
    """A queue client that records what it sees, as those of a campaign do."""

    def __init__(self, node: ClusterNode, name: str) -> None:
        self.name = name
        self.connection: BeanstalkConnection = connect(node, TUBE)
        history.record("opened", connection=name, server=node.pid("tubes-1"))

    def put(self, key: str) -> int:
        job = self.connection.put(json.dumps({"key": key, "ttr": 600}).encode(), ttr=600)
        history.record("inserted", task=job, key=key, connection=self.name)
        return job

    def want(self) -> None:
        self.connection.send(b"reserve\r\n")

    def reserved(self) -> int:
        answer = self.connection.receive(WITHIN)
        assert answer.startswith(b"RESERVED "), answer
        job = int(answer.split()[1])
        history.record("reserved", task=job, connection=self.name)
        return job

    def send_delete(self, job: int) -> None:
        history.record("finishing", task=job, connection=self.name, action="delete")
        self.connection.send(b"delete %d\r\n" % job)

    def deleted(self, job: int) -> None:
        """Record the answer to a delete."""
        is_deleted = self.connection.receive(WITHIN) == b"DELETED\r\n"
        history.record(
            "finished", task=job, connection=self.name, action="delete", outcome="deleted" if is_deleted else ""
        )

    def close(self) -> None:
        history.record("closed", connection=self.name)
        self.connection.close()


class JobTrial(Trial):
    """With a gateway process on each node, and a client of each."""

    path = (BROKEN, ROOT / "src", ROOT)

    def start(self, provocations: Sequence[Callable[[Any], None]]) -> None:
        self.nodes = [gateway_node(self.cluster, name) for name in NODES]
        start_all(*self.nodes)

    def clients(self, name: str) -> tuple[RecordedClient, RecordedClient]:
        """A client of each node, for one trial."""
        return RecordedClient(self.nodes[0], f"{name}-1"), RecordedClient(self.nodes[1], f"{name}-2")


def delete_after_a_freeze(trial: JobTrial) -> None:
    """The first holder's delete arrives when another one holds the job."""
    frozen, other = trial.clients("frozen")
    job = frozen.put(f"{JOB_KEY}frozen")
    frozen.want()
    frozen.reserved()
    other.want()
    pid = trial.nodes[0].pid("tubes-1")
    history.record("fault", kind="freeze", target="one/tubes-1", effect="frozen", pids=[pid])
    trial.cluster.freeze([pid])
    try:
        assert other.reserved() == job
        frozen.send_delete(job)
    finally:
        trial.cluster.thaw([pid])
        history.record("healed", kind="freeze", target="one/tubes-1")
    frozen.deleted(job)
    time.sleep(2 * SETTINGS.clock_slack)  # so that it is no matter of the clocks
    other.send_delete(job)
    other.deleted(job)
    for client in (frozen, other):
        client.close()


def hold_for_long(trial: JobTrial) -> None:
    """Longer than max_update, in a process that lives."""
    holder, other = trial.clients("long")
    job = holder.put(f"{JOB_KEY}long")
    holder.want()
    holder.reserved()
    other.want()
    with connect(trial.nodes[1]) as observer:
        eventually(lambda: age_of(observer, job) > 2.5 * MAX_UPDATE, timeout=WITHIN)
    answer = other.connection.answer_that_came()
    if answer is not None:
        history.record("reserved", task=job, connection=other.name)
    holder.send_delete(job)
    holder.deleted(job)
    if answer is not None:
        other.send_delete(job)
        other.deleted(job)
    for client in (holder, other):
        client.close()


def kill_a_holder(trial: JobTrial) -> None:
    """What it held goes to a client of another node."""
    dying, other = trial.clients("killed")
    node = trial.nodes[0]
    job = dying.put(f"{JOB_KEY}killed")
    dying.want()
    dying.reserved()
    pid = node.pid("tubes-1")
    history.record("fault", kind="kill gateway", target="one/tubes-1", effect="dead", pids=[pid])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: trial.cluster.client.tasks.get(job).status != "working", timeout=WITHIN)
    if trial.cluster.client.tasks.get(job).status == "pending":
        other.want()
        assert other.reserved() == job
        other.send_delete(job)
        other.deleted(job)
    eventually(node.replaced("tubes-1", pid), timeout=WITHIN, message=node.log_text)
    for client in (dying, other):
        client.close()


def age_of(observer: BeanstalkConnection, job: int) -> float:
    """Seconds since a job was put."""
    return float(observer.job(job)["age"])


# -------------------------------------------------------------------- what is caught

TRIALS: Final[dict[str, tuple[type[Trial], Callable[[Any], None], str]]] = {
    "completes without its lease": (TaskTrial, freeze_a_holder, "stale write"),
    "touches nothing": (TaskTrial, run_for_long, "rescue"),
    "sends no heartbeat": (TaskTrial, lock_the_row_of_one_that_runs, "rescue"),
    "forgets outcomes": (TaskTrial, run_a_short_one, "not written"),
    "runs the crashed beside others": (TaskTrial, add_one_that_has_crashed, "poison"),
    "releases nothing": (TaskTrial, offer_to_the_wrong_code_first, "versions"),
    "leaves out what it does not know": (TaskTrial, offer_to_the_wrong_code_first, "versions"),
    "deletes without the lease": (JobTrial, delete_after_a_freeze, "jobs lost"),
    "a gateway sends no heartbeat": (JobTrial, hold_for_long, "jobs held"),
    "counts a reservation as a crash": (JobTrial, kill_a_holder, "jobs counted"),
}
"""By the guarantee that is taken out: what shows it, and the rule that it breaks."""
ON_SERVERS = (lock_the_row_of_one_that_runs,)
"""What SQLite, which has no locks of rows, cannot be done."""


def database_of(provoke: Callable[[Any], None]) -> str:
    return "mariadb" if provoke in ON_SERVERS else "sqlite"


@pytest.mark.parametrize("variant", [*mutations.MUTATIONS, *gateway_mutations.MUTATIONS])
def test_a_broken_guarantee_is_caught(tmp_path: Path, database_factory: DatabaseFactory, variant: str) -> None:
    kind, provoke, rule = TRIALS[variant]
    report = kind(tmp_path, database_factory(database_of(provoke)), variant).judge([provoke])
    assert report.broken(rule), str(report)


@pytest.mark.parametrize("trial, server", [(TaskTrial, "sqlite"), (TaskTrial, "mariadb"), (JobTrial, "sqlite")])
def test_the_same_trials_are_accepted_when_nothing_is_broken(
    tmp_path: Path, database_factory: DatabaseFactory, trial: type[Trial], server: str
) -> None:
    provocations = {one for kind, one, _ in TRIALS.values() if kind is trial and database_of(one) == server}
    report = trial(tmp_path, database_factory(server), "").judge(sorted(provocations, key=lambda one: one.__name__))
    assert report.problems == [], str(report)
    assert trial is not JobTrial or report.counts["jobs"] == len(provocations)
