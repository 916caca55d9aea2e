"""The peers: each is measured by processes of its own environment, on the stage's own server or on Redis."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.databases import BenchDatabase
from bench.samples import MeasurementFailure, PickUp, TimingSample
from bench.sizes import Sizes

ROOT: Final = Path(__file__).parents[1]
PYTHON: Final = ROOT / ".venv-peers" / "bin" / "python"
LONGEST: Final = 300
"""Seconds for one measurement."""


class PeerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """A peer on a store, and how it is run.

    ``at_once`` says how many tasks at once, or in a batch; ``expected_rate`` is about what it drains in a second, so
    that its drain takes neither a minute nor a blink.
    """

    name: str
    module: str
    store: str
    at_once: tuple[int, ...] = (10,)
    expected_rate: int
    note: str

    def by(self, at_once: int) -> str:
        """How it is called in the tables."""
        return self.name if len(self.at_once) == 1 else f"{self.name} (batch {at_once})"


REDIS: Final = "redis"
PEER_SETUPS: Final = (
    PeerSetup(name="Huey", module="huey_sql", store="mariadb", expected_rate=800, note="10 threads; SqlHuey"),
    PeerSetup(
        name="Celery, SQL", module="celery", store="mariadb", expected_rate=400, note="10 threads; SQLAlchemy transport"
    ),
    PeerSetup(
        name="django-tasks-db",
        module="django_tasks",
        store="mariadb",
        expected_rate=300,
        note="one at a time, as it works",
    ),
    PeerSetup(
        name="Huey", module="huey_sqlite", store="sqlite", expected_rate=3_000, note="10 threads; SqliteHuey, WAL"
    ),
    PeerSetup(
        name="Procrastinate", module="procrastinate", store="postgresql", expected_rate=500, note="concurrency 10"
    ),
    PeerSetup(
        name="PgQueuer",
        module="pgqueuer",
        store="postgresql",
        at_once=(10, 50, 500),
        expected_rate=10_000,
        note="asyncpg",
    ),
    PeerSetup(name="Celery", module="celery", store=REDIS, expected_rate=1_200, note="10 threads"),
    PeerSetup(name="Dramatiq", module="dramatiq", store=REDIS, expected_rate=2_500, note="10 threads"),
    PeerSetup(name="RQ", module="rq", store=REDIS, expected_rate=400, note="SimpleWorker, one at a time, as it works"),
    PeerSetup(name="SAQ", module="saq", store=REDIS, expected_rate=1_800, note="concurrency 10"),
)


class PeerMeasurements:
    """The peers of one store.

    Args:
        store: mariadb, sqlite, postgresql or redis.
        database: what the samples call it.
        addresses: module → an address of its own there.
        only: modules, if not all.
    """

    def __init__(
        self, store: str, database: str, addresses: Mapping[str, str], only: Sequence[str] | None = None
    ) -> None:
        self.database = database
        self._addresses = addresses
        self._setups = [
            peer_setup
            for peer_setup in PEER_SETUPS
            if peer_setup.store == store and (only is None or peer_setup.module in only)
        ]

    def measure(self, sizes: Sizes) -> Iterator[TimingSample | MeasurementFailure]:
        """Enqueue singly and together, and drain."""
        for peer_setup in self._setups:
            for batch, number in sizes.peer_enqueue.items():
                how = "singly" if batch == 1 else "together"
                yield self._timing(peer_setup, "enqueue", batch, number, "enqueue", how, str(number))
            for at_once in peer_setup.at_once:
                number = max(int(peer_setup.expected_rate * sizes.peer_seconds), 2 * at_once)
                words = ("drain", str(at_once), str(3 * at_once), str(number))
                yield self._timing(peer_setup, "drain", at_once, number, *words)

    def pick_up(self, sizes: Sizes) -> Iterator[PickUp | MeasurementFailure]:
        """How long a task waits on an idle worker."""
        for peer_setup in self._setups:
            answer = self._run_command(peer_setup, "pick-up", str(peer_setup.at_once[0]), str(sizes.pick_ups))
            if isinstance(answer, MeasurementFailure):
                yield answer
            else:
                for waited in answer["milliseconds"]:
                    yield PickUp(database=self.database, by=peer_setup.name, milliseconds=waited)

    def _timing(
        self, peer_setup: PeerSetup, what: str, batch: int, number: int, *words: str
    ) -> TimingSample | MeasurementFailure:
        answer = self._run_command(peer_setup, *words)
        if isinstance(answer, MeasurementFailure):
            return answer
        return TimingSample(
            database=self.database,
            measurement=what,
            batch=batch,
            by=peer_setup.by(batch) if what == "drain" else peer_setup.name,
            tasks=number,
            seconds=answer["seconds"],
            cpu=answer["cpu"],
        )

    def _run_command(self, peer_setup: PeerSetup, *words: str) -> Any:
        """What its own process measured, or why it did not."""
        what = f"{peer_setup.name}: {' '.join(words)}"
        if not PYTHON.exists():
            return MeasurementFailure(
                database=self.database, what=what, reason=f"{PYTHON} is not there: make bench-peers"
            )
        command = [
            str(PYTHON),
            "-m",
            "bench.peers.command",
            peer_setup.module,
            self._addresses[peer_setup.module],
            *words,
        ]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=LONGEST, check=False, text=True
            )
        except subprocess.TimeoutExpired:
            return MeasurementFailure(database=self.database, what=what, reason=f"it did not end within {LONGEST} s")
        if ended.returncode != 0:
            return MeasurementFailure(
                database=self.database, what=what, reason=ended.stderr.strip()[-600:] or "it said nothing"
            )
        return msgspec.json.decode(ended.stdout.strip().splitlines()[-1])


def peers_of(target: BenchDatabase, only: Sequence[str] | None) -> PeerMeasurements:
    """Those that work on this stage's database; each gets a database, or file, of its own on the same server."""
    ways = [
        peer_setup
        for peer_setup in PEER_SETUPS
        if peer_setup.store == target.kind and (only is None or peer_setup.module in only)
    ]
    addresses = {}
    for peer_setup in ways:
        address = target.extra_database(f"peer_{peer_setup.module}")
        match target.kind:
            case "sqlite":
                address = f"{address}?synchronous={target.variant.synchronous}"
            case "postgresql":
                address = address.replace("postgresql+psycopg", "postgresql")
        addresses[peer_setup.module] = address
    return PeerMeasurements(target.kind, target.name, addresses, only)
