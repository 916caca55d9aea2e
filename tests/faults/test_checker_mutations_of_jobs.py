"""The rules about jobs on real nodes, each time with one of the queue server's guarantees taken out."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.cluster.cluster import MAX_UPDATE, WITHIN, Cluster, ClusterNode
from tests.cluster.test_gateway import connect, gateway_node, start_all
from tests.faults import audit, checker, gateway_mutations, history, mutations
from tests.faults.case import JOB_KEY, CheckerSettings
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.support.servers import DatabaseFactory

ROOT = Path(__file__).parents[2]
BROKEN = Path(__file__).parent / "broken"
TUBE = b"trial"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


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


class JobTrial:
    """Two nodes with a gateway process each, and a client of each."""

    def __init__(self, folder: Path, url: str, variant: str) -> None:
        self.url = url
        self.history = folder / "history"
        self.history.mkdir()
        os.environ[history.VARIABLE] = str(self.history)
        path = os.pathsep.join([str(BROKEN), str(ROOT / "src"), str(ROOT)])
        environment = {history.VARIABLE: str(self.history), "PYTHONPATH": path, mutations.VARIABLE: variant}
        project = folder / "project"
        project.mkdir()
        self.cluster = Cluster(project, url, environment)
        audit.install(self.cluster.client.database.engine)
        self.nodes = [gateway_node(self.cluster, name) for name in ("one", "two")]

    def start(self) -> None:
        start_all(*self.nodes)

    def clients(self, name: str) -> tuple[RecordedClient, RecordedClient]:
        """A client of each node, for one trial."""
        return RecordedClient(self.nodes[0], f"{name}-1"), RecordedClient(self.nodes[1], f"{name}-2")


Begin = Callable[[str], JobTrial]


@pytest.fixture
def begin(tmp_path: Path, database_factory: DatabaseFactory) -> Iterator[Begin]:
    before = os.environ.get(history.VARIABLE)
    trials: list[JobTrial] = []

    def make(variant: str) -> JobTrial:
        trials.append(JobTrial(tmp_path, database_factory("sqlite"), variant))
        return trials[-1]

    yield make
    left = [pid for trial in trials for pid in trial.cluster.clean_up()]
    if before is None:
        os.environ.pop(history.VARIABLE, None)
    else:
        os.environ[history.VARIABLE] = before
    assert not left


# -------------------------------------------------------------------- what is done


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
    time.sleep(2 * CheckerSettings(max_update=MAX_UPDATE).clock_slack)  # so that it is no matter of the clocks
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


TRIALS: dict[str, tuple[Callable[[JobTrial], None], str]] = {
    "deletes without the lease": (delete_after_a_freeze, "jobs lost"),
    "a gateway sends no heartbeat": (hold_for_long, "jobs held"),
    "counts a reservation as a crash": (kill_a_holder, "jobs counted"),
}


@pytest.mark.parametrize("variant", gateway_mutations.MUTATIONS)
def test_a_broken_guarantee_of_the_queue_server_is_caught(begin: Begin, variant: str) -> None:
    provoke, rule = TRIALS[variant]
    report = run_trial(begin(variant), provoke)
    assert report.broken(rule), str(report)


def test_the_trials_of_jobs_are_accepted_when_nothing_is_broken(begin: Begin) -> None:
    report = run_trial(begin(""), *(provoke for provoke, _ in TRIALS.values()))
    assert report.problems == [], str(report)
    assert report.counts["jobs"] == len(TRIALS)


def run_trial(trial: JobTrial, *provocations: Callable[[JobTrial], None]) -> checker.CheckReport:
    trial.start()
    for provoke in provocations:
        provoke(trial)
    trial.cluster.clean_up()
    return checker.check(trial.history, trial.url, CheckerSettings(max_update=MAX_UPDATE))
