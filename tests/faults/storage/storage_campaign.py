"""A campaign: nodes with storage, clients, faults, healing, and the audit of what is left."""

from __future__ import annotations

import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.files import CopyState, FileState
from peerd.domain.lifecycle import FINISHED
from peerd.storage.placement.decision import FileHealth
from peerd.store.schema.tables import file_checks, file_copies, files, tasks
from peerd.store.schema.types import now, seconds_from_now
from tests.faults import history
from tests.faults.fault_injector import FaultInjector
from tests.faults.proxy import ProxyThread
from tests.faults.storage.disk_audit import DiskAudit, audit, find_on_disks, read_catalogue
from tests.faults.storage.file_client import FileClient, FileRequests, target_of
from tests.faults.storage.file_record import ABSENT, FileRecord
from tests.faults.storage.storage_faults import (
    DiskFaults,
    FailingCalls,
    KilledServer,
    LockedFile,
    Partitions,
    StorageFreezes,
    StorageKills,
    expedite,
)
from tests.faults.storage.storage_fleet import StorageFleet, StorageTiming, can_mount
from tests.faults.storage.system_calls import can_fail
from tests.support.server_kinds import SERVERS
from tests.support.servers import create_database

UNFINISHED: Final = tasks.c.queue == "storage", tasks.c.status.not_in([str(status) for status in FINISHED])
UNEXPECTED: Final = re.compile(
    r"fault in the master|an event without a message|\b(Type|Attribute|Name|Key|Index)Error\b"
)
"""What no fault excuses in a log."""


class StoragePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is to be.

    Attributes:
        kind: of the database.
        seconds: how long there are faults.
        every: seconds from one fault to the next, by lane; 0: none.
        settles_within: seconds after the healing.
    """

    kind: str
    seconds: float
    seed: int
    names: tuple[str, ...] = ("a", "b", "c", "d")
    clients: int = 16
    kill_every: float = 3.0
    freeze_every: float = 7.0
    disk_every: float = 3.0
    call_every: float = 6.0
    partition_every: float = 10.0
    outage_every: float = 20.0
    settles_within: float = 240.0
    timing: StorageTiming = StorageTiming()


class StorageResult(msgspec.Struct, kw_only=True):
    """How it went."""

    plan: StoragePlan
    problems: list[str]
    counts: Counter[str]
    faults: Counter[str]
    seconds_to_settle: float

    def words(self) -> str:
        """The counts and the problems."""
        lines = [f"{count:7} {name}" for name, count in sorted(self.counts.items())]
        faults = [f"{count:7} fault: {name}" for name, count in sorted(self.faults.items())]
        settled = f"settled {self.seconds_to_settle:.0f} s after the healing (seed {self.plan.seed})"
        return "\n".join([f"{self.plan.kind}: {settled}", *faults, *lines, *(self.problems or ["nothing is wrong"])])


class StorageCampaign:
    """One campaign.

    Args:
        plan: what it is to be.
        folder: for the project, the disks and the history.
        target: the database.
        proxies: for the networks of the nodes.
    """

    def __init__(self, plan: StoragePlan, folder: Path, target: StorageDatabase, proxies: ProxyThread) -> None:
        self._plan = plan
        self._history = folder / "history"
        self._history.mkdir()
        project = folder / "project"
        project.mkdir()
        mounted = plan.names[1:3] if can_mount() else ()
        self._calls_can_fail = plan.kind != "sqlite" and can_fail()
        """SQLite's database is a file, too: it would fail with the disks."""
        fails = self._calls_can_fail
        self._fleet = StorageFleet(project, target.url, plan.names, plan.timing, mounted, proxies, can_fail=fails)
        self._target = target
        self._record = FileRecord()
        self._requests = FileRequests()
        self._problems: list[str] = []

    def run(self) -> StorageResult:
        """Load the nodes, hurt them, heal them, wait until nothing is left to be done, lose a disk, wait, and audit."""
        try:
            self._fleet.start()
            skipped = self._load_under_faults()
            healed = time.monotonic()
            self._settle(healed + self._plan.settles_within)
            settled = time.monotonic()
            if not self._problems:
                self._lose_disk_and_file()
            found = self._audit()
            self._read_back()
        finally:
            left = self._fleet.stop()
        if left:
            self._problems.append(f"processes were left behind: {left}")
        self._problems += [
            f"the log says: {line}" for line in self._fleet.log_text().splitlines() if UNEXPECTED.search(line)
        ]
        self._problems += self._record.wrong_reads()
        events = history.read(self._history)
        return StorageResult(
            plan=self._plan,
            problems=self._problems,
            counts=self._record.counts + found.counts + Counter({"faults that were too hard, and not done": skipped}),
            faults=Counter(event.kind for event in events if event.event == "fault"),
            seconds_to_settle=settled - healed,
        )

    def _load_under_faults(self) -> int:
        plan, fleet = self._plan, self._fleet
        ends, stopping = threading.Event(), threading.Event()
        addresses = {node.name: node.client_address for node in fleet.nodes}
        clients = [
            FileClient(f"client {number}", addresses, self._record, random.Random(f"{plan.seed}/{number}"), ends)
            for number in range(plan.clients)
        ]
        disks = DiskFaults(fleet, random.Random(f"{plan.seed}/disks"), plan.disk_every, stopping)
        lanes: list[FaultInjector] = [
            StorageKills(fleet, random.Random(f"{plan.seed}/kills"), plan.kill_every, stopping),
            StorageFreezes(fleet, random.Random(f"{plan.seed}/freezes"), plan.freeze_every, stopping),
            self._target.outages(fleet, random.Random(f"{plan.seed}/outages"), plan.outage_every, stopping),
            Partitions(fleet, random.Random(f"{plan.seed}/partitions"), plan.partition_every, stopping),
            disks,
        ]
        if self._calls_can_fail:
            lanes.append(FailingCalls(fleet, random.Random(f"{plan.seed}/calls"), plan.call_every, stopping))
        running: list[FileClient | FaultInjector] = [*clients, *lanes]
        for one in running:
            one.start()
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until and not any(one.error for one in running):
            time.sleep(0.2)
        stopping.set()
        for lane in lanes:
            lane.join()
        ends.set()
        for client in clients:
            client.join()
        for error in [one.error for one in running if one.error]:
            raise error
        return disks.skipped

    # ------------------------------------------------------------ rest

    def _settle(self, deadline: float, lost: int | None = None) -> None:
        """Until no file has a check, no task is left, and each copy was verified since the healing.

        Args:
            deadline: see `time.monotonic`.
            lost: the one file that must have a check, which calls it lost.
        """
        fleet = self._fleet
        fleet.wait_until_ready(fleet.nodes)
        healed_at = fleet.database.run(self._end_staged)
        while waiting := fleet.database.read(self._waiting, healed_at, lost):
            if time.monotonic() > deadline:
                self._problems.append(f"not settled {self._plan.settles_within:g} s after the healing: {waiting}")
                return
            expedite(fleet.database)
            time.sleep(1.0)

    def _lose_disk_and_file(self) -> None:
        """Lose one more disk, and all copies of one file beside it: no other file may wait for that one.

        Under load there seldom is a disk without which every file has a whole copy.
        """
        disks = DiskFaults(self._fleet, random.Random(f"{self._plan.seed}/lost"), 1.0, threading.Event())
        disks.lose_disk()
        file_id, key = disks.lose_file()
        self._settle(time.monotonic() + self._plan.settles_within, file_id)
        self._record.began({key: ABSENT}, time.monotonic())
        node = self._fleet.nodes[0].client_address
        answers = [self._requests.send(node, method, target_of(key)) for method in ("GET", "DELETE")]
        if [answer.status for answer in answers] != [503, 204]:
            self._problems.append(f"the lost file {key} is answered with {answers}")
        self._record.acknowledged([key], time.monotonic())
        self._settle(time.monotonic() + self._plan.settles_within)

    def _end_staged(self, connection: Connection) -> datetime:
        """Puts have ended: what they have staged is as old as if an hour had passed."""
        is_staged = files.c.state == FileState.STAGED.value
        connection.execute(sa.update(files).where(is_staged).values(created_at=seconds_from_now(-7200.0)))
        self._record.counts["versions left staged by puts that were interrupted"] = int(
            connection.execute(sa.select(sa.func.count()).select_from(files).where(is_staged)).scalar_one()
        )
        return connection.execute(sa.select(now())).scalar_one()

    @staticmethod
    def _waiting(connection: Connection, healed_at: datetime, lost: int | None) -> dict[str, Any]:
        """What is still to be done, and examples of it."""
        stale = file_copies.c.state == CopyState.STORED.value, file_copies.c.verified_at < healed_at
        is_lost = file_checks.c.file_id == lost, file_checks.c.health == FileHealth.LOST.value
        statements = {
            "checks": sa.select(file_checks.c.file_id, file_checks.c.health, file_checks.c.blocked).where(
                sa.not_(sa.and_(*is_lost))
            ),
            "not lost": sa.select(files.c.id).where(files.c.id == lost, ~sa.exists().where(*is_lost)),
            "tasks": sa.select(tasks.c.id, tasks.c.name, tasks.c.status, tasks.c.error).where(*UNFINISHED),
            "not verified": sa.select(file_copies.c.file_id, file_copies.c.disk_id).where(*stale),
            "not published": sa.select(files.c.id).where(files.c.state != FileState.STORED.value),
        }
        found = {name: connection.execute(statement.limit(4)).all() for name, statement in statements.items()}
        return {name: rows for name, rows in found.items() if rows}

    def _audit(self) -> DiskAudit:
        rows = read_catalogue(self._fleet.database)
        found = audit(rows, find_on_disks(rows), grace=0.0)
        self._problems += found.problems
        current = {row.file_key: row.blake3 for row in rows.files.values() if row.state == FileState.STORED.value}
        self._problems += self._record.wrong_ends(current)
        acknowledged = sum(f"{content.file_id:016x}" in self._record.ids for content in found.unknown)
        found.counts["unknown contents: left by a put that was interrupted"] = len(found.unknown) - acknowledged
        found.counts["unknown contents: left by a copy that was interrupted"] = acknowledged
        return found

    def _read_back(self) -> None:
        """Every key by every node."""
        for node in self._fleet.nodes:
            for key in self._record.all_keys():
                answer = self._requests.send(node.client_address, "GET", target_of(key))
                digest = blake3(answer.body).hexdigest() if answer.status == 200 else ""
                self._record.counts[f"read back: {answer.status}"] += 1
                if answer.status not in {200, 404} or digest not in self._record.allowed(key):
                    text = answer.body[:200] if answer.status != 200 else digest[:12]
                    self._problems.append(f"at the end node {node.name} answers {answer.status} for {key}: {text!r}")


class StorageDatabase(msgspec.Struct, frozen=True):
    """The database of a campaign, and what is done to it."""

    url: str
    outages: Any


@contextmanager
def open_storage_database(kind: str, folder: Path) -> Iterator[StorageDatabase]:
    """A fresh database.

    Raises:
        ServerUnavailableError: its server is not installed.
    """
    if kind == "sqlite":
        yield StorageDatabase(f"sqlite:///{folder / 'peerd.sqlite'}", LockedFile)
        return
    with ExitStack() as stack:
        # A server dies with the thread that started it: it needs one that stays.
        starter = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="server"))
        short = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="peerd-files-", ignore_cleanup_errors=True))
        )
        short.chmod(0o755)  # PostgreSQL runs as another user when we are root
        server = SERVERS[kind](short / kind)
        stack.callback(server.stop)

        def start() -> None:
            starter.submit(server.start).result()

        def outages(fleet: StorageFleet, rng: random.Random, every: float, stopping: threading.Event) -> KilledServer:
            return KilledServer(server, start, rng, every, stopping)

        start()
        yield StorageDatabase(create_database(server, "peerd"), outages)


def run(plan: StoragePlan, folder: Path) -> StorageResult:
    """Run a campaign. $PEERD_HISTORY must be the folder's `history` in this process.

    Raises:
        ServerUnavailableError: the database's server is not installed.
    """
    with open_storage_database(plan.kind, folder) as target, ProxyThread() as proxies:
        return StorageCampaign(plan, folder, target, proxies).run()
