"""The peers: each is measured by processes of its own environment, on the stage's own server or on Redis."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.databases import Stage
from bench.samples import Failure, PickUp, Timing
from bench.sizes import Sizes

ROOT: Final = Path(__file__).parents[1]
PYTHON: Final = ROOT / ".venv-peers" / "bin" / "python"
LONGEST: Final = 300
"""Seconds for one measurement."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A peer on a store, and how it is run.

    ``at_once`` says how many tasks at once, or in a batch; ``pace`` is about what it drains in a second, so that its
    drain takes neither a minute nor a blink.
    """

    name: str
    module: str
    store: str
    at_once: tuple[int, ...] = (10,)
    pace: int
    note: str

    def by(self, at_once: int) -> str:
        """How it is called in the tables."""
        return self.name if len(self.at_once) == 1 else f"{self.name} (batch {at_once})"


REDIS: Final = "redis"
WAYS: Final = (
    Way(name="Huey", module="huey_sql", store="mariadb", pace=800, note="10 threads; SqlHuey"),
    Way(name="Celery, SQL", module="celery", store="mariadb", pace=400, note="10 threads; SQLAlchemy transport"),
    Way(name="django-tasks-db", module="django_tasks", store="mariadb", pace=300, note="one at a time, as it works"),
    Way(name="Huey", module="huey_sqlite", store="sqlite", pace=3_000, note="10 threads; SqliteHuey, WAL"),
    Way(name="Procrastinate", module="procrastinate", store="postgresql", pace=500, note="concurrency 10"),
    Way(name="PgQueuer", module="pgqueuer", store="postgresql", at_once=(10, 50, 500), pace=10_000, note="asyncpg"),
    Way(name="Celery", module="celery", store=REDIS, pace=1_200, note="10 threads"),
    Way(name="Dramatiq", module="dramatiq", store=REDIS, pace=2_500, note="10 threads"),
    Way(name="RQ", module="rq", store=REDIS, pace=400, note="SimpleWorker, one at a time, as it works"),
    Way(name="SAQ", module="saq", store=REDIS, pace=1_800, note="concurrency 10"),
)


class Peers:
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
        self._ways = [way for way in WAYS if way.store == store and (only is None or way.module in only)]

    def measure(self, sizes: Sizes) -> Iterator[Timing | Failure]:
        """Enqueue singly and together, and drain."""
        for way in self._ways:
            for batch, number in sizes.peer_enqueue.items():
                how = "singly" if batch == 1 else "together"
                yield self._timing(way, "enqueue", batch, number, "enqueue", how, str(number))
            for at_once in way.at_once:
                number = max(int(way.pace * sizes.peer_seconds), 2 * at_once)
                words = ("drain", str(at_once), str(3 * at_once), str(number))
                yield self._timing(way, "drain", at_once, number, *words)

    def pick_up(self, sizes: Sizes) -> Iterator[PickUp | Failure]:
        """How long a task waits on an idle worker."""
        for way in self._ways:
            answer = self._ask(way, "pick-up", str(way.at_once[0]), str(sizes.pick_ups))
            if isinstance(answer, Failure):
                yield answer
            else:
                for waited in answer["milliseconds"]:
                    yield PickUp(database=self.database, by=way.name, milliseconds=waited)

    def _timing(self, way: Way, what: str, batch: int, number: int, *words: str) -> Timing | Failure:
        answer = self._ask(way, *words)
        if isinstance(answer, Failure):
            return answer
        return Timing(
            database=self.database,
            measurement=what,
            batch=batch,
            by=way.by(batch) if what == "drain" else way.name,
            tasks=number,
            seconds=answer["seconds"],
            cpu=answer["cpu"],
        )

    def _ask(self, way: Way, *words: str) -> Any:
        """What its own process measured, or why it did not."""
        what = f"{way.name}: {' '.join(words)}"
        if not PYTHON.exists():
            return Failure(database=self.database, what=what, reason=f"{PYTHON} is not there: make bench-peers")
        command = [str(PYTHON), "-m", "bench.peers.command", way.module, self._addresses[way.module], *words]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            ended = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=LONGEST, check=False, text=True
            )
        except subprocess.TimeoutExpired:
            return Failure(database=self.database, what=what, reason=f"it did not end within {LONGEST} s")
        if ended.returncode != 0:
            return Failure(database=self.database, what=what, reason=ended.stderr.strip()[-600:] or "it said nothing")
        return msgspec.json.decode(ended.stdout.strip().splitlines()[-1])


def peers_of(stage: Stage, only: Sequence[str] | None) -> Peers:
    """Those that work on this stage's database; each gets a database, or file, of its own on the same server."""
    ways = [way for way in WAYS if way.store == stage.kind and (only is None or way.module in only)]
    addresses = {}
    for way in ways:
        address = stage.another(f"peer_{way.module}")
        match stage.kind:
            case "sqlite":
                address = f"{address}?synchronous={stage.variant.synchronous}"
            case "postgresql":
                address = address.replace("postgresql+psycopg", "postgresql")
        addresses[way.module] = address
    return Peers(stage.kind, stage.name, addresses, only)
