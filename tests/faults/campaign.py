"""A campaign: three nodes under load on one database, faults, healing, and the judgement of what happened."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import sqlalchemy as sa

from peerd.domain.lifecycle import FINISHED
from peerd.store.connection.database import Database
from peerd.store.schema.tables import tasks
from tests.faults import audit, checker, history
from tests.faults.case import CheckerSettings
from tests.faults.fault_injector import FaultInjector, FaultRates
from tests.faults.nodes import NAMES, ROOT, NodeFleet, NodeTiming
from tests.faults.poison import PoisonInjector
from tests.faults.process_faults import FreezeInjector, FullRunDirectories, KillInjector
from tests.faults.target_database import TargetDatabase, open_target_database

SAMPLE_EVERY: Final = 1.0
LOAD_ENDS_WITHIN: Final = 120.0
"""Seconds after the last fault."""
DIGESTED_WITHIN: Final = 90.0
"""Seconds after the last task has ended."""
LOADED_BY: Final = 0.85
"""The part of the campaign in which everything is enqueued, outages left aside."""
UNEXPECTED: Final = re.compile(
    r"fault in the master|an event without a message|went wrong"
    r"|^(?!sqlalchemy|pymysql|psycopg|sqlite3|peerd\.domain|Connection\w*Error|TimeoutError|OSError)[\w.]*Error\b"
)
"""What no fault excuses in a log: the master's own faults, events without a message, errors without a text."""


UNFINISHED: Final = tasks.c.status.not_in([str(status) for status in FINISHED])


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is to be."""

    kind: str
    """Of the database: sqlite, or one of `SERVERS`."""
    seconds: float
    """How long there are faults."""
    tasks: int
    seed: int
    rates: FaultRates = FaultRates()
    timing: NodeTiming = NodeTiming()
    names: tuple[str, ...] = NAMES
    """Of the nodes."""
    jobs_per_second: float = 10.0
    """That queue clients put."""
    ends_within: float = 300.0
    """Seconds that all tasks have to end in when everything is healed."""


class CampaignResult(msgspec.Struct, kw_only=True):
    """How it went."""

    plan: CampaignPlan
    history: Path
    problems: list[str]
    """Of the run itself; those of the tasks are in the report."""
    report: checker.CheckReport
    seconds_to_settle: float
    """From the last healing until all tasks had ended."""
    seconds: float
    words: str

    @property
    def is_good(self) -> bool:
        return not self.problems and not self.report.problems


class Campaign:
    """One campaign, step by step.

    Args:
        plan: what it is to be.
        folder: for the history, the project and the logs; it must exist.
        database: the target database.
    """

    def __init__(self, plan: CampaignPlan, folder: Path, database: TargetDatabase) -> None:
        self._plan = plan
        self._target = database
        self._history = folder / "history"
        self._history.mkdir()
        project = folder / "project"
        project.mkdir()
        self._fleet = NodeFleet(project, database.url, self._history, plan.timing, plan.names, database.node_urls)
        self._load_log = folder / "load.log"
        self._clients_log = folder / "queue-clients.log"
        self._stopping = threading.Event()
        chances = random.Random(f"{plan.seed}/poison")
        self._poison = PoisonInjector(database.url, chances, plan.rates, self._stopping)
        self._problems: list[str] = []

    def run(self) -> CampaignResult:
        """Load the nodes, hurt them, heal them, wait until all has ended, and judge."""
        began = time.monotonic()
        audit.install(self._fleet.cluster.client.database.engine)
        try:
            self._fleet.start()
            with self._sampling(), self._queue_clients(), self._load() as load:
                self._inject_faults()
                healed = time.monotonic()
                self._wait_for_load(load)
                self._wait_for_tasks(healed + self._plan.ends_within)
                self._wait_for_poisoned_rows()
                rested = time.monotonic()
        finally:
            left = self._fleet.stop()
        if left:
            self._problems.append(f"processes were left behind: {left}")
        self._check_log()
        return CampaignResult(
            plan=self._plan,
            history=self._history,
            problems=self._problems,
            report=checker.check(
                self._history, self._target.url, CheckerSettings(max_update=self._plan.timing.max_update)
            ),
            seconds_to_settle=rested - healed,
            seconds=rested - began,
            words=self._target.words(),
        )

    # ------------------------------------------------------------ load

    @contextmanager
    def _load(self) -> Iterator[subprocess.Popen[bytes]]:
        """A process of its own, which reaches the database as it can."""
        rate = self._plan.tasks / (self._plan.seconds * LOADED_BY)
        options = {
            "--tasks": self._plan.tasks,
            "--rate": round(rate, 1),
            "--seed": self._plan.seed,
            "--max-update": self._plan.timing.max_update,
        }
        words = [str(word) for option in options.items() for word in option]
        pinned_to = self._fleet.with_all_queues
        command = [sys.executable, "-m", "tests.faults.load", self._target.load_url, *words, "--nodes", *pinned_to]
        with self._load_log.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self._fleet.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def _queue_clients(self) -> Iterator[None]:
        """A process with queue clients of all nodes, until all tasks have ended."""
        seconds = self._plan.seconds * LOADED_BY
        options = {
            "--jobs": round(self._plan.jobs_per_second * seconds),
            "--seconds": seconds,
            "--seed": self._plan.seed,
        }
        words = [str(word) for option in options.items() for word in option]
        ports = [str(port) for port in self._fleet.ports.values()]
        command = [sys.executable, "-m", "tests.faults.queue_clients", *ports, *words]
        with self._clients_log.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self._fleet.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield
            if process.poll() is not None:
                self._problems.append(f"the queue clients have ended: {self._clients_log.read_text()[-2000:]}")
        finally:
            process.kill()
            process.wait()

    def _wait_for_load(self, load: subprocess.Popen[bytes]) -> None:
        try:
            status = load.wait(LOAD_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._problems.append(f"the load had not enqueued all within {LOAD_ENDS_WITHIN:g} s after the last fault")
            return
        if status:
            self._problems.append(f"the load ended with status {status}: {self._load_log.read_text()[-2000:]}")

    # ------------------------------------------------------------ faults

    def _inject_faults(self) -> None:
        """Let each lane do its faults for as long as planned; all of them are healed when this returns."""
        lanes = self._injectors()
        for lane in lanes:
            lane.start()
        until = time.monotonic() + self._plan.seconds
        while time.monotonic() < until and not any(lane.error for lane in lanes):
            self._stopping.wait(min(0.5, max(until - time.monotonic(), 0.0)))
        self._stopping.set()
        for lane in lanes:
            lane.join()
        for lane in lanes:
            if lane.error:
                raise lane.error

    def _injectors(self) -> list[FaultInjector]:
        plan, fleet = self._plan, self._fleet
        chances = [random.Random(f"{plan.seed}/{lane}") for lane in ("kills", "freezes", "database", "run")]
        max_update = plan.timing.max_update
        lanes: list[FaultInjector] = [
            KillInjector(fleet, chances[0], plan.rates, self._stopping),
            FreezeInjector(fleet, chances[1], plan.rates, self._stopping, max_update=max_update),
            self._target.faults(fleet, chances[2], plan.rates, self._stopping, max_update=max_update),
            self._poison,
        ]
        if fleet.run_disk is not None:
            lanes.append(FullRunDirectories(fleet.run_disk, chances[3], plan.rates, self._stopping))
        return lanes

    # ------------------------------------------------------------ rest

    def _wait_for_tasks(self, deadline: float) -> None:
        """Until every task has ended."""
        while unfinished := count_tasks(self._fleet.cluster.client.database, UNFINISHED):
            if time.monotonic() > deadline:
                self._problems.append(
                    f"{unfinished} tasks had not ended {self._plan.ends_within:g} s after the healing"
                )
                return
            time.sleep(0.2)

    def _wait_for_poisoned_rows(self) -> None:
        deadline = time.monotonic() + DIGESTED_WITHIN
        while (found := self._poison.find_undigested()) and time.monotonic() < deadline:
            time.sleep(0.5)
        self._problems += found

    @contextmanager
    def _sampling(self) -> Iterator[None]:
        """How many tasks stand where, once a second, for the plot."""
        ended = threading.Event()
        sampler = threading.Thread(target=self._sample_until, args=[ended], name="sampler", daemon=True)
        sampler.start()
        try:
            yield
        finally:
            ended.set()
            sampler.join()

    def _sample_until(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_EVERY):
            with suppress(Exception):  # a database that is away has nothing to say
                counts = self._fleet.cluster.client.tasks.counts()
                history.record(
                    "sample",
                    counts={str(status): count for status, count in counts.items()},
                    slots=Counter(state for node in self._fleet.nodes for state in node.states),
                    alone=count_tasks(self._fleet.cluster.client.database, UNFINISHED, tasks.c.lane < 0),
                )

    def _check_log(self) -> None:
        for line in self._fleet.log_text().splitlines():
            if UNEXPECTED.search(line):
                self._problems.append(f"the nodes' log says: {line}")


def count_tasks(database: Database, *which: sa.ColumnElement[bool]) -> int:
    """How many tasks are such."""
    statement = sa.select(sa.func.count()).select_from(tasks).where(*which)
    return database.read(lambda connection: int(connection.execute(statement).scalar_one()))


def run(plan: CampaignPlan, folder: Path) -> CampaignResult:
    """Run a campaign. $PEERD_HISTORY must be the folder's `history` in this process too.

    Raises:
        ServerUnavailableError: the database's server is not installed.
    """
    with ExitStack() as stack:
        return Campaign(plan, folder, stack.enter_context(open_target_database(plan.kind, plan.names))).run()
